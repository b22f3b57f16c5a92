#include "src/passes/pipeline.h"

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>

#include "src/base/error.h"
#include "src/base/settings.h"
#include "src/passes/cse.h"
#include "src/passes/dead_code.h"
#include "src/passes/decompose.h"
#include "src/passes/fold.h"
#include "src/passes/fuse.h"
#include "src/runtime/options.h"

namespace spool {
namespace {

struct Pass {
  const char* name;
  std::function<Graph(Graph)> run;
};

Graph decompose_if_asked(Graph graph) { return settings().decompose ? decompose(std::move(graph)) : graph; }

/// What every graph goes through, in order.
const std::array passes{
    Pass{"fold", &fold},
    Pass{"common_subexpressions", &common_subexpressions},
    Pass{"decompose", &decompose_if_asked},
    Pass{"dead_code", &dead_code},
};

Graph decompose_for_kernels(Graph graph) {
  return plan_options().fuse == FuseMode::Never ? std::move(graph) : decompose(std::move(graph));
}

Graph fuse_as_asked(Graph graph) {
  const FuseMode mode = plan_options().fuse;
  return mode == FuseMode::Never ? std::move(graph) : fuse(std::move(graph), mode);
}

/// What an engine that runs kernels adds.
auto kernel_passes(const ChooseConvolution& choose) {
  return std::array{
      Pass{"decompose", &decompose_for_kernels},
      Pass{"fold", &fold},
      Pass{"common_subexpressions", &common_subexpressions},
      Pass{"dead_code", &dead_code},
      Pass{"fuse", &fuse_as_asked},
      Pass{"dead_code", &dead_code},
      Pass{"assign_layouts", [&choose](Graph graph) { return assign_layouts(std::move(graph), choose); }},
  };
}

/// The number of the graph that this thread has in hand.
thread_local int graph_number = 0;

/// One graph's file in the folder of SPOOL_DUMP_GRAPHS; does nothing where that is not set.
class Dump {
 public:
  explicit Dump(const char* suffix) {
    const std::string& folder = settings().dump_graphs;
    if (folder.empty()) {
      return;
    }
    std::error_code failure;
    std::filesystem::create_directories(folder, failure);
    const auto path = std::filesystem::path(folder) / str("graph_", graph_number, suffix);
    file_.open(path);
    SPOOL_CHECK(file_.is_open(), Value, "[SPOOL_DUMP_GRAPHS] expected a folder that can be written to, but '", path.string(),
                "' can't be opened; create '", folder, "' or name another folder");
  }

  void before(const Graph& graph) {
    if (file_.is_open()) {
      last_ = text(graph, true);
      file_ << "as recorded:\n" << last_;
    }
  }

  void after(const char* pass, std::chrono::duration<double, std::milli> time, const Graph& graph) {
    if (!file_.is_open()) {
      return;
    }
    std::string now = text(graph, true);
    file_ << "\nafter " << pass << " (" << time.count() << " ms):" << (now == last_ ? " (unchanged)\n" : "\n");
    if (now != last_) {
      file_ << now;
      last_ = std::move(now);
    }
  }

 private:
  std::ofstream file_;
  std::string last_;
};

void check([[maybe_unused]] const Graph& graph) {
#ifdef SPOOL_VERIFY
  verify(graph);
#endif
}

template <std::size_t count>
Graph run(const std::array<Pass, count>& list, Graph graph, const char* suffix) {
  Dump dump(suffix);
  dump.before(graph);
  check(graph);
  for (const Pass& pass : list) {
    const auto start = std::chrono::steady_clock::now();
    graph = pass.run(std::move(graph));
    dump.after(pass.name, std::chrono::steady_clock::now() - start, graph);
    check(graph);
  }
  return graph;
}

}  // namespace

Graph optimise(Graph graph) {
  static std::atomic<int> next{0};
  graph_number = next++;
  return run(passes, std::move(graph), ".txt");
}

Graph make_kernels(Graph graph, const ChooseConvolution& choose) {
  return run(kernel_passes(choose), std::move(graph), ".kernels.txt");
}

}  // namespace spool
