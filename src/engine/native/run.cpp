// The native engine: runs plans.
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/version.h>

#include <algorithm>
#include <iostream>

#include "src/base/error.h"
#include "src/base/settings.h"
#include "src/engine/aten/call.h"
#include "src/engine/aten/memory.h"
#include "src/engine/native/arena.h"
#include "src/engine/native/kernel_cache.h"
#include "src/engine/native/onednn_step.h"
#include "src/engine/native/plan.h"
#include "src/engine/native/planned_allocator.h"
#include "src/passes/pipeline.h"
#include "src/runtime/metrics.h"
#include "src/runtime/trace.h"

namespace spool::native {
namespace {

using Kind = PlannedBuffer::Kind;

/// Gives the plan's inputs their memory; takes inputs' and outputs' memory from the plan's tensors when the run ends, however it
/// ends.
class Binding {
 public:
  Binding(NativePlan& plan, const RunArgs& args) : plan_(plan) {
    for (std::size_t i = 0; i < plan.storages.size(); ++i) {
      if (const PlannedBuffer& buffer = plan.memory.buffers[i]; buffer.kind == Kind::Input) {
        const Memory& memory = *args.inputs[static_cast<std::size_t>(buffer.index)];
        SPOOL_ASSERT(memory.nbytes() >= buffer.nbytes, "Input ", buffer.index, " has ", memory.nbytes(), " bytes, not ",
                     buffer.nbytes, ".");
        set(i, memory.data());
      }
    }
  }
  ~Binding() {
    for (std::size_t i = 0; i < plan_.storages.size(); ++i) {
      if (plan_.memory.buffers[i].kind != Kind::Arena) {
        set(i, nullptr);
      }
    }
  }
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

 private:
  void set(std::size_t buffer, void* data) {
    plan_.storages[buffer].unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(data, at::kCPU));
  }

  NativePlan& plan_;
};

class NativeEngine final : public Engine {
 public:
  std::string name() const override { return "native"; }

  std::string build() const override {
    return str("native, PyTorch " TORCH_VERSION ", ", kernel_build(), ", ", at::get_num_threads(), " threads, fuse ",
               settings().fuse, settings().decompose ? ", decompose" : "");
  }

  std::unique_ptr<Plan> compile(const Graph& graph, const PlanOptions& options, Graph* lowered) override {
    if (options.exact) {
      return plan(graph, lowered);
    }
    try {
      return plan(make_kernels(graph, &choose_convolution), lowered);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::OutOfMemory) {
        throw;
      }
      // What can't be compiled is run op by op.
      const std::string message = error.what();
      const std::string reason = message.substr(0, std::min(message.find('\n'), std::size_t{200}));
      metrics::count("FusionFallback");
      metrics::count("FusionFallback: " + reason);
      if (settings().logs("compile")) {
        std::cerr << "[spool] compiled without kernels: " << reason << '\n';
      }
    }
    return plan(graph, lowered);
  }

  std::unique_ptr<Plan> load(const Graph& lowered) override { return plan(lowered, nullptr); }

  void run(Plan& any_plan, const RunArgs& args) override {
    auto& plan = static_cast<NativePlan&>(any_plan);
    const c10::InferenceMode below_autograd;
    // Sets this thread's share of PyTorch's pool to what the user asked for; a thread of our own starts with the system's default.
    at::init_num_threads();
    arena_.reserve(plan.memory.arena_bytes);
    const Binding binding(plan, args);
    PlannedAllocator::Session allocations;
    RunState state{args, plan, *this, allocations, std::vector<Memory>(plan.storages.size()), {}, {}};
    const Step* current = nullptr;
    try {
      for (const auto& step : plan.steps) {
        current = step.get();
        const trace::KernelRange told(current->op, current->location);
        step->run(state);
      }
    } catch (...) {
      aten::rethrow_as_error(*current->op, current->location);
    }
    hand_over(plan, args, state);
  }

  Memory allocate(std::size_t nbytes) override { return aten::allocate(nbytes, counter_); }
  Memory clone(const Memory& from) override { return aten::clone(from, counter_); }

  MemoryInfo memory() const override { return counter_.info(); }

 private:
  std::unique_ptr<Plan> plan(Graph graph, Graph* lowered) const {
    auto made = std::make_unique<NativePlan>(graph, arena_);
    if (lowered != nullptr) {
      *lowered = std::move(graph);
    }
    return made;
  }

  /// Moves memory into the run's outputs. What lies in memory that is someone else's (an input that is only read, another output's)
  /// is copied first.
  void hand_over(NativePlan& plan, const RunArgs& args, RunState& state) {
    const auto owner = [&](std::size_t i) -> Memory* {
      const auto buffer = static_cast<std::size_t>(plan.output_buffers[i]);
      const PlannedBuffer& planned = plan.memory.buffers[buffer];
      if (planned.kind == Kind::Input) {
        return plan.memory.output_donated[i] != 0 ? args.inputs[static_cast<std::size_t>(planned.index)] : nullptr;
      }
      return planned.index == static_cast<std::int32_t>(i) ? &state.outputs[buffer] : nullptr;
    };
    std::vector<Memory> copies(plan.outputs.size());
    for (std::size_t i = 0; i < plan.outputs.size(); ++i) {
      if (owner(i) == nullptr) {
        const auto buffer = static_cast<std::size_t>(plan.output_buffers[i]);
        copies[i] = allocate(plan.memory.buffers[buffer].nbytes);
        aten::copy_bytes(copies[i].data(), plan.storages[buffer].data(), copies[i].nbytes());
      }
    }
    for (std::size_t i = 0; i < plan.outputs.size(); ++i) {
      Memory* own = owner(i);
      *args.outputs[i] = std::move(own != nullptr ? *own : copies[i]);
    }
  }

  aten::MemoryCounter& counter_ = PlannedAllocator::instance().counter();
  Arena arena_{counter_};
};

[[maybe_unused]] const bool registered =
    register_engine("native", []() -> std::unique_ptr<Engine> { return std::make_unique<NativeEngine>(); });

}  // namespace
}  // namespace spool::native
