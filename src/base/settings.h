// Settings read once from the environment; the only place that calls getenv.
#pragma once

#include <cstddef>
#include <string>

namespace spool {

struct Settings {
  std::string engine;         ///< SPOOL_ENGINE: "native" (default) or "reference".
  std::string dump_graphs;    ///< SPOOL_DUMP_GRAPHS: a folder that gets the text of every compiled graph; empty = off.
  std::string log;            ///< SPOOL_LOG: comma-separated subjects: compile, break, launch.
  bool decompose = false;  ///< SPOOL_DECOMPOSE: take composite operations apart although nothing fuses the pieces (for tests).
  std::size_t cache_size;  ///< SPOOL_CACHE_SIZE: plans kept by the compile cache (default 1024, at least 1).
  std::size_t disk_cache_bytes; ///< SPOOL_DISK_CACHE_BYTES: how large the persistent cache's folder may be (default 1 GiB).
  std::size_t max_tape_ops;  ///< SPOOL_MAX_TAPE_OPS: ops after which an uncut tape is cut by itself (default 2048).
  std::size_t max_tape_bytes;  ///< SPOOL_MAX_TAPE_BYTES: bytes of results after which it is cut by itself (default 2 GiB).
  std::size_t in_flight;  ///< SPOOL_IN_FLIGHT: launched plans that may wait in the queue (default 2, at least 1).
  bool exact;  ///< SPOOL_EXACT: whether plans compute exactly as eager does, op by op (default off).
  std::string fuse;  ///< SPOOL_FUSE: "auto" (default), "always" (also single ops, for tests) or "never".
  bool follow;  ///< SPOOL_FOLLOW: whether known tapes are followed by comparing (default on).

  bool logs(const std::string& subject) const;
};

/// The process's settings. Thread-safe; read at the first call. Throws Error(Value) for a variable that can't be read.
const Settings& settings();

}  // namespace spool
