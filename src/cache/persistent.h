// The process's persistent cache: where compiled graphs are kept for other processes, once `spool::initialize_cache` has been called.
//
// Two kinds of entries: "plan", a graph as recorded (with the engine and the options) to the graph after all passes, and "kernel",
// a kernel's form to its object code. Both are keyed by all that they depend on.
#pragma once

#include <filesystem>
#include <memory>

#include "src/cache/disk_cache.h"

namespace spool {

/// Opens it at `folder`; plans that are compiled from now on are looked for and, unless `readonly`, stored there. `version`: what is
/// never shared between processes that differ in it. Replaces the one opened before. Throws as DiskCache's constructor. Thread-safe.
void open_persistent_cache(const std::filesystem::path& folder, bool readonly, const std::string& version);

/// The one that is open, or null. Thread-safe.
std::shared_ptr<DiskCache> persistent_cache();

}  // namespace spool
