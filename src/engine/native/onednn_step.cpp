#include "src/engine/native/onednn_step.h"

#include <ATen/Parallel.h>

#include "src/base/error.h"
#include "src/engine/native/onednn_convolution.h"
#include "src/passes/layout.h"

namespace spool::native {
namespace {

void* data(const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }

class ConvolutionStep final : public Step {
 public:
  struct Tensors {
    at::Tensor input, weight, bias, output, input_gradient, weight_gradient, workspace;
  };

  ConvolutionStep(const Node& node, std::shared_ptr<const OnednnConvolution> convolution, Tensors tensors)
      : Step(node), convolution_(std::move(convolution)), tensors_(std::move(tensors)) {}

  void run(RunState& /*state*/) override {
    convolution_->run({.input = data(tensors_.input),
                       .weight = data(tensors_.weight),
                       .bias = data(tensors_.bias),
                       .output = data(tensors_.output),
                       .input_gradient = data(tensors_.input_gradient),
                       .weight_gradient = data(tensors_.weight_gradient),
                       .workspace = data(tensors_.workspace)});
  }

 private:
  std::shared_ptr<const OnednnConvolution> convolution_;
  Tensors tensors_;
};

class ReorderStep final : public Step {
 public:
  ReorderStep(const Node& node, std::shared_ptr<const OnednnReorder> reorder, at::Tensor from, at::Tensor to)
      : Step(node), reorder_(std::move(reorder)), from_(std::move(from)), to_(std::move(to)) {}

  void run(RunState& /*state*/) override { reorder_->run(from_.const_data_ptr(), to_.mutable_data_ptr()); }

 private:
  std::shared_ptr<const OnednnReorder> reorder_;
  at::Tensor from_;
  at::Tensor to_;
};

/// A reorder that oneDNN has none for (broadcast operands, other dtypes), by PyTorch's copy.
class CopyReorderStep final : public Step {
 public:
  /// Both tensors seen as [N, C, spatial…] or both as [N, C / block, spatial…, block].
  CopyReorderStep(const Node& node, at::Tensor from, at::Tensor to) : Step(node), from_(std::move(from)), to_(std::move(to)) {}

  void run(RunState& /*state*/) override { to_.copy_(from_); }

 private:
  at::Tensor from_;
  at::Tensor to_;
};

/// [N, C, spatial…] as a view of sizes [N, C / block, spatial…, block].
at::Tensor in_blocks(const at::Tensor& plain, std::int64_t block) {
  return plain.unflatten(1, {plain.size(1) / block, block}).movedim(2, -1);
}

std::unique_ptr<Step> reorder_step(const Node& node, const StepTensors& tensors) {
  const Arg& from = node.args[0];
  const std::int64_t from_block = node.args[1].integer;
  const std::int64_t to_block = node.args[2].integer;
  at::Tensor read = tensors.operand(from);
  at::Tensor written = tensors.result(node.results[0]);
  const Geometry to{from.geometry.dtype, from.geometry.itemsize, 0, written.sizes().vec(), written.strides().vec()};
  if (auto reorder = onednn_reorder(from.geometry, from_block, to, to_block)) {
    return std::make_unique<ReorderStep>(node, std::move(reorder), std::move(read), std::move(written));
  }
  SPOOL_ASSERT(from_block == 1 || to_block == 1, "A reorder from blocks of ", from_block, " to blocks of ", to_block, ".");
  if (from_block != 1) {
    written = in_blocks(written, from_block);
  } else if (to_block != 1) {
    read = in_blocks(read, to_block);
  }
  return std::make_unique<CopyReorderStep>(node, std::move(read), std::move(written));
}

}  // namespace

std::optional<ConvolutionLayout> choose_convolution(const ConvolutionUse& use) {
  at::init_num_threads();  // kernels are made for the number of threads that this one has
  const auto convolution = onednn_convolution(use);
  return convolution == nullptr ? std::nullopt : std::optional(convolution->layout());
}

std::unique_ptr<Step> onednn_step(const Graph& graph, const Node& node, const StepTensors& tensors) {
  if (node.op == &ops::reorder) {
    return reorder_step(node, tensors);
  }
  if (node.op != &ops::convolution && node.op != &ops::convolution_backward) {
    return nullptr;
  }
  const auto use = convolution_use(graph, node);
  SPOOL_ASSERT(use.has_value(), "A node of ", node.op->name, " that is no convolution.");
  auto convolution = onednn_convolution(*use);
  SPOOL_ASSERT(convolution != nullptr, "No kernel for a convolution that was chosen.");
  const auto argument = [&](std::size_t i) { return tensors.operand(node.args[i]); };
  const auto result = [&](std::size_t i) { return node.results[i] == no_value ? at::Tensor() : tensors.result(node.results[i]); };
  ConvolutionStep::Tensors used;
  if (use->backward) {
    used = {.input = argument(1),
            .weight = argument(2),
            .bias = result(2),
            .output = argument(0),
            .input_gradient = result(0),
            .weight_gradient = result(1),
            .workspace = result(3)};
  } else {
    used = {.input = argument(0),
            .weight = argument(1),
            .bias = use->bias ? argument(2) : at::Tensor(),
            .output = result(0),
            .workspace = result(1)};
  }
  return std::make_unique<ConvolutionStep>(node, std::move(convolution), std::move(used));
}

}  // namespace spool::native
