// The table of pointwise ops and reductions. Each row follows ATen's CPU kernel of that op, in its order of operations.
#include "src/ops/pointwise.h"

#include <limits>
#include <numbers>
#include <string>
#include <unordered_map>

#include "src/ops/emitter.h"

namespace spool {
namespace {

using E = Emitter;
using Id = Emitter::Id;
using K = KernelOp;

// --- one operand -------------------------------------------------------------------------------------------------------

/// Integers become floating point first.
template <K kernel_op>
void unary_float(E& e) {
  const DType dtype = e.common_float({0});
  e.result(e.op(kernel_op, math_type(dtype), e.value(0, dtype)));
}

/// For any type.
template <K kernel_op>
void unary(E& e) {
  const DType dtype = e.common({0});
  if (dtype == DType::Bool) {
    throw NotLowered{};
  }
  e.result(e.op(kernel_op, math_type(dtype), e.value(0, dtype)));
}

/// For floating point; integers are left to the library, where they are copies.
template <K kernel_op>
void rounding(E& e) {
  const DType dtype = e.common({0});
  if (!is_floating(dtype) || e.has(1)) {
    throw NotLowered{};
  }
  e.result(e.op(kernel_op, math_type(dtype), e.value(0, dtype)));
}

Id logistic(E& e, DType m, Id x) {
  const Id one = e.constant(m, 1);
  return e.op(K::Div, m, one, e.op(K::Add, m, one, e.op(K::Exp, m, e.op(K::Neg, m, x))));
}

void sigmoid(E& e) {
  const DType dtype = e.common_float({0});
  e.result(logistic(e, math_type(dtype), e.value(0, dtype)));
}

void sigmoid_backward(E& e) {
  const DType dtype = e.common({0, 1});
  const DType m = math_type(dtype);
  const Id y = e.value(1, dtype);
  e.result(e.op(K::Mul, m, e.op(K::Mul, m, e.value(0, dtype), e.op(K::Sub, m, e.constant(m, 1), y)), y));
}

void tanh_backward(E& e) {
  const DType dtype = e.common({0, 1});
  const DType m = math_type(dtype);
  const Id y = e.value(1, dtype);
  e.result(e.op(K::Mul, m, e.value(0, dtype), e.op(K::Sub, m, e.constant(m, 1), e.op(K::Mul, m, y, y))));
}

void silu(E& e) {
  const DType dtype = e.common({0});
  const DType m = math_type(dtype);
  const Id x = e.value(0, dtype);
  const Id one = e.constant(m, 1);
  e.result(e.op(K::Div, m, x, e.op(K::Add, m, one, e.op(K::Exp, m, e.op(K::Neg, m, x)))));
}

void silu_backward(E& e) {
  const DType dtype = e.common({0, 1});
  const DType m = math_type(dtype);
  const Id x = e.value(1, dtype);
  const Id one = e.constant(m, 1);
  const Id s = logistic(e, m, x);
  const Id inner = e.op(K::Add, m, one, e.op(K::Mul, m, x, e.op(K::Sub, m, one, s)));
  e.result(e.op(K::Mul, m, e.op(K::Mul, m, e.value(0, dtype), s), inner));
}

constexpr double tanh_beta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi * 2 * 0.5;
constexpr double tanh_kappa = 0.044715;

void gelu(E& e) {
  const DType dtype = e.common({0});
  const DType m = math_type(dtype);
  const Id x = e.value(0, dtype);
  const Id one = e.constant(m, 1);
  const Id half = e.constant(m, 0.5);
  if (e.text(1) == "tanh") {
    const Id cube = e.op(K::Mul, m, e.op(K::Mul, m, x, x), x);
    const Id inner =
        e.op(K::Mul, m, e.constant(m, tanh_beta), e.op(K::Add, m, x, e.op(K::Mul, m, e.constant(m, tanh_kappa), cube)));
    e.result(e.op(K::Mul, m, e.op(K::Mul, m, half, x), e.op(K::Add, m, one, e.op(K::Tanh, m, inner))));
    return;
  }
  const Id erf = e.op(K::Erf, m, e.op(K::Mul, m, x, e.constant(m, std::numbers::sqrt2 * 0.5)));
  e.result(e.op(K::Mul, m, e.op(K::Mul, m, x, half), e.op(K::Add, m, one, erf)));
}

void gelu_backward(E& e) {
  const DType dtype = e.common({0, 1});
  const DType m = math_type(dtype);
  const Id dy = e.value(0, dtype);
  const Id x = e.value(1, dtype);
  const Id one = e.constant(m, 1);
  const Id half = e.constant(m, 0.5);
  if (e.text(2) == "tanh") {
    const Id beta = e.constant(m, tanh_beta);
    const Id square = e.op(K::Mul, m, x, x);
    const Id cube = e.op(K::Mul, m, x, square);
    const Id inner = e.op(K::Mul, m, beta, e.op(K::Add, m, x, e.op(K::Mul, m, e.constant(m, tanh_kappa), cube)));
    const Id t = e.op(K::Tanh, m, inner);
    const Id left = e.op(K::Mul, m, half, x);
    const Id left_derivative = e.op(K::Mul, m, half, e.op(K::Add, m, one, t));
    const Id tanh_derivative = e.op(K::Sub, m, one, e.op(K::Mul, m, t, t));
    const Id inner_derivative =
        e.op(K::Mul, m, beta, e.op(K::Add, m, one, e.op(K::Mul, m, e.constant(m, 3 * tanh_kappa), square)));
    const Id right = e.op(K::Mul, m, e.op(K::Mul, m, left, tanh_derivative), inner_derivative);
    e.result(e.op(K::Mul, m, dy, e.op(K::Add, m, left_derivative, right)));
    return;
  }
  const Id erf = e.op(K::Erf, m, e.op(K::Mul, m, x, e.constant(m, std::numbers::sqrt2 * 0.5)));
  const Id cdf = e.op(K::Mul, m, half, e.op(K::Add, m, one, erf));
  const Id exponent = e.op(K::Mul, m, e.op(K::Mul, m, x, x), e.constant(m, -0.5));
  const Id pdf = e.op(K::Mul, m, e.constant(m, std::numbers::inv_sqrtpi * std::numbers::sqrt2 * 0.5), e.op(K::Exp, m, exponent));
  e.result(e.op(K::Mul, m, dy, e.op(K::Add, m, cdf, e.op(K::Mul, m, x, pdf))));
}

void relu(E& e) {
  const DType dtype = e.common({0});
  const DType m = math_type(dtype);
  if (dtype == DType::Bool) {
    throw NotLowered{};
  }
  e.result(e.op(K::Maximum, m, e.value(0, dtype), e.constant(m, 0)));
}

// grad, self, threshold
void threshold_backward(E& e) {
  const DType dtype = e.common({0, 1});
  const DType m = math_type(dtype);
  e.result(e.op(K::Where, m, e.op(K::Le, m, e.value(1, dtype), e.value(2, dtype)), e.constant(m, 0), e.value(0, dtype)));
}

// self, threshold, value
void threshold(E& e) {
  const DType dtype = e.common({0});
  const DType m = math_type(dtype);
  const Id x = e.value(0, dtype);
  e.result(e.op(K::Where, m, e.op(K::Le, m, x, e.value(1, dtype)), e.value(2, dtype), x));
}

void leaky_relu(E& e) {
  const DType dtype = e.common({0});
  const DType m = math_type(dtype);
  const Id x = e.value(0, dtype);
  const Id slope = e.op(K::Where, m, e.op(K::Gt, m, x, e.constant(m, 0)), e.constant(m, 1), e.operand(1, dtype));
  e.result(e.op(K::Mul, m, x, slope));
}

// grad, self, slope, self_is_result
void leaky_relu_backward(E& e) {
  const DType dtype = e.common({0, 1});
  const DType m = math_type(dtype);
  const Id positive = e.op(K::Gt, m, e.value(1, dtype), e.constant(m, 0));
  e.result(e.op(K::Mul, m, e.value(0, dtype), e.op(K::Where, m, positive, e.constant(m, 1), e.operand(2, dtype))));
}

// self, alpha, scale, input_scale
void elu(E& e) {
  const DType dtype = e.common({0});
  const DType m = math_type(dtype);
  const Id x = e.value(0, dtype);
  const Id scale = e.operand(2, dtype);
  const Id negative =
      e.op(K::Mul, m, e.op(K::Expm1, m, e.op(K::Mul, m, x, e.operand(3, dtype))), e.op(K::Mul, m, e.operand(1, dtype), scale));
  e.result(e.op(K::Where, m, e.op(K::Gt, m, x, e.constant(m, 0)), e.op(K::Mul, m, x, scale), negative));
}

// self, beta, threshold
void softplus(E& e) {
  const DType dtype = e.common({0});
  const DType m = math_type(dtype);
  const Id x = e.value(0, dtype);
  const Id beta = e.operand(1, dtype);
  const Id scaled = e.op(K::Mul, m, x, beta);
  const Id soft = e.op(K::Div, m, e.op(K::Log1p, m, e.op(K::Exp, m, scaled)), beta);
  e.result(e.op(K::Where, m, e.op(K::Gt, m, scaled, e.operand(2, dtype)), x, soft));
}

// grad, self, beta, threshold
void softplus_backward(E& e) {
  const DType dtype = e.common({0, 1});
  const DType m = math_type(dtype);
  const Id grad = e.value(0, dtype);
  const Id scaled = e.op(K::Mul, m, e.value(1, dtype), e.operand(2, dtype));
  const Id z = e.op(K::Exp, m, scaled);
  const Id soft = e.op(K::Div, m, e.op(K::Mul, m, grad, z), e.op(K::Add, m, z, e.constant(m, 1)));
  e.result(e.op(K::Where, m, e.op(K::Gt, m, scaled, e.operand(3, dtype)), grad, soft));
}

// grad, self, min, max
void hardtanh_backward(E& e) {
  const DType dtype = e.common({0, 1});
  const DType m = math_type(dtype);
  const Id x = e.value(1, dtype);
  const Id outside = e.op(K::Or, DType::Bool, e.op(K::Le, m, x, e.value(2, dtype)), e.op(K::Ge, m, x, e.value(3, dtype)));
  e.result(e.op(K::Where, m, outside, e.constant(m, 0), e.value(0, dtype)));
}

Id relu6(E& e, DType m, Id x) {
  const Id shifted = e.op(K::Add, m, x, e.constant(m, 3));
  return e.op(K::Minimum, m, e.op(K::Maximum, m, shifted, e.constant(m, 0)), e.constant(m, 6));
}

void hardsigmoid(E& e) {
  const DType dtype = e.common({0});
  const DType m = math_type(dtype);
  e.result(e.op(K::Div, m, relu6(e, m, e.value(0, dtype)), e.constant(m, 6)));
}

void hardswish(E& e) {
  const DType dtype = e.common({0});
  const DType m = math_type(dtype);
  const Id x = e.value(0, dtype);
  e.result(e.op(K::Div, m, e.op(K::Mul, m, x, relu6(e, m, x)), e.constant(m, 6)));
}

void logical_not(E& e) { e.result(e.op(K::Not, DType::Bool, e.cast(e.value(0, e.common({0})), DType::Bool))); }

void bitwise_not(E& e) {
  const DType dtype = e.common({0});
  e.result(dtype == DType::Bool ? e.op(K::Not, dtype, e.value(0, dtype)) : e.op(K::BitNot, dtype, e.value(0, dtype)));
}

void isnan(E& e) {
  const DType dtype = e.common({0});
  if (!is_floating(dtype)) {
    throw NotLowered{};
  }
  e.result(e.op(K::IsNan, math_type(dtype), e.value(0, dtype)));
}

void isinf(E& e) {
  const DType dtype = e.common({0});
  if (!is_floating(dtype)) {
    throw NotLowered{};
  }
  const DType m = math_type(dtype);
  e.result(e.op(K::Eq, m, e.op(K::Abs, m, e.value(0, dtype)), e.constant(m, std::numeric_limits<double>::infinity())));
}

// --- two operands ------------------------------------------------------------------------------------------------------

/// a + alpha * b with one rounding, as ATen's vectorised kernels do.
void add_scaled(E& e, std::size_t a, std::size_t b, bool subtract) {
  const DType dtype = e.common({0, 1});
  const DType m = math_type(dtype);
  if (dtype == DType::Bool) {
    throw NotLowered{};
  }
  const Id left = e.operand(a, dtype);
  const Id right = e.operand(b, dtype);
  if (!e.has(2) || e.is_one(2)) {
    e.result(e.op(subtract ? K::Sub : K::Add, m, left, right));
    return;
  }
  Id alpha = e.operand(2, dtype);
  if (subtract) {
    alpha = e.op(K::Neg, m, alpha);
  }
  e.result(is_floating(dtype) ? e.op(K::Fma, m, right, alpha, left) : e.op(K::Add, m, left, e.op(K::Mul, m, right, alpha)));
}
void add(E& e) { add_scaled(e, 0, 1, false); }
void sub(E& e) { add_scaled(e, 0, 1, true); }
void rsub(E& e) { add_scaled(e, 1, 0, true); }

void mul(E& e) {
  const DType dtype = e.common({0, 1});
  e.result(e.op(dtype == DType::Bool ? K::And : K::Mul, math_type(dtype), e.operand(0, dtype), e.operand(1, dtype)));
}

void div(E& e) {
  const std::string_view mode = e.text(2);
  const DType dtype = mode.empty() ? e.common_float({0, 1}) : e.common({0, 1});
  const DType m = math_type(dtype);
  if (dtype == DType::Bool || (!mode.empty() && !is_floating(dtype))) {
    throw NotLowered{};  // division of integers by zero raises
  }
  const Id a = e.operand(0, dtype);
  const Id b = e.operand(1, dtype);
  if (mode == "floor") {
    e.result(e.op(K::FloorDiv, m, a, b));
    return;
  }
  const Id quotient = e.op(K::Div, m, a, b);
  e.result(mode == "trunc" ? e.op(K::Trunc, m, quotient) : quotient);
}

template <K kernel_op>
void binary(E& e) {
  const DType dtype = e.common({0, 1});
  e.result(e.op(kernel_op, math_type(dtype), e.value(0, dtype), e.value(1, dtype)));
}

/// For floating point only: with integers the library may raise.
template <K kernel_op>
void binary_floating(E& e) {
  if (!is_floating(e.common({0, 1}))) {
    throw NotLowered{};
  }
  binary<kernel_op>(e);
}

template <K kernel_op>
void binary_float(E& e) {
  const DType dtype = e.common_float({0, 1});
  e.result(e.op(kernel_op, math_type(dtype), e.value(0, dtype), e.value(1, dtype)));
}

template <K kernel_op>
void bitwise(E& e) {
  if (is_floating(e.common({0, 1}))) {
    throw NotLowered{};
  }
  binary<kernel_op>(e);
}

template <K kernel_op>
void shift(E& e) {
  if (!is_integral(e.common({0, 1}))) {
    throw NotLowered{};
  }
  binary<kernel_op>(e);
}

template <K kernel_op>
void logical(E& e) {
  const auto truth = [&](std::size_t i) { return e.cast(e.value(i, e.common({i})), DType::Bool); };
  e.result(e.op(kernel_op, DType::Bool, truth(0), truth(1)));
}

// --- three operands ----------------------------------------------------------------------------------------------------

void where(E& e) {
  if (e.arg(0).tag != Tag::Tensor || e.arg(0).geometry.dtype != DType::Bool) {
    throw NotLowered{};
  }
  const DType dtype = e.common({1, 2});
  e.result(e.op(K::Where, math_type(dtype), e.value(0, DType::Bool), e.value(1, dtype), e.value(2, dtype)));
}

void masked_fill(E& e) {
  if (e.arg(1).tag != Tag::Tensor || e.arg(1).geometry.dtype != DType::Bool) {
    throw NotLowered{};
  }
  const DType dtype = e.common({0});
  e.result(e.op(K::Where, math_type(dtype), e.value(1, DType::Bool), e.value(2, dtype), e.value(0, dtype)));
}

// self, min, max
void clamp(E& e) {
  const DType dtype = e.common({0, 1, 2});
  const DType m = math_type(dtype);
  Id x = e.value(0, dtype);
  if (e.has(1)) {
    x = e.op(K::Maximum, m, x, e.value(1, dtype));
  }
  if (e.has(2)) {
    x = e.op(K::Minimum, m, x, e.value(2, dtype));
  }
  e.result(x);
}

// self, end, weight
void lerp(E& e) {
  const DType dtype = e.common({0, 1});
  const DType m = math_type(dtype);
  const Id from = e.value(0, dtype);
  const Id to = e.value(1, dtype);
  const Id weight = e.operand(2, dtype);
  const Id one = e.constant(m, 1);
  const Id small = e.op(K::Lt, m, e.op(K::Abs, m, weight), e.constant(m, 0.5));
  const Id coefficient = e.op(K::Where, m, small, weight, e.op(K::Sub, m, weight, one));
  const Id base = e.op(K::Where, m, small, from, to);
  e.result(e.op(K::Fma, m, coefficient, e.op(K::Sub, m, to, from), base));
}

// self, tensor1, tensor2, value
void addcmul(E& e) {
  const DType dtype = e.common({0, 1, 2});
  const DType m = math_type(dtype);
  const Id scaled = e.has(3) ? e.op(K::Mul, m, e.operand(3, dtype), e.value(1, dtype)) : e.value(1, dtype);
  e.result(e.op(K::Add, m, e.value(0, dtype), e.op(K::Mul, m, scaled, e.value(2, dtype))));
}

void addcdiv(E& e) {
  const DType dtype = e.common({0, 1, 2});
  const DType m = math_type(dtype);
  if (!is_floating(dtype)) {
    throw NotLowered{};
  }
  const Id scaled = e.has(3) ? e.op(K::Mul, m, e.operand(3, dtype), e.value(1, dtype)) : e.value(1, dtype);
  e.result(e.op(K::Add, m, e.value(0, dtype), e.op(K::Div, m, scaled, e.value(2, dtype))));
}

// --- filling and copying -----------------------------------------------------------------------------------------------

template <int value>
void filled(E& e) {
  e.marks_copy();
  const DType m = math_type(e.result_dtype());
  e.result(e.constant(m, value));
}

/// The value is argument 1.
void full(E& e) {
  e.marks_copy();
  e.result(e.value(1, e.result_dtype()));
}

template <std::size_t from>
void copy(E& e) {
  e.marks_copy();
  if (e.arg(from).tag != Tag::Tensor) {
    throw NotLowered{};
  }
  e.result(e.value(from, e.arg(from).geometry.dtype));
}

// --- reductions --------------------------------------------------------------------------------------------------------

/// (self, dims, keepdim, …) where the overload has them, (self, …) over everything otherwise.
void over(E& e) {
  constexpr std::size_t none = 100;
  const bool has_dims = e.arg(2).tag == Tag::Bool;
  e.over(0, has_dims ? 1 : none, has_dims ? 2 : none);
}

Id summed(E& e) {
  over(e);
  const DType m = math_type(e.result_dtype());
  if (m == DType::Bool) {
    throw NotLowered{};
  }
  return e.op(K::ReduceSum, m, e.cast(e.value(0, e.common({0})), m));
}

void sum(E& e) { e.result(summed(e)); }

void mean(E& e) {
  const Id total = summed(e);
  const DType m = math_type(e.result_dtype());
  e.result(e.op(K::Div, m, e.rounded(total, e.result_dtype()), e.constant(m, static_cast<double>(e.reduced_count()))));
}

void prod(E& e) {
  over(e);
  const DType m = math_type(e.result_dtype());
  if (m == DType::Bool) {
    throw NotLowered{};
  }
  e.result(e.op(K::ReduceProduct, m, e.cast(e.value(0, e.common({0})), m)));
}

/// amax and amin take (self, dims, keepdim) in all overloads.
template <K kernel_op>
void extreme(E& e) {
  e.over(0, 1, 2);
  const DType dtype = e.common({0});
  e.result(e.op(kernel_op, math_type(dtype), e.value(0, dtype)));
}

template <K kernel_op>
void truth(E& e) {
  over(e);
  e.result(e.op(kernel_op, DType::Bool, e.cast(e.value(0, e.common({0})), DType::Bool)));
}

// self, target, reduction
void mse_loss(E& e) {
  const std::int64_t reduction = e.integer(2, 1);
  constexpr std::size_t none = 100;
  if (reduction != 0) {
    e.over(0, none, none);
  }
  const DType dtype = e.common({0, 1});
  const DType m = math_type(dtype);
  const Id difference = e.op(K::Sub, m, e.value(0, dtype), e.value(1, dtype));
  const Id square = e.op(K::Mul, m, difference, difference);
  if (reduction == 0) {
    e.result(square);
    return;
  }
  const Id total = e.op(K::ReduceSum, m, e.rounded(square, dtype));
  e.result(reduction == 2 ? total
                          : e.op(K::Div, m, e.rounded(total, dtype), e.constant(m, static_cast<double>(e.reduced_count()))));
}

// grad, self, target, reduction
void mse_loss_backward(E& e) {
  const DType dtype = e.common({1, 2});
  const DType m = math_type(dtype);
  const double count = e.integer(3, 1) == 1 ? static_cast<double>(e.arg(1).geometry.numel()) : 1.0;
  const Id scaled = e.op(K::Mul, m, e.constant(m, 2.0 / count), e.op(K::Sub, m, e.value(1, dtype), e.value(2, dtype)));
  e.result(e.op(K::Mul, m, scaled, e.value(0, dtype)));
}

const std::unordered_map<std::string_view, PointwiseRow>& table() {
  static const std::unordered_map<std::string_view, PointwiseRow> rows{
      {"neg", unary<K::Neg>},
      {"abs", unary<K::Abs>},
      {"sign", unary<K::Sign>},
      {"sgn", unary<K::Sign>},
      {"floor", rounding<K::Floor>},
      {"ceil", rounding<K::Ceil>},
      {"round", rounding<K::Round>},
      {"trunc", rounding<K::Trunc>},
      {"sqrt", unary_float<K::Sqrt>},
      {"rsqrt", unary_float<K::Rsqrt>},
      {"reciprocal", unary_float<K::Reciprocal>},
      {"exp", unary_float<K::Exp>},
      {"exp2", unary_float<K::Exp2>},
      {"expm1", unary_float<K::Expm1>},
      {"log", unary_float<K::Log>},
      {"log2", unary_float<K::Log2>},
      {"log10", unary_float<K::Log10>},
      {"log1p", unary_float<K::Log1p>},
      {"sin", unary_float<K::Sin>},
      {"cos", unary_float<K::Cos>},
      {"tan", unary_float<K::Tan>},
      {"asin", unary_float<K::Asin>},
      {"acos", unary_float<K::Acos>},
      {"atan", unary_float<K::Atan>},
      {"sinh", unary_float<K::Sinh>},
      {"cosh", unary_float<K::Cosh>},
      {"tanh", unary_float<K::Tanh>},
      {"asinh", unary_float<K::Asinh>},
      {"acosh", unary_float<K::Acosh>},
      {"atanh", unary_float<K::Atanh>},
      {"erf", unary_float<K::Erf>},
      {"erfc", unary_float<K::Erfc>},
      {"lgamma", unary_float<K::Lgamma>},
      {"sigmoid", sigmoid},
      {"sigmoid_backward", sigmoid_backward},
      {"tanh_backward", tanh_backward},
      {"silu", silu},
      {"silu_backward", silu_backward},
      {"gelu", gelu},
      {"gelu_backward", gelu_backward},
      {"relu", relu},
      {"threshold", threshold},
      {"threshold_backward", threshold_backward},
      {"leaky_relu", leaky_relu},
      {"leaky_relu_backward", leaky_relu_backward},
      {"elu", elu},
      {"softplus", softplus},
      {"softplus_backward", softplus_backward},
      {"hardtanh", clamp},
      {"hardtanh_backward", hardtanh_backward},
      {"hardsigmoid", hardsigmoid},
      {"hardswish", hardswish},
      {"logical_not", logical_not},
      {"bitwise_not", bitwise_not},
      {"isnan", isnan},
      {"isinf", isinf},

      {"add", add},
      {"sub", sub},
      {"rsub", rsub},
      {"mul", mul},
      {"div", div},
      {"fmod", binary_floating<K::Fmod>},
      {"remainder", binary_floating<K::Remainder>},
      {"floor_divide", binary_floating<K::FloorDiv>},
      {"atan2", binary_float<K::Atan2>},
      {"hypot", binary_floating<K::Hypot>},
      {"copysign", binary_float<K::CopySign>},
      {"maximum", binary<K::Maximum>},
      {"minimum", binary<K::Minimum>},
      {"clamp_min", binary<K::Maximum>},
      {"clamp_max", binary<K::Minimum>},
      {"fmax", binary_floating<K::Fmax>},
      {"fmin", binary_floating<K::Fmin>},
      {"eq", binary<K::Eq>},
      {"ne", binary<K::Ne>},
      {"lt", binary<K::Lt>},
      {"le", binary<K::Le>},
      {"gt", binary<K::Gt>},
      {"ge", binary<K::Ge>},
      {"bitwise_and", bitwise<K::And>},
      {"bitwise_or", bitwise<K::Or>},
      {"bitwise_xor", bitwise<K::Xor>},
      {"__and__", bitwise<K::And>},
      {"__or__", bitwise<K::Or>},
      {"__xor__", bitwise<K::Xor>},
      {"bitwise_left_shift", shift<K::Shl>},
      {"bitwise_right_shift", shift<K::Shr>},
      {"logical_and", logical<K::And>},
      {"logical_or", logical<K::Or>},
      {"logical_xor", logical<K::Xor>},

      {"where", where},
      {"masked_fill", masked_fill},
      {"clamp", clamp},
      {"lerp", lerp},
      {"addcmul", addcmul},
      {"addcdiv", addcdiv},

      {"zero", filled<0>},
      {"zeros", filled<0>},
      {"zeros_like", filled<0>},
      {"new_zeros", filled<0>},
      {"ones", filled<1>},
      {"ones_like", filled<1>},
      {"new_ones", filled<1>},
      {"fill", full},
      {"full", full},
      {"full_like", full},
      {"copy", copy<1>},
      {"_to_copy", copy<0>},
      {"clone", copy<0>},

      {"sum", sum},
      {"mean", mean},
      {"prod", prod},
      {"amax", extreme<K::ReduceMaximum>},
      {"amin", extreme<K::ReduceMinimum>},
      {"any", truth<K::ReduceMaximum>},
      {"all", truth<K::ReduceMinimum>},
      {"mse_loss", mse_loss},
      {"mse_loss_backward", mse_loss_backward},
  };
  return rows;
}

}  // namespace

PointwiseRow pointwise_row(std::string_view base) {
  const auto row = table().find(base);
  return row == table().end() ? nullptr : row->second;
}

}  // namespace spool
