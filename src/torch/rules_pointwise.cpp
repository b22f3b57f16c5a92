// Element-wise ops that have no meta function of their own. TensorIterator decides broadcasting, dtype and strides, as it does when they run.
#include "src/torch/rules.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/clamp_min_meta_dispatch.h>
#include <ATen/ops/ne_meta_dispatch.h>
#include <ATen/ops/sub_meta_dispatch.h>

#include <array>

namespace spool::torch_side {
namespace {

// A result with the iterator's own choice of dtype.
Results unary(const at::Tensor& self) {
  at::Tensor out;
  return {at::TensorIterator::unary_op(out, self).output()};
}

Results binary(const at::Tensor& left, const at::Tensor& right) {
  broadcast_shape({left, right});
  at::Tensor out;
  return {at::TensorIterator::binary_op(out, left, right).output()};
}

// The last argument is the out= tensor, which is resized and restrided as the op would.
Results into_out(const at::Tensor& out, std::initializer_list<at::Tensor> inputs) {
  broadcast_shape(inputs);
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).allow_cpu_scalars(true).add_owned_output(out);
  for (const auto& input : inputs) {
    config.add_owned_const_input(input);
  }
  config.build();
  return {out};
}

at::ScalarType common_dtype(const at::Tensor& left, const at::Tensor& right) {
  return at::native::result_type(std::array<at::Tensor, 2>{left, right});
}

bool is_real_floating(const at::Tensor& tensor) { return at::isFloatingType(tensor.scalar_type()); }

// where.self(condition, self, other)
std::optional<Results> where(const Arguments& arguments) {
  const auto& condition = arguments.tensor(0);
  // A condition of bytes is deprecated; the op itself says so.
  expect(condition.scalar_type() == at::kBool);
  const auto dtype = common_dtype(arguments.tensor(1), arguments.tensor(2));
  return Results{make_elementwise({condition, arguments.tensor(1), arguments.tensor(2)}, dtype)};
}

std::optional<Results> where_out(const Arguments& arguments) {
  const auto& out = arguments.tensor(3);
  expect(arguments.tensor(0).scalar_type() == at::kBool);
  expect(out.scalar_type() == common_dtype(arguments.tensor(1), arguments.tensor(2)));
  return into_out(out, {arguments.tensor(0), arguments.tensor(1), arguments.tensor(2)});
}

// Ops of one tensor, and maybe numbers, whose result has its dtype.
std::optional<Results> floating_only(const Arguments& arguments) {
  expect(is_real_floating(arguments.tensor(0)));
  return unary(arguments.tensor(0));
}

std::optional<Results> relu(const Arguments& arguments) {
  expect(arguments.tensor(0).scalar_type() != at::kBool && !arguments.tensor(0).is_complex());
  return Results{at::meta::clamp_min(arguments.tensor(0), 0)};
}

// hardtanh(self, min_val, max_val)
std::optional<Results> hardtanh(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  expect(is_real_floating(self) && arguments[1].toScalar().toDouble() <= arguments[2].toScalar().toDouble());
  return unary(self);
}

std::optional<Results> is_nan(const Arguments& arguments) {
  return Results{at::meta::ne(arguments.tensor(0), arguments.tensor(0))};
}

// angle(self): of complex numbers it is real, of integers floating
std::optional<Results> angle(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  if (self.is_complex()) {
    return Results{make_elementwise({self}, c10::toRealValueType(self.scalar_type()))};
  }
  at::Tensor out;
  return Results{at::TensorIterator::unary_float_op(out, self).output()};
}

std::optional<Results> logit(const Arguments& arguments) {
  at::Tensor out;
  return Results{at::TensorIterator::unary_float_op(out, arguments.tensor(0)).output()};
}

std::optional<Results> of_two(const Arguments& arguments) { return binary(arguments.tensor(0), arguments.tensor(1)); }

std::optional<Results> shift_by_number(const Arguments& arguments) {
  expect(at::isIntegralType(arguments.tensor(0).scalar_type(), /*includeBool=*/false) && arguments[1].isInt());
  return unary(arguments.tensor(0));
}

std::optional<Results> shift(const Arguments& arguments) {
  expect(at::isIntegralType(arguments.tensor(0).scalar_type(), false) &&
         at::isIntegralType(arguments.tensor(1).scalar_type(), false));
  return binary(arguments.tensor(0), arguments.tensor(1));
}

// rsub.Tensor(self, other, alpha)
std::optional<Results> rsub(const Arguments& arguments) {
  return Results{at::meta::sub(arguments.tensor(1), arguments.tensor(0), arguments[2].toScalar())};
}

// addr(self, vec1, vec2, *, beta, alpha): a matrix plus the outer product of two vectors
std::optional<Results> outer_sum(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &left = arguments.tensor(1), &right = arguments.tensor(2);
  expect(left.dim() == 1 && right.dim() == 1);
  const auto rows = make_meta_strided({left.numel(), 1}, {left.stride(0), 1}, left.scalar_type());
  const std::vector<int64_t> sizes{left.numel(), right.numel()};
  expect(broadcast_shape({self, rows, right}) == sizes);
  const auto dtype = at::native::result_type(std::array<at::Tensor, 3>{self, left, right});
  expect(dtype != at::kBool);
  return Results{make_elementwise({self.expand(sizes), rows, right}, dtype)};
}

// Gradients of activations: grad_output and self (in either order), then numbers.
std::optional<Results> activation_gradient(const Arguments& arguments) {
  expect(is_real_floating(arguments.tensor(0)) && arguments.tensor(0).scalar_type() == arguments.tensor(1).scalar_type());
  return binary(arguments.tensor(0), arguments.tensor(1));
}

// log_sigmoid_forward(self): the result and a buffer for the gradient
std::optional<Results> log_sigmoid(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  expect(is_real_floating(self));
  return Results{make_meta(self.sizes(), self.scalar_type()), make_meta(self.sizes(), self.scalar_type())};
}

std::optional<Results> log_sigmoid_out(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  expect(is_real_floating(self));
  for (const size_t i : {1, 2}) {
    expect(arguments.tensor(i).scalar_type() == self.scalar_type());
    resize_out(arguments.tensor(i), self.sizes());
  }
  return Results{arguments.tensor(1), arguments.tensor(2)};
}

// log_sigmoid_backward(grad_output, self, buffer)
std::optional<Results> log_sigmoid_gradient(const Arguments& arguments) {
  const auto& gradient = arguments.tensor(0);
  expect(is_real_floating(gradient));
  return Results{make_elementwise({arguments.tensor(2), gradient, arguments.tensor(1)}, gradient.scalar_type())};
}

// _prelu_kernel(self, weight)
std::optional<Results> prelu(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  expect(self.scalar_type() == arguments.tensor(1).scalar_type() && is_real_floating(self));
  expect(broadcast_shape({self, arguments.tensor(1)}) == self.sizes().vec());
  return Results{make_meta_like(self)};
}

// _prelu_kernel_backward(grad_output, self, weight)
std::optional<Results> prelu_gradient(const Arguments& arguments) {
  const auto& self = arguments.tensor(1);
  // Both results are written by one iteration over the three tensors.
  at::TensorIteratorConfig config;
  broadcast_shape({arguments.tensor(0), self, arguments.tensor(2)});
  config.check_all_same_dtype(false)
      .declare_static_dtype(self.scalar_type())
      .add_owned_output(at::Tensor())
      .add_owned_output(at::Tensor());
  config.add_owned_const_input(self).add_owned_const_input(arguments.tensor(2)).add_owned_const_input(arguments.tensor(0));
  const auto iterator = config.build();
  return Results{iterator.output(0), iterator.output(1)};
}

// glu_backward(grad_output, self, dim)
std::optional<Results> glu_gradient(const Arguments& arguments) {
  const auto& self = arguments.tensor(1);
  expect(self.dim() > 0 && self.scalar_type() == arguments.tensor(0).scalar_type());
  auto half = self.sizes().vec();
  auto& size = half[static_cast<size_t>(wrapped(arguments.integer(2), self.dim()))];
  expect(size % 2 == 0);
  size /= 2;
  expect(arguments.tensor(0).sizes() == c10::IntArrayRef(half));
  return Results{make_meta(self.sizes(), self.scalar_type())};
}

// Unary ops given only as out= overloads: (self, …numbers…, out)
std::optional<Results> same_dtype_out(const Arguments& arguments) {
  auto out = arguments.tensor(arguments.size() - 1);
  expect(at::canCast(arguments.tensor(0).scalar_type(), out.scalar_type()));
  at::TensorIterator::unary_op(out, arguments.tensor(0));
  return Results{out};
}

// The result's dtype is decided by whoever made `out`.
std::optional<Results> unary_any_out(const Arguments& arguments) {
  return into_out(arguments.tensor(arguments.size() - 1), {arguments.tensor(0)});
}

// abs.out of complex numbers is real.
std::optional<Results> abs_out(const Arguments& arguments) {
  expect(arguments.tensor(0).scalar_type() != at::kBool);
  return arguments.tensor(0).is_complex() ? unary_any_out(arguments) : same_dtype_out(arguments);
}

std::optional<Results> binary_any_out(const Arguments& arguments) {
  return into_out(arguments.tensor(2), {arguments.tensor(0), arguments.tensor(1)});
}

std::optional<Results> binary_same_out(const Arguments& arguments) {
  auto out = arguments.tensor(2);
  broadcast_shape({arguments.tensor(0), arguments.tensor(1)});
  at::TensorIterator::binary_op(out, arguments.tensor(0), arguments.tensor(1));
  return Results{out};
}

// complex.out and polar.out(real, imaginary, out)
std::optional<Results> complex_out(const Arguments& arguments) {
  const auto dtype = arguments.tensor(0).scalar_type();
  expect(dtype == arguments.tensor(1).scalar_type() && (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf));
  expect(arguments.tensor(2).scalar_type() == at::toComplexType(dtype));
  return binary_any_out(arguments);
}

}  // namespace

