// Composite ops that ATen takes apart differently on key XLA than on the CPU, put right: the same ops run as in eager, so results are
// equal to the last bit. Registered above autograd, as composites are, and for the key itself (inference mode).
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/tensor_split_native.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

namespace spool::torch_side {
namespace {

/// The CPU flattens contiguous input with a bias to two dimensions and adds the bias in the product; for XLA tensors ATen doesn't.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const bool flatten =
      bias.has_value() && bias->defined() && input.dim() != 0 && input.dim() != 2 && input.is_contiguous() && weight.dim() == 2;
  if (!flatten) {
    return at::native::linear(input, weight, bias);
  }
  const auto sizes = input.sizes();
  const at::Tensor rows = input.reshape({c10::multiply_integers(sizes.slice(0, sizes.size() - 1)), sizes.back()});
  const at::Tensor product = at::addmm(*bias, rows, weight.t());
  auto shape = sizes.vec();
  shape.back() = product.size(1);
  return product.view(shape);
}

/// A mask of booleans as numbers to add: 0 where attention is allowed, -inf elsewhere.
std::optional<at::Tensor> additive_mask(const std::optional<at::Tensor>& mask, at::ScalarType dtype) {
  if (!mask.has_value() || !mask->defined() || mask->scalar_type() != at::kBool) {
    return mask;
  }
  return at::zeros_like(*mask, mask->options().dtype(dtype))
      .masked_fill_(mask->logical_not(), -std::numeric_limits<double>::infinity());
}

/// Attention by the kernel that the CPU would choose: its flash kernel where that fits, the plain composition elsewhere.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, double dropout, bool causal, std::optional<double> scale,
                     bool grouped) {
  constexpr std::int64_t flash = 1;  // at::SDPBackend::flash_attention
  if (at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout, causal, scale, grouped) != flash) {
    return at::native::scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale, grouped);
  }
  return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal,
                                                                     additive_mask(mask, query.scalar_type()), scale));
}

/// Where to split is read on the host, wherever the indices are.
std::vector<at::Tensor> tensor_split(const at::Tensor& self, const at::Tensor& indices_or_sections, std::int64_t dim) {
  return at::native::tensor_split(self, indices_or_sections.cpu(), dim);
}

void register_composites(torch::Library& m) {
  m.impl("tensor_split.tensor_indices_or_sections", &tensor_split);
  m.impl("linear", &linear);
  m.impl("scaled_dot_product_attention", &attention);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, XLA, m) { register_composites(m); }
TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) { register_composites(m); }

}  // namespace spool::torch_side
