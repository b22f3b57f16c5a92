// The reference engine: runs a graph op by op through ATen, plainly. It plans nothing and shares nothing: each value owns its
// memory, and a value that is mutated is cloned first. The oracle for the other engines.
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/engine/aten/call.h"
#include "src/engine/aten/memory.h"
#include "src/engine/engine.h"
#include "src/runtime/trace.h"

namespace spool {
namespace {

struct ReferencePlan final : Plan {
  explicit ReferencePlan(Graph graph) : graph(std::move(graph)) {}
  Graph graph;
};

c10::Storage new_storage(std::size_t nbytes) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes, c10::GetCPUAllocator(),
                                               /*resizable=*/false);
}

c10::Storage clone(const c10::Storage& storage) {
  c10::Storage copy = new_storage(storage.nbytes());
  aten::copy_bytes(copy.mutable_data(), storage.data(), storage.nbytes());
  return copy;
}

class Run {
 public:
  Run(const Graph& graph, const RunArgs& args) : graph_(graph), args_(args), storages_(graph.values.size()) {
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      storage(graph.inputs[i].value) = aten::storage_at(args.inputs[i]->data(), args.inputs[i]->nbytes());
    }
  }

  void run(const Node& node) {
    try {
      call(node);
    } catch (...) {
      aten::rethrow_as_error(*node.op, node.location);
    }
  }

  const c10::Storage& result(ValueId value) { return storage(value); }

 private:
  c10::Storage& storage(ValueId value) { return storages_[static_cast<std::size_t>(value)]; }
  const Value& value(ValueId id) const { return graph_.values[static_cast<std::size_t>(id)]; }

  void call(const Node& node) {
    if (node.op == &ops::empty) {
      storage(node.results.at(0)) = new_storage(value(node.results[0]).nbytes);
      return;
    }
    const auto fresh = static_cast<std::size_t>(node.fresh);
    const std::vector<ValueId> old = mutated(node);
    for (std::size_t i = 0; i < old.size(); ++i) {
      storage(node.results[fresh + i]) = clone(storage(old[i]));
    }
    // All operands of a mutated value see the clone, as all of them would see the one memory.
    aten::AtenCall call(node, [&](const Arg& arg) {
      const auto at = std::find(old.begin(), old.end(), arg.value) - old.begin();
      const bool is_mutated = at != static_cast<std::ptrdiff_t>(old.size());
      return aten::tensor_on(storage(is_mutated ? node.results[fresh + static_cast<std::size_t>(at)] : arg.value), arg.geometry);
    });
    torch::jit::Stack stack;
    call.run(stack, args_.numbers, args_.generators);
    std::vector<at::Tensor> results;
    call.take_fresh(stack, results);
    SPOOL_ASSERT(results.size() == fresh, node.op->name, " gave ", results.size(), " results, not ", fresh, ".");
    for (std::size_t i = 0; i < fresh; ++i) {
      if (node.results[i] != no_value) {
        keep(*node.op, results[i], node.results[i]);
      }
    }
  }

  /// Always copies, so that a value's memory is its own whatever the kernel returned.
  void keep(const Op& op, const at::Tensor& result, ValueId id) {
    aten::check_result(op, result, value(id).geometry);
    storage(id) = new_storage(value(id).nbytes);
    aten::tensor_on(storage(id), value(id).geometry).copy_(result);
  }

  const Graph& graph_;
  const RunArgs& args_;
  std::vector<c10::Storage> storages_;
};

class ReferenceEngine final : public Engine {
 public:
  std::string name() const override { return "reference"; }

  std::unique_ptr<Plan> compile(const Graph& graph, const PlanOptions& /*options*/, Graph* lowered) override {
    if (lowered != nullptr) {
      *lowered = graph;
    }
    return std::make_unique<ReferencePlan>(graph);
  }

  std::unique_ptr<Plan> load(const Graph& lowered) override { return std::make_unique<ReferencePlan>(lowered); }

  void run(Plan& plan, const RunArgs& args) override {
    const c10::InferenceMode below_autograd;
    at::init_num_threads();
    const Graph& graph = static_cast<ReferencePlan&>(plan).graph;
    Run run(graph, args);
    for (const Node& node : graph.nodes) {
      const trace::KernelRange told(node.op, node.location);
      run.run(node);
    }
    std::vector<Memory> made;
    for (const GraphOutput& output : graph.outputs) {
      const c10::Storage& result = run.result(output.value);
      made.push_back(allocate(result.nbytes()));
      aten::copy_bytes(made.back().data(), result.data(), result.nbytes());
    }
    for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
      *args.outputs[i] = std::move(made[i]);
      if (const std::int32_t input = graph.outputs[i].input; input >= 0) {
        // The replaced input's own memory is handed on, as the caller is promised.
        Memory& replaced = *args.inputs[static_cast<std::size_t>(input)];
        aten::copy_bytes(replaced.data(), args.outputs[i]->data(), replaced.nbytes());
        *args.outputs[i] = std::move(replaced);
      }
    }
  }

  Memory allocate(std::size_t nbytes) override { return aten::allocate(nbytes, counter_); }
  Memory clone(const Memory& from) override { return aten::clone(from, counter_); }
  MemoryInfo memory() const override { return counter_.info(); }

 private:
  aten::MemoryCounter counter_;
};

[[maybe_unused]] const bool registered =
    register_engine("reference", []() -> std::unique_ptr<Engine> { return std::make_unique<ReferenceEngine>(); });

}  // namespace
}  // namespace spool