void add_pointwise_rules(RuleTable& table) {
  table["aten::where.self"] = where;
  table["aten::where.self_out"] = where_out;
  table["aten::relu"] = relu;
  table["aten::hardtanh"] = hardtanh;
  table["aten::hardtanh_backward"] = activation_gradient;
  table["aten::hardswish"] = floating_only;
  table["aten::hardswish_backward"] = activation_gradient;
  table["aten::isnan"] = is_nan;
  table["aten::angle"] = angle;
  table["aten::logit"] = logit;
  table["aten::frexp.Tensor_out"] = [](const Arguments& arguments) -> std::optional<Results> {
    const auto &self = arguments.tensor(0), &mantissa = arguments.tensor(1), &exponent = arguments.tensor(2);
    expect(at::isFloatingType(self.scalar_type()) && mantissa.scalar_type() == self.scalar_type());
    expect(exponent.scalar_type() == at::kInt);
    at::TensorIteratorConfig()
        .add_owned_output(mantissa)
        .add_owned_output(exponent)
        .add_owned_const_input(self)
        .check_all_same_dtype(false)
        .build();
    return Results{mantissa, exponent};
  };
  table["aten::floor_divide"] = of_two;
  table["aten::floor_divide.out"] = binary_same_out;
  table["aten::remainder.Scalar_Tensor"] = [](const Arguments& arguments) -> std::optional<Results> {
    const auto& other = arguments.tensor(1);
    auto state = at::native::update_result_type_state(other, {});
    state = at::native::update_result_type_state(arguments[0].toScalar(), state);
    return Results{make_elementwise({other}, at::native::result_type(state))};
  };
  table["aten::addr"] = outer_sum;
  table["aten::rsub.Tensor"] = rsub;
  table["aten::__lshift__.Scalar"] = shift_by_number;
  table["aten::__rshift__.Scalar"] = shift_by_number;
  table["aten::__lshift__.Tensor"] = shift;
  table["aten::__rshift__.Tensor"] = shift;
  table["aten::log_sigmoid_forward"] = log_sigmoid;
  table["aten::log_sigmoid_forward.output"] = log_sigmoid_out;
  table["aten::log_sigmoid_backward"] = log_sigmoid_gradient;
  table["aten::_prelu_kernel"] = prelu;
  table["aten::_prelu_kernel_backward"] = prelu_gradient;
  table["aten::glu_backward"] = glu_gradient;
  table["aten::abs.out"] = abs_out;
  table["aten::angle.out"] = unary_any_out;
  table["aten::conj_physical.out"] = same_dtype_out;
  table["aten::hardswish.out"] = same_dtype_out;
  table["aten::nan_to_num.out"] = [](const Arguments& arguments) -> std::optional<Results> {
    expect(arguments.tensor(0).scalar_type() == arguments.tensor(4).scalar_type());
    return same_dtype_out(arguments);
  };
  table["aten::logical_not.out"] = unary_any_out;
  table["aten::logical_and.out"] = binary_any_out;
  table["aten::logical_or.out"] = binary_any_out;
  table["aten::logical_xor.out"] = binary_any_out;
  table["aten::complex.out"] = complex_out;
  table["aten::polar.out"] = complex_out;
}

}  // namespace spool::torch_side
