#include "src/runtime/explain.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <sstream>

#include "src/base/error.h"
#include "src/passes/plan_memory.h"

namespace spool::explain {
namespace {

std::atomic<int> open_sessions{0};

struct Sessions {
  std::mutex mutex;
  std::vector<Session*> open;
};

Sessions& sessions() {
  static auto* instance = new Sessions;  // never destroyed: threads may still tell while the process ends
  return *instance;
}

// A forked child must find the lock free. Registered while the library loads, before the device registers its own.
const bool registered = [] {
  pthread_atfork([] { sessions().mutex.lock(); }, [] { sessions().mutex.unlock(); }, [] { sessions().mutex.unlock(); });
  return true;
}();

constexpr std::size_t kept_compiles = 4096;
constexpr std::size_t kept_cuts = 4096;

const char* name(PlannedBuffer::Kind kind) {
  switch (kind) {
    case PlannedBuffer::Kind::Input: return "input";
    case PlannedBuffer::Kind::Output: return "output";
    case PlannedBuffer::Kind::Arena: return "arena";
  }
  return "?";
}

}  // namespace

/// Reaches into the open sessions, under their lock.
struct Tell {
  template <class Body>
  static void all(Body&& body) {
    if (!on()) {
      return;
    }
    Sessions& s = sessions();
    const std::lock_guard lock(s.mutex);
    for (Session* session : s.open) {
      body(session->report_, session->cut_at_);
    }
  }
};

bool on() { return open_sessions.load(std::memory_order_relaxed) != 0; }

Session::Session() {
  Sessions& s = sessions();
  const std::lock_guard lock(s.mutex);
  s.open.push_back(this);
  open_sessions.fetch_add(1);
  trace::listeners.fetch_add(1);
}

Session::~Session() { stop(); }

void Session::stop() {
  Sessions& s = sessions();
  const std::lock_guard lock(s.mutex);
  if (std::exchange(open_, false)) {
    std::erase(s.open, this);
    open_sessions.fetch_sub(1);
    trace::listeners.fetch_sub(1);
  }
}

Report Session::report() const {
  const std::lock_guard lock(sessions().mutex);
  return report_;
}

std::shared_ptr<const GraphNote> note(std::uint64_t number, const Graph& graph, const std::string& engine) {
  auto shown = std::make_shared<GraphNote>();
  shown->number = number;
  shown->engine = engine;
  shown->text = text(graph);
  for (const Value& value : graph.values) {
    shown->values.push_back({str(value.geometry), value.nbytes});
  }
  for (const Node& node : graph.nodes) {
    GraphNote::Node& mine = shown->nodes.emplace_back();
    mine.op = node.op->name;
    mine.location = node.location;
    for_each_tensor(node.args, [&](const Arg& arg) {
      if (std::find(mine.reads.begin(), mine.reads.end(), arg.value) == mine.reads.end()) {
        mine.reads.push_back(arg.value);
      }
    });
    std::copy_if(node.results.begin(), node.results.end(), std::back_inserter(mine.makes),
                 [](ValueId value) { return value != no_value; });
  }
  // The text has one line a node, indented by two; what is indented more belongs to the node above it.
  std::istringstream lines(shown->text);
  std::size_t next = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("    ") && next > 0) {
      shown->nodes[next - 1].body += line.substr(4) + '\n';
    } else if (line.starts_with("  ") && next < shown->nodes.size()) {
      shown->nodes[next++].text = line.substr(2);
    }
  }
  for (const GraphInput& input : graph.inputs) {
    shown->inputs.push_back(input.value);
  }
  for (const GraphOutput& output : graph.outputs) {
    shown->outputs.push_back(output.value);
  }
  const MemoryPlan memory = plan_memory(graph);
  shown->arena_bytes = memory.arena_bytes;
  for (const PlannedBuffer& buffer : memory.buffers) {
    shown->buffers.push_back({name(buffer.kind), buffer.offset, buffer.nbytes, buffer.first, buffer.last});
  }
  return shown;
}

void compiled(const CompileNote& compile) {
  Tell::all([&](Report& report, auto&) {
    RegionNote& region = report.regions[compile.region];
    ++region.compiles;
    region.compiling += compile.milliseconds;
    if (report.compiles.size() < kept_compiles) {
      report.compiles.push_back(compile);
    }
  });
}

bool has_graph(std::uint64_t number) {
  bool all = true;
  Tell::all([&](const Report& report, auto&) { all = all && report.graphs.contains(number); });
  return all;
}

void graph(const std::shared_ptr<const GraphNote>& graph) {
  Tell::all([&](Report& report, auto&) {
    if (report.graphs.size() < kept_compiles) {
      report.graphs.emplace(graph->number, graph);
    }
  });
}

void cut(const std::string& region, const char* cause, const LocationPtr& where, bool breaks) {
  if (!on()) {
    return;
  }
  const std::string line = describe(where);
  Tell::all([&](Report& report, auto& cut_at) {
    const auto [at, is_new] = cut_at.try_emplace({region, cause, line}, report.cuts.size());
    if (is_new && report.cuts.size() < kept_cuts) {
      report.cuts.push_back({region, cause, line, where == nullptr ? "" : where->stack, breaks, 0});
    }
    if (at->second < report.cuts.size()) {
      ++report.cuts[at->second].count;
    }
  });
}

void launched(const std::string& region, std::uint64_t graph) {
  Tell::all([&](Report& report, auto&) {
    RegionNote& note = report.regions[region];
    ++note.launches;
    note.graphs.insert(graph);
  });
}

void left(const std::string& region, double milliseconds) {
  Tell::all([&](Report& report, auto&) {
    RegionNote& note = report.regions[region];
    ++note.entries;
    note.inside += milliseconds;
  });
}

void ran(const trace::LaunchNote& launch, std::int64_t nanoseconds, const std::vector<trace::Kernel>& kernels) {
  Tell::all([&](Report& report, auto&) {
    const double milliseconds = static_cast<double>(nanoseconds) * 1e-6;
    report.regions[launch.region].running += milliseconds;
    RunNote& note = report.runs[launch.graph];
    ++note.runs;
    note.milliseconds += milliseconds;
    // A plan does the same each time.
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const trace::Kernel& kernel = kernels[i];
      if (i == note.steps.size()) {
        note.steps.push_back({kernel.op, kernel.location, 0});
      }
      note.steps[i].milliseconds += static_cast<double>(kernel.end - kernel.start) * 1e-6;
    }
  });
}

}  // namespace spool::explain
