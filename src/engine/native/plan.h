// The native engine's plan: a list of steps on tensors that are made once, when the graph is compiled.
//
// Values in the arena lie at fixed offsets of the engine's one block. Inputs and outputs have a storage each, which gets its memory
// when a run begins or when the output is first written, and loses it when the run ends.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "src/engine/engine.h"
#include "src/engine/native/arena.h"
#include "src/engine/native/planned_allocator.h"
#include "src/passes/plan_memory.h"

namespace spool::native {

class NativePlan;

/// What the steps of one run share.
struct RunState {
  const RunArgs& args;
  NativePlan& plan;
  Engine& engine;
  PlannedAllocator::Session& allocations;
  std::vector<Memory> outputs;  ///< per buffer: memory of an output that has been written to
  torch::jit::Stack stack;
  std::vector<at::Tensor> results;
};

/// One thing to do. Sub-classes: a kernel call, a copy, memory for an output (plan.cpp); later, a fused loop on raw pointers.
class Step {
 public:
  explicit Step(const Node& node) : op(node.op), location(node.location) {}
  virtual ~Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  virtual void run(RunState& state) = 0;

  const Op* const op;  ///< named in the message if it throws
  const LocationPtr location;
};

class NativePlan final : public Plan {
 public:
  /// Throws Error(Internal) for a graph whose nodes don't match their operators.
  NativePlan(const Graph& graph, const Arena& arena);

  MemoryPlan memory;
  std::vector<c10::Storage> storages;  ///< per buffer; all of kind Arena share the arena's
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<GraphOutput> outputs;
  std::vector<std::int32_t> output_buffers;  ///< per graph output: where its value lies
};

/// Results of kernels that did not lie in their planned place and were copied there, since the process began.
std::uint64_t copied_results();

}  // namespace spool::native
