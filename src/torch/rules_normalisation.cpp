// Batch, layer and group normalisation and their gradients.
#include "src/torch/rules.h"

#include <algorithm>
#include <array>

namespace spool::torch_side {
namespace {

// Statistics of reduced-precision data are kept in float when the parameters are float.
at::ScalarType statistics_dtype(const at::Tensor& input, std::initializer_list<at::Tensor> parameters) {
  const bool reduced = input.scalar_type() == at::kBFloat16 || input.scalar_type() == at::kHalf;
  bool mixed = false;
  for (const auto& parameter : parameters) {
    mixed = mixed || (reduced && parameter.defined() && parameter.scalar_type() == at::kFloat);
    expect(!parameter.defined() || parameter.scalar_type() == input.scalar_type() ||
           (reduced && parameter.scalar_type() == at::kFloat));
  }
  return mixed ? at::kFloat : input.scalar_type();
}

void check_vector(const at::Tensor& tensor, int64_t size) { expect(!tensor.defined() || (tensor.numel() == size)); }

std::array<bool, 3> mask(const Arguments& arguments, size_t i) {
  const auto list = arguments[i].toBoolList();
  return {list.get(0), list.get(1), list.get(2)};
}

// The layout of batch norm's result: dense data keeps its order, anything else is put in the nearest standard one.
at::Tensor like_batch(const at::Tensor& input) { return make_meta_like(input, std::nullopt, input.suggest_memory_format()); }

struct Batch {
  at::Tensor input, weight, bias, mean, variance;
  at::ScalarType statistics;
};

Batch read_batch(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& mean,
                 const at::Tensor& variance) {
  expect(input.dim() >= 2);
  for (const auto& parameter : {weight, bias, mean, variance}) {
    check_vector(parameter, input.size(1));
  }
  return {input, weight, bias, mean, variance, statistics_dtype(input, {weight, bias, mean, variance})};
}

Results batch_results(const Batch& batch, bool training) {
  expect(training || (batch.mean.defined() && batch.variance.defined()));
  const int64_t kept = training ? batch.input.size(1) : 0;
  return {like_batch(batch.input), make_meta({kept}, batch.statistics), make_meta({kept}, batch.statistics)};
}

// native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps), also _native_batch_norm_legit
std::optional<Results> batch_norm(const Arguments& arguments) {
  const auto batch = read_batch(arguments.tensor(0), arguments.optional_tensor(1), arguments.optional_tensor(2),
                                arguments.optional_tensor(3), arguments.optional_tensor(4));
  return batch_results(batch, arguments.boolean(5));
}

// _native_batch_norm_legit.no_stats(input, weight, bias, training, momentum, eps)
std::optional<Results> batch_norm_no_statistics(const Arguments& arguments) {
  const auto batch =
      read_batch(arguments.tensor(0), arguments.optional_tensor(1), arguments.optional_tensor(2), at::Tensor(), at::Tensor());
  return batch_results(batch, arguments.boolean(3));
}

// _batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum, eps)
std::optional<Results> batch_norm_with_update(const Arguments& arguments) {
  const auto batch = read_batch(arguments.tensor(0), arguments.optional_tensor(1), arguments.optional_tensor(2),
                                arguments.tensor(3), arguments.tensor(4));
  auto results = batch_results(batch, /*training=*/true);
  results.push_back(make_meta({0}, at::kByte));
  return results;
}

// Writes the results to the out= arguments that follow the others.
std::optional<Results> batch_norm_out(const Arguments& arguments) {
  const auto results = *batch_norm(arguments);
  Results outs;
  for (size_t i = 0; i < results.size(); ++i) {
    const auto& out = arguments.tensor(8 + i);
    expect(out.scalar_type() == results[i].toTensor().scalar_type());
    resize_out(out, results[i].toTensor().sizes());
    outs.push_back(out);
  }
  return outs;
}

Results batch_gradients(const Batch& batch, const at::Tensor& gradient, const std::array<bool, 3>& wanted) {
  expect(gradient.sizes() == batch.input.sizes());
  Results results{nothing(), nothing(), nothing()};
  if (wanted[0]) {
    results[0] = like_batch(batch.input);
  }
  for (const size_t i : {1, 2}) {
    if (wanted[i]) {
      results[i] = make_meta({batch.input.size(1)}, batch.statistics);
    }
  }
  return results;
}

// native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask)
std::optional<Results> batch_norm_backward(const Arguments& arguments) {
  const auto batch = read_batch(arguments.tensor(1), arguments.optional_tensor(2), at::Tensor(), arguments.optional_tensor(3),
                                arguments.optional_tensor(4));
  return batch_gradients(batch, arguments.tensor(0), mask(arguments, 9));
}

// batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask, reserve)
std::optional<Results> batch_norm_backward_reserve(const Arguments& arguments) { return batch_norm_backward(arguments); }

// Splits the input's sizes at the normalised ones; gives the sizes of the statistics.
std::vector<int64_t> layer_statistics(const at::Tensor& input, const std::vector<int64_t>& shape) {
  expect(!shape.empty() && input.dim() >= static_cast<int64_t>(shape.size()));
  auto sizes = input.sizes().vec();
  const size_t axis = sizes.size() - shape.size();
  expect(std::equal(shape.begin(), shape.end(), sizes.begin() + static_cast<std::ptrdiff_t>(axis)));
  std::fill(sizes.begin() + static_cast<std::ptrdiff_t>(axis), sizes.end(), 1);
  return sizes;
}

// native_layer_norm(input, normalized_shape, weight, bias, eps)
std::optional<Results> layer_norm(const Arguments& arguments) {
  const auto& input = arguments.tensor(0);
  const auto shape = arguments.integers(1);
  const auto statistics = layer_statistics(input, shape);
  const auto weight = arguments.optional_tensor(2);
  const auto bias = arguments.optional_tensor(3);
  for (const auto& parameter : {weight, bias}) {
    expect(!parameter.defined() || parameter.sizes() == c10::IntArrayRef(shape));
  }
  const auto dtype = statistics_dtype(input, {weight, bias});
  return Results{make_meta(input.sizes(), input.scalar_type()), make_meta(statistics, dtype), make_meta(statistics, dtype)};
}

// native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)
std::optional<Results> layer_norm_backward(const Arguments& arguments) {
  const auto& input = arguments.tensor(1);
  const auto shape = arguments.integers(2);
  layer_statistics(input, shape);
  const auto wanted = mask(arguments, 7);
  Results results{nothing(), nothing(), nothing()};
  if (wanted[0]) {
    results[0] = make_meta(input.sizes(), input.scalar_type());
  }
  for (const size_t i : {1, 2}) {
    if (wanted[i]) {
      // The gradient of a parameter that is not there is made like the scale's.
      const auto weight = arguments.optional_tensor(5);
      const auto dtype = weight.defined() ? weight.scalar_type() : input.scalar_type();
      results[i] = make_meta(shape, dtype);
    }
  }
  return results;
}

// native_group_norm(input, weight, bias, N, C, HxW, group, eps)
std::optional<Results> group_norm(const Arguments& arguments) {
  const auto& input = arguments.tensor(0);
  const auto weight = arguments.optional_tensor(1);
  const auto bias = arguments.optional_tensor(2);
  const int64_t batch = arguments.integer(3), channels = arguments.integer(4), pixels = arguments.integer(5),
                groups = arguments.integer(6);
  expect(groups > 0 && channels % groups == 0 && input.numel() == batch * channels * pixels);
  expect(input.dim() >= 2 && input.size(0) == batch && input.size(1) == channels);
  for (const auto& parameter : {weight, bias}) {
    expect(!parameter.defined() || (parameter.dim() == 1 && parameter.numel() == channels));
  }
  const auto dtype = statistics_dtype(input, {weight, bias});
  return Results{make_meta(input.sizes(), input.scalar_type(), input.suggest_memory_format()), make_meta({batch, groups}, dtype),
                 make_meta({batch, groups}, dtype)};
}

// native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)
std::optional<Results> group_norm_backward(const Arguments& arguments) {
  const auto& input = arguments.tensor(1);
  const auto weight = arguments.optional_tensor(4);
  const int64_t channels = arguments.integer(6), groups = arguments.integer(8);
  expect(arguments.tensor(0).sizes() == input.sizes() && groups > 0 && channels % groups == 0);
  const auto wanted = mask(arguments, 9);
  const auto dtype = weight.defined() ? weight.scalar_type() : input.scalar_type();
  Results results{nothing(), nothing(), nothing()};
  if (wanted[0]) {
    results[0] = make_meta(input.sizes(), input.scalar_type(), input.suggest_memory_format());
  }
  for (const size_t i : {1, 2}) {
    if (wanted[i]) {
      results[i] = make_meta({channels}, dtype);
    }
  }
  return results;
}

}  // namespace

void add_normalisation_rules(RuleTable& table) {
  table["aten::native_batch_norm"] = batch_norm;
  table["aten::native_batch_norm.out"] = batch_norm_out;
  table["aten::_native_batch_norm_legit"] = batch_norm;
  table["aten::_native_batch_norm_legit.out"] = batch_norm_out;
  table["aten::_native_batch_norm_legit.no_stats"] = batch_norm_no_statistics;
  table["aten::_batch_norm_with_update"] = batch_norm_with_update;
  table["aten::native_batch_norm_backward"] = batch_norm_backward;
  table["aten::batch_norm_backward"] = batch_norm_backward_reserve;
  table["aten::native_layer_norm"] = layer_norm;
  table["aten::native_layer_norm_backward"] = layer_norm_backward;
  table["aten::native_group_norm"] = group_norm;
  table["aten::native_group_norm_backward"] = group_norm_backward;
}

}  // namespace spool::torch_side
