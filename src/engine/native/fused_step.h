// A `spool::fused` node in a native plan.
#pragma once

#include <memory>
#include <vector>

#include "src/engine/native/kernel_run.h"
#include "src/engine/native/plan.h"

namespace spool::native {

class FusedStep final : public Step {
 public:
  /// `compile_steps` must follow before it runs.
  FusedStep(const Node& node, const MemoryPlan& memory);

  void run(RunState& state) override;

  /// Its segments, in order.
  const std::vector<KernelLaunch>& launches() const { return launches_; }
  std::vector<KernelLaunch>& launches() { return launches_; }

 private:
  struct NumberSource {
    std::int32_t parameter;  ///< of the plan, or -1: a constant
    bool real;
    std::int64_t constant;   ///< its bits
  };

  std::vector<KernelLaunch> launches_;
  std::vector<std::vector<std::size_t>> buffers_;   ///< per launch and access
  std::vector<std::vector<NumberSource>> numbers_;  ///< per launch and number of the program
  std::vector<LaunchArguments> arguments_;
  std::size_t scratch_bytes_ = 0;
};

/// Finds or compiles the code of all these steps, in parallel. Throws Error(Internal) with the reason if one can't be compiled.
void compile_steps(const std::vector<FusedStep*>& steps);

}  // namespace spool::native
