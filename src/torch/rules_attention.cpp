// Attention and dropout.
#include "src/torch/rules.h"

#include <ATen/OpMathType.h>

namespace spool::torch_side {
namespace {

// The kernels work on (batch, length, heads, width) and give back (batch, heads, length, width): a transposed view of their result.
at::Tensor heads_first(const at::Tensor& like, at::ScalarType dtype, int64_t width) {
  const int64_t batch = like.size(0), heads = like.size(1), length = like.size(2);
  return make_meta_strided({batch, heads, length, width}, {length * heads * width, width, heads * width, 1}, dtype);
}

void check_operands(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& bias) {
  const auto dtype = query.scalar_type();
  expect(at::isFloatingType(dtype) && key.scalar_type() == dtype && value.scalar_type() == dtype);
  expect(query.dim() == 4 && key.dim() == 4 && value.dim() == 4);
  expect(query.size(3) == value.size(3) && key.size(3) == value.size(3));
  expect(query.size(0) == key.size(0) && key.size(0) == value.size(0) && key.size(2) == value.size(2) &&
         key.size(1) == value.size(1));
  expect(key.size(1) > 0 && query.size(1) % key.size(1) == 0);
  expect(!bias.defined() || (bias.dim() == 2 || bias.dim() == 4));
  expect(!bias.defined() || bias.scalar_type() == dtype || bias.scalar_type() == at::kFloat);
}

// _scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, *, attn_mask, scale)
std::optional<Results> flash_attention(const Arguments& arguments) {
  const auto& query = arguments.tensor(0);
  check_operands(query, arguments.tensor(1), arguments.tensor(2), arguments.optional_tensor(5));
  expect(arguments.real(3) == 0.0);
  const auto statistics = at::toOpMathType(query.scalar_type());
  const int64_t batch = query.size(0), heads = query.size(1), length = query.size(2);
  return Results{heads_first(query, query.scalar_type(), query.size(3)),
                 make_meta_strided({batch, heads, length}, {length * heads, 1, heads}, statistics)};
}

// …_backward(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask, scale)
std::optional<Results> flash_attention_gradient(const Arguments& arguments) {
  const auto& query = arguments.tensor(1);
  const auto &key = arguments.tensor(2), &value = arguments.tensor(3);
  if (!arguments.tensor(0).defined()) {
    return Results{nothing(), nothing(), nothing()};
  }
  check_operands(query, key, value, arguments.optional_tensor(8));
  expect(arguments.tensor(0).sizes() == query.sizes());
  const auto dtype = query.scalar_type();
  return Results{heads_first(query, dtype, query.size(3)), heads_first(key, dtype, key.size(3)),
                 heads_first(value, dtype, value.size(3))};
}

// native_dropout(input, p, train)
std::optional<Results> dropout(const Arguments& arguments) {
  const auto& input = arguments.tensor(0);
  if (input.numel() == 0) {
    return Results{input, make_meta_like(input)};
  }
  expect(arguments.real(1) >= 0 && arguments.real(1) <= 1);
  return Results{make_meta_like(input), make_meta_like(input, at::kBool)};
}

// native_dropout_backward(grad_output, mask, scale)
std::optional<Results> dropout_gradient(const Arguments& arguments) {
  const auto& gradient = arguments.tensor(0);
  expect(at::isFloatingType(gradient.scalar_type()) && arguments.tensor(1).scalar_type() == at::kBool);
  return Results{make_elementwise({gradient, arguments.tensor(1)}, gradient.scalar_type())};
}

}  // namespace

void add_attention_rules(RuleTable& table) {
  table["aten::_scaled_dot_product_flash_attention_for_cpu"] = flash_attention;
  table["aten::_scaled_dot_product_flash_attention_for_cpu_backward"] = flash_attention_gradient;
  table["aten::native_dropout"] = dropout;
  table["aten::native_dropout_backward"] = dropout_gradient;
}

}  // namespace spool::torch_side
