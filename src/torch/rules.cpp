#include "src/torch/rules.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>

namespace spool::torch_side {
namespace {

const RuleTable& rules() {
  static const auto* table = [] {
    auto* filled = new RuleTable();
    add_attention_rules(*filled);
    add_convolution_rules(*filled);
    add_factory_rules(*filled);
    add_foreach_rules(*filled);
    add_index_rules(*filled);
    add_loss_rules(*filled);
    add_normalisation_rules(*filled);
    add_optimiser_rules(*filled);
    add_pointwise_rules(*filled);
    add_pooling_rules(*filled);
    add_reduction_rules(*filled);
    add_write_rules(*filled);
    return filled;
  }();
  return *table;
}

}  // namespace

Rule find_rule(std::string_view op) {
  const auto it = rules().find(op);
  return it == rules().end() ? nullptr : it->second;
}

std::vector<std::string_view> ruled_ops() {
  std::vector<std::string_view> names;
  for (const auto& [name, rule] : rules()) {
    names.push_back(name);
  }
  return names;
}

at::Tensor make_meta(c10::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format) {
  return at::detail::empty_meta(sizes, dtype, format);
}

at::Tensor make_meta_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype) {
  return at::detail::empty_strided_meta(sizes, strides, dtype);
}

at::Tensor make_meta_like(const at::Tensor& tensor, std::optional<at::ScalarType> dtype, at::MemoryFormat format) {
  const auto type = dtype.value_or(tensor.scalar_type());
  if (format != at::MemoryFormat::Preserve) {
    return make_meta(tensor.sizes(), type, format);
  }
  if (tensor.is_non_overlapping_and_dense()) {
    return make_meta_strided(tensor.sizes(), tensor.strides(), type);
  }
  return make_meta_strided(tensor.sizes(), at::infer_dense_strides(tensor.sizes(), tensor.strides()), type);
}

at::Tensor make_elementwise(std::initializer_list<at::Tensor> inputs, at::ScalarType dtype) {
  broadcast_shape(inputs);
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).allow_cpu_scalars(true).declare_static_dtype(dtype).add_owned_output(at::Tensor());
  for (const auto& input : inputs) {
    config.add_owned_const_input(input);
  }
  return config.build().output();
}

std::vector<int64_t> broadcast_shape(std::initializer_list<at::Tensor> tensors) {
  std::vector<int64_t> shape;
  for (const auto& tensor : tensors) {
    const auto sizes = tensor.sizes();
    if (sizes.size() > shape.size()) {
      shape.insert(shape.begin(), sizes.size() - shape.size(), 1);
    }
    const size_t skip = shape.size() - sizes.size();
    for (size_t i = 0; i < sizes.size(); ++i) {
      auto& size = shape[skip + i];
      expect(size == sizes[i] || size == 1 || sizes[i] == 1);
      size = size == 1 ? sizes[i] : size;
    }
  }
  return shape;
}

int64_t wrapped(int64_t dim, int64_t rank) {
  rank = rank == 0 ? 1 : rank;
  expect(dim >= -rank && dim < rank);
  return dim < 0 ? dim + rank : dim;
}

void resize_out(const at::Tensor& out, c10::IntArrayRef sizes) { at::native::resize_output(out, sizes); }

}  // namespace spool::torch_side
