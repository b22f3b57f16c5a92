// Engine: what compiles graphs and runs plans. This is the whole interface; tests/conformance runs on every engine.
//
// Threading: `compile` may be called from any thread, one call at a time; `run` is called by the runtime thread only, one plan at
// a time; `allocate`, `clone` and `memory` from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/graph/graph.h"
#include "src/runtime/buffer.h"
#include "src/runtime/options.h"

namespace spool {

/// What an engine made of a graph. Kept in the compile cache; owns all that a run needs beside its inputs.
class Plan {
 public:
  virtual ~Plan() = default;
};

/// One run of a plan.
struct RunArgs {
  /// One per graph input, in order. An input that an output replaces (GraphOutput::input), and any other input that the graph
  /// mutates, is the run's own: the engine may write into it and must leave it empty or filled as it likes. All others are
  /// only read.
  std::span<Memory* const> inputs;
  /// One per graph output, in order; empty on entry. The engine moves memory of the value's size into each: the input's own
  /// for an output that replaces an input in place, new memory otherwise.
  std::span<Memory* const> outputs;
  std::span<const Number> numbers;
  std::span<const GeneratorState> generators;
};

struct MemoryInfo {
  std::size_t used = 0;  ///< bytes held by this engine's live allocations, its arena included
  std::size_t peak = 0;  ///< the most that has ever been
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string name() const = 0;

  /// What its plans depend on beside graph and options: versions of what makes and runs them, processor, number of threads.
  virtual std::string build() const { return name(); }

  /// Makes a plan. The graph has passed the pipeline (passes/pipeline.h). Throws Error if the engine can't. `lowered`, if it is not
  /// null, becomes the graph after the engine's own passes.
  virtual std::unique_ptr<Plan> compile(const Graph& graph, const PlanOptions& options = {}, Graph* lowered = nullptr) = 0;

  /// Makes the plan again from what `compile` of an engine of the same build gave as `lowered`.
  virtual std::unique_ptr<Plan> load(const Graph& lowered) = 0;

  /// Runs a plan to its end. Throws Error: the message names the op and the user's line; kinds as eager would have raised.
  virtual void run(Plan& plan, const RunArgs& args) = 0;

  /// Uninitialised memory, aligned to 64 bytes. Throws Error(OutOfMemory).
  virtual Memory allocate(std::size_t nbytes) = 0;
  virtual MemoryInfo memory() const = 0;

  /// A copy of `from`, made at once by the calling thread.
  virtual Memory clone(const Memory& from) = 0;
};

/// The engine of that name ("native", "reference"), made at the first call and never freed. Throws Error(Value) naming the known ones.
Engine& engine(const std::string& name);
std::vector<std::string> engine_names();

/// Puts an engine's maker in the list above; called by each engine's file at start-up.
using EngineMaker = std::unique_ptr<Engine> (*)();
bool register_engine(const std::string& name, EngineMaker make);

}  // namespace spool
