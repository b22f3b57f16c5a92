// Explain: why things compile, where tapes are cut, and what each region costs; for SPOOL_LOG, for messages and for
// `torch_spool.explain()`.
//
// A Session collects while it is open; any number may be. While none is, the places that tell it cost one load and a branch.
// Thread-safe. What is called from the device runs under its lock, `ran` on the runtime's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "src/graph/graph.h"
#include "src/runtime/explain_reason.h"
#include "src/runtime/trace.h"

namespace spool::explain {

/// A compiled graph, in a form to be shown.
struct GraphNote {
  struct Node {
    std::string op;
    std::string text;               ///< its line of the graph's text
    std::string body;               ///< what the graph's text has below it: a kernel
    std::vector<ValueId> reads;     ///< each once
    std::vector<ValueId> makes;
    LocationPtr location;
  };
  struct Value {
    std::string text;               ///< dtype, sizes
    std::size_t nbytes = 0;
  };
  struct Buffer {
    std::string kind;               ///< input, output or arena
    std::size_t offset = 0;         ///< arena: bytes from its start
    std::size_t nbytes = 0;
    std::int32_t first = 0;         ///< nodes between which it is needed; -1 and the number of nodes: before and after
    std::int32_t last = 0;
  };
  std::uint64_t number = 0;
  std::string engine;
  std::string text;
  std::vector<Node> nodes;
  std::vector<Value> values;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<Buffer> buffers;      ///< by the memory plan
  std::size_t arena_bytes = 0;
};
std::shared_ptr<const GraphNote> note(std::uint64_t number, const Graph& graph, const std::string& engine);

struct CompileNote {
  std::uint64_t graph = 0;
  std::string region;
  std::string cause;        ///< of the cut
  LocationPtr where = nullptr;  ///< of the cut
  Reason reason = {};
  double milliseconds = 0;
};

struct CutNote {
  std::string region;
  std::string cause;
  std::string where;        ///< file and line, and what read
  std::string stack;        ///< at the first one
  bool breaks = false;      ///< it breaks a region's graph in two
  std::int64_t count = 0;
};

struct RegionNote {
  std::int64_t entries = 0;
  std::int64_t launches = 0;
  std::int64_t compiles = 0;
  std::set<std::uint64_t> graphs;
  double inside = 0;        ///< milliseconds between entry and exit
  double compiling = 0;
  double running = 0;       ///< on the runtime's thread
};

struct RunNote {
  struct Step {
    const Op* op = nullptr;
    LocationPtr location;
    double milliseconds = 0;  ///< over all runs
  };
  std::int64_t runs = 0;
  double milliseconds = 0;
  std::vector<Step> steps;
};

struct Report {
  std::vector<CompileNote> compiles;
  std::vector<CutNote> cuts;
  std::map<std::string, RegionNote> regions;
  std::map<std::uint64_t, std::shared_ptr<const GraphNote>> graphs;
  std::map<std::uint64_t, RunNote> runs;
};

class Session {
 public:
  Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();
  /// Collects no more. May be called again.
  void stop();
  /// What it has collected so far.
  Report report() const;

 private:
  friend struct Tell;
  Report report_;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> cut_at_;
  bool open_ = true;
};

/// Whether any session is open.
bool on();

// --- what the device tells ---
void compiled(const CompileNote& compile);
/// Whether all sessions have the graph of that number.
bool has_graph(std::uint64_t number);
void graph(const std::shared_ptr<const GraphNote>& graph);
void cut(const std::string& region, const char* cause, const LocationPtr& where, bool breaks);
void launched(const std::string& region, std::uint64_t graph);
void left(const std::string& region, double milliseconds);
void ran(const trace::LaunchNote& launch, std::int64_t nanoseconds, const std::vector<trace::Kernel>& kernels);

}  // namespace spool::explain
