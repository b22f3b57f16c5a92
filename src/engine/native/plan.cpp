// Builds a plan: chooses a form for each node and makes its tensors.
#include "src/engine/native/plan.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "src/base/error.h"
#include "src/engine/aten/call.h"
#include "src/engine/native/blocked_pool.h"
#include "src/engine/native/fused_step.h"
#include "src/engine/native/gemm.h"
#include "src/engine/native/onednn_step.h"
#include "src/ops/op_table.h"
#include "src/torch/infer.h"

namespace spool::native {
namespace {

using Kind = PlannedBuffer::Kind;

std::atomic<std::uint64_t> copies{0};

/// Memory for an output, right before the first node that writes to it.
class BindStep final : public Step {
 public:
  BindStep(const Node& node, std::size_t buffer) : Step(node), buffer_(buffer) {}

  void run(RunState& state) override {
    Memory& memory = state.outputs[buffer_];
    memory = state.engine.allocate(state.plan.memory.buffers[buffer_].nbytes);
    state.plan.storages[buffer_].unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(memory.data(), at::kCPU));
  }

 private:
  std::size_t buffer_;
};

/// Keeps a value that is about to be mutated and still needed.
class CopyStep final : public Step {
 public:
  CopyStep(const Node& node, at::Tensor from, at::Tensor to, std::size_t nbytes)
      : Step(node), from_(std::move(from)), to_(std::move(to)), nbytes_(nbytes) {}

  void run(RunState& /*state*/) override { aten::copy_bytes(to_.mutable_data_ptr(), from_.const_data_ptr(), nbytes_); }

 private:
  at::Tensor from_;
  at::Tensor to_;
  std::size_t nbytes_;
};

/// A kernel that writes only into tensors it is given: it mutates, or is an out overload.
class InPlaceStep final : public Step {
 public:
  InPlaceStep(const Node& node, aten::AtenCall call) : Step(node), call_(std::move(call)) {}

  void run(RunState& state) override { call_.run(state.stack, state.args.numbers, state.args.generators); }

 private:
  aten::AtenCall call_;
};

/// A kernel that makes its results. They are born in their planned places where the allocator can arrange it, else copied there.
class MakingStep final : public Step {
 public:
  struct Result {
    at::Tensor target;  ///< undefined where the op returns an undefined tensor
    Geometry geometry;
    std::size_t nbytes = 0;
  };

  MakingStep(const Node& node, aten::AtenCall call, std::vector<Result> results)
      : Step(node), call_(std::move(call)), results_(std::move(results)), places_(results_.size()) {}

  void run(RunState& state) override {
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const Result& result = results_[i];
      places_[i] = {result.target.defined() ? result.target.mutable_data_ptr() : nullptr, result.nbytes,
                    !result.target.defined() || result.nbytes == 0};
    }
    state.allocations.begin_call(places_, order_);
    call_.run(state.stack, state.args.numbers, state.args.generators);
    const auto allocated = state.allocations.end_call();
    state.results.clear();
    call_.take_fresh(state.stack, state.results);
    SPOOL_ASSERT(state.results.size() == results_.size(), op->name, " gave ", state.results.size(), " results, not ",
                 results_.size(), ".");
    bool all_at_home = true;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      all_at_home &= at_home(i, state.results[i]);
    }
    if (!all_at_home) {
      learn(state.results, allocated);
      bring_home(state.results);
    }
    state.results.clear();
    state.stack.clear();
  }

 private:
  bool at_home(std::size_t i, const at::Tensor& result) const {
    const Result& wanted = results_[i];
    if (!wanted.target.defined()) {
      return true;
    }
    const bool same_layout = aten::check_result(*op, result, wanted.geometry);
    return same_layout && (result.const_data_ptr() == places_[i].data || result.numel() == 0);
  }

  /// Notes which allocation became which result, for the next run: kernels allocate in the same order each time.
  void learn(const std::vector<at::Tensor>& results, std::span<void* const> allocated) {
    order_.assign(allocated.size(), -1);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!results[i].defined() || !results_[i].target.defined()) {
        continue;
      }
      const auto last = std::find(allocated.rbegin(), allocated.rend(), results[i].storage().data());
      if (last != allocated.rend()) {
        order_[static_cast<std::size_t>(allocated.rend() - last) - 1] = static_cast<std::int16_t>(i);
      }
    }
  }

  void bring_home(std::vector<at::Tensor>& results) {
    std::vector<bool> away(results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      away[i] = !at_home(i, results[i]);
    }
    // What lies in the place of any result is moved out first, before that result is copied over it.
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (away[i] && in_a_place(results[i])) {
        results[i] = results[i].clone();
      }
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (away[i]) {
        results_[i].target.copy_(results[i]);
        copies.fetch_add(1, std::memory_order_relaxed);
      }
    }
  }

  bool in_a_place(const at::Tensor& result) const {
    const auto* data = static_cast<const char*>(result.storage().data());
    return std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
      const auto* begin = static_cast<const char*>(place.data);
      return begin != nullptr && data < begin + place.nbytes && begin < data + result.storage().nbytes();
    });
  }

  aten::AtenCall call_;
  std::vector<Result> results_;
  std::vector<Place> places_;
  std::vector<std::int16_t> order_;  ///< learnt: per allocation of the call, the result that it becomes; empty: nothing known
};

