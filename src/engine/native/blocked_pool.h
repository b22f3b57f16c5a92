// Max pooling of values that lie in blocks of channels.
#pragma once

#include <memory>

#include "src/engine/native/onednn_step.h"

namespace spool::native {

/// The step for a node of ops::max_pool or ops::max_pool_backward; null for any other. Gives PyTorch's results to the last bit: of
/// equal elements the first counts, and not-a-number is larger than all others.
std::unique_ptr<Step> blocked_pool_step(const Graph& graph, const Node& node, const StepTensors& tensors);

}  // namespace spool::native
