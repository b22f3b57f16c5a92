// Steps of the native plan for the nodes that layout assignment made: convolutions and reorders.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>

#include "src/engine/native/plan.h"
#include "src/passes/layout.h"

namespace spool::native {

/// The tensor on a value's memory, with the value's geometry or an argument's.
struct StepTensors {
  std::function<at::Tensor(const Arg&)> operand;
  std::function<at::Tensor(ValueId)> result;
};

/// The answer to layout assignment: oneDNN's.
std::optional<ConvolutionLayout> choose_convolution(const ConvolutionUse& use);

/// The step for a node of ops::convolution, ops::convolution_backward or ops::reorder; null for any other.
std::unique_ptr<Step> onednn_step(const Graph& graph, const Node& node, const StepTensors& tensors);

}  // namespace spool::native
