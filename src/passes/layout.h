// Layout assignment: activations between convolutions, and through the fused kernels there, lie in blocks of channels.
//
// A blocked value of sizes [N, C, spatial…] has the sizes [N, C / b, spatial…, b]: an ordinary geometry of one more dimension. A
// fused kernel's places are affine, so it reads and writes blocked values after a change of its space and strides alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "src/graph/graph.h"

namespace spool {

namespace ops {
/// Arguments of aten::convolution, then the blocks in which the input and the result lie (1: plain, row-major). The results are
/// aten's, then the workspace.
extern const Op convolution;
/// Arguments of aten::convolution_backward, then the blocks of the input (and its gradient) and of the result's gradient. The
/// results are aten's, then the workspace.
extern const Op convolution_backward;
/// A tensor, the blocks of channels in which it lies, and those in which the result lies (1: as its geometry says).
extern const Op reorder;
/// A blocked f32 value [N, C / b, height, width, b]; kernel, stride and padding. The results are the largest elements and, as u8, which
/// of the window's elements each is.
extern const Op max_pool;
/// The result's gradient; kernel, stride and padding; max_pool's second result. The result is the input's gradient.
extern const Op max_pool_backward;
}  // namespace ops

/// What a convolution computes, forward or one backward call. Sizes are those of the operator's tensors, weights (out, in / groups,
/// spatial…); one stride, padding and dilation for each spatial dimension.
struct ConvolutionUse {
  DType dtype = DType::Float32;
  bool backward = false;
  bool bias = false;  ///< forward: adds one; backward: its gradient is wanted
  bool input_gradient = false;
  bool weight_gradient = false;
  std::int64_t groups = 1;
  std::vector<std::int64_t> input, weight, output;
  std::vector<std::int64_t> stride, padding, dilation;
  std::vector<std::int64_t> weight_strides, weight_gradient_strides;  ///< how they lie in memory, in elements

  bool operator==(const ConvolutionUse&) const = default;
};

/// What a node computes: one of aten::convolution or aten::convolution_backward, or what they were replaced by. None for any other
/// op, a transposed one, and where nothing is to be computed.
std::optional<ConvolutionUse> convolution_use(const Graph& graph, const Node& node);

/// How an engine wants to run it. The same for forward and backward, but for the workspace.
struct ConvolutionLayout {
  std::int64_t input_block = 1;  ///< 1: plain
  std::int64_t output_block = 1;
  std::size_t workspace = 0;  ///< bytes
};

/// The engine's answer; none where it has no kernel of its own for that convolution.
using ChooseConvolution = std::function<std::optional<ConvolutionLayout>(const ConvolutionUse&)>;

/// Replaces the convolutions that `choose` knows by the engine's own, keeps their results blocked through fused kernels and max
/// pooling, and puts reorders where something else reads them. Every other node and the graph's outputs see the layouts they had. Pure but for
/// `choose`.
Graph assign_layouts(Graph graph, const ChooseConvolution& choose);

/// Geometry of `plain` (sizes [N, C, spatial…], C a multiple of `block`) in blocks of channels; `plain` itself for a block of 1.
Geometry blocked(const Geometry& plain, std::int64_t block);

/// `kernel` on values that changed from dense geometries to blocks: `from[i]` is what access i touches had been, null for one that
/// stays. None where its accesses can't be told apart by channels.
std::optional<Kernel> reblocked(const Kernel& kernel, const std::vector<const Geometry*>& from, std::int64_t block);

}  // namespace spool