class Builder {
 public:
  Builder(const Graph& graph, const Arena& arena, NativePlan& plan) : graph_(graph), plan_(plan) {
    for (const PlannedBuffer& buffer : plan.memory.buffers) {
      plan.storages.push_back(buffer.kind == Kind::Arena ? arena.storage() : aten::storage_at(nullptr, buffer.nbytes));
    }
    for (const GraphOutput& output : graph.outputs) {
      plan.outputs.push_back(output);
      plan.output_buffers.push_back(plan.memory.buffer_of[static_cast<std::size_t>(output.value)]);
    }
  }

  void run() {
    auto copy = plan_.memory.copies.begin();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      bind_outputs(node, static_cast<std::int32_t>(i));
      for (; copy != plan_.memory.copies.end() && copy->node == static_cast<std::int32_t>(i); ++copy) {
        plan_.steps.push_back(std::make_unique<CopyStep>(node, whole(copy->from), whole(copy->to), value(copy->to).nbytes));
      }
      if (node.op != &ops::empty) {
        add(node);
      }
    }
    compile_steps(fused_);
  }

 private:
  const Value& value(ValueId id) const { return graph_.values[static_cast<std::size_t>(id)]; }

  at::Tensor operand(ValueId id, const Geometry& geometry) const {
    const auto buffer = static_cast<std::size_t>(plan_.memory.buffer_of[static_cast<std::size_t>(id)]);
    return aten::tensor_on(plan_.storages[buffer], geometry, plan_.memory.buffers[buffer].offset);
  }
  at::Tensor whole(ValueId id) const { return operand(id, value(id).geometry); }

  void bind_outputs(const Node& node, std::int32_t index) {
    const auto bind = [&](ValueId result) {
      const auto buffer = plan_.memory.buffer_of[static_cast<std::size_t>(result)];
      const PlannedBuffer& planned = plan_.memory.buffers[static_cast<std::size_t>(buffer)];
      if (planned.kind == Kind::Output && planned.first == index) {
        plan_.steps.push_back(std::make_unique<BindStep>(node, static_cast<std::size_t>(buffer)));
      }
    };
    for (const ValueId result : node.results) {
      if (result != no_value) {
        bind(result);
      }
    }
  }

  void add(const Node& node) {
    if (node.kernel != nullptr) {
      auto step = std::make_unique<FusedStep>(node, plan_.memory);
      fused_.push_back(step.get());
      plan_.steps.push_back(std::move(step));
      return;
    }
    // All operands of a mutated value see its next value's memory, as all of them saw the one storage.
    const std::vector<ValueId> old = mutated(node);
    const aten::AtenCall::Operand operands = [&](const Arg& arg) {
      const auto at = static_cast<std::size_t>(std::find(old.begin(), old.end(), arg.value) - old.begin());
      return operand(at == old.size() ? arg.value : node.results[static_cast<std::size_t>(node.fresh) + at], arg.geometry);
    };
    if (node.results.size() == 1 && node.fresh == 1 && node.results[0] != no_value) {
      if (auto product = gemm_step(node, operands, whole(node.results[0]))) {
        plan_.steps.push_back(std::move(product));
        return;
      }
    }
    const StepTensors tensors{operands, [&](ValueId id) { return whole(id); }};
    if (auto convolution = onednn_step(graph_, node, tensors)) {
      plan_.steps.push_back(std::move(convolution));
    } else if (auto pool = blocked_pool_step(graph_, node, tensors)) {
      plan_.steps.push_back(std::move(pool));
    } else if (node.fresh == 0) {
      plan_.steps.push_back(std::make_unique<InPlaceStep>(node, aten::AtenCall(node, operands)));
    } else if (auto call = out_call(node, operands)) {
      plan_.steps.push_back(std::make_unique<InPlaceStep>(node, std::move(*call)));
    } else {
      plan_.steps.push_back(std::make_unique<MakingStep>(node, aten::AtenCall(node, operands), results(node)));
    }
  }

  /// The node as a call of its op's out overload, if it is structured: those give results exactly the geometry that they are
  /// given.
  std::optional<aten::AtenCall> out_call(const Node& node, const aten::AtenCall::Operand& operands) const {
    const bool functional = node.op->has_mutation || traits(node.op->name).functional_only;
    const char* name = functional ? nullptr : torch_side::structured_out_overload(node.op->name);
    if (name == nullptr || std::find(node.results.begin(), node.results.end(), no_value) != node.results.end()) {
      return std::nullopt;
    }
    const std::string full = name;
    const std::size_t dot = full.find('.');
    const auto out =
        c10::Dispatcher::singleton().findSchema({full.substr(0, dot), dot == std::string::npos ? "" : full.substr(dot + 1)});
    SPOOL_ASSERT(out.has_value(), full, " is not known to the dispatcher.");
    std::vector<at::Tensor> outs;
    outs.reserve(node.results.size());
    for (const ValueId result : node.results) {
      outs.push_back(whole(result));
    }
    return aten::AtenCall(node, *out, operands, outs);
  }

  std::vector<MakingStep::Result> results(const Node& node) const {
    std::vector<MakingStep::Result> made;
    for (std::size_t i = 0; i < static_cast<std::size_t>(node.fresh); ++i) {
      const ValueId id = node.results[i];
      made.push_back(id == no_value ? MakingStep::Result{} : MakingStep::Result{whole(id), value(id).geometry, value(id).nbytes});
    }
    return made;
  }

  const Graph& graph_;
  NativePlan& plan_;
  std::vector<FusedStep*> fused_;
};

}  // namespace

std::uint64_t copied_results() { return copies.load(std::memory_order_relaxed); }

NativePlan::NativePlan(const Graph& graph, const Arena& arena) : memory(plan_memory(graph)) {
  const c10::InferenceMode below_autograd;
  Builder(graph, arena, *this).run();
}

}  // namespace spool::native
