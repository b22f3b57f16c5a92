// ATen's functions on the device against the CPU, forward and backward, in a process without Python.
#include <set>

#include "src/runtime/metrics.h"
#include "tests/cpp/device_state.h"

namespace spool::test {
namespace {

using Out = std::vector<at::Tensor>;

/// What the functions are called with; the floats among them require gradients.
struct In {
  at::Tensor x, y, positive, unit, row, square, definite, batch, other, signal, image, kernel, line, table;
  at::Tensor whole, counts, index, mask, labels;
};

template <class Change>
void each(In& in, Change change) {
  for (at::Tensor* tensor :
       {&in.x, &in.y, &in.positive, &in.unit, &in.row, &in.square, &in.definite, &in.batch, &in.other, &in.signal, &in.image,
        &in.kernel, &in.line, &in.table, &in.whole, &in.counts, &in.index, &in.mask, &in.labels}) {
    change(*tensor);
  }
}

In inputs(const at::Device& where) {
  at::manual_seed(5);
  In in;
  in.x = at::randn({4, 6});
  in.y = at::randn({4, 6});
  in.positive = at::rand({4, 6}) + 0.5;
  in.unit = at::rand({4, 6}) * 0.8 + 0.1;
  in.row = at::randn({6});
  in.square = at::randn({5, 5});
  in.definite = at::mm(in.square, in.square.t()) + at::eye(5);
  in.batch = at::randn({2, 4, 6});
  in.other = at::randn({2, 6, 3});
  in.signal = at::randn({2, 3, 16});
  in.image = at::randn({2, 3, 8, 8});
  in.kernel = at::randn({4, 3, 3, 3});
  in.line = at::randn({4, 3, 3});
  in.table = at::randn({10, 6});
  in.whole = at::randint(-9, 10, {4, 6}, at::kLong);
  in.counts = at::randint(1, 6, {4, 6}, at::kLong);
  in.index = at::randint(0, 4, {4, 6}, at::kLong);
  in.mask = at::rand({4, 6}) > 0.5;
  in.labels = at::randint(0, 6, {4}, at::kLong);
  each(in, [&](at::Tensor& tensor) {
    tensor = tensor.to(where);
    tensor.set_requires_grad(at::isFloatingType(tensor.scalar_type()));
  });
  return in;
}

struct Op {
  const char* name;
  Out (*run)(const In&);
  bool at_once = false;  ///< its results' shapes depend on data
};

void PrintTo(const Op& op, std::ostream* out) { *out << op.name; }

template <class... Tensors>
Out list(const std::tuple<Tensors...>& tuple) {
  return std::apply([](const auto&... tensors) { return Out{tensors...}; }, tuple);
}

#define OP(name, ...)                                     \
  Op {                                                    \
    name, [](const In& in) -> Out { return __VA_ARGS__; } \
  }
#define AT_ONCE(name, ...)                                      \
  Op {                                                          \
    name, [](const In& in) -> Out { return __VA_ARGS__; }, true \
  }

const Op kPointwise[] = {
    OP("abs", {at::abs(in.x)}),
    OP("acos", {at::acos(in.unit)}),
    OP("acosh", {at::acosh(in.positive + 1)}),
    OP("add", {at::add(in.x, in.row, 3)}),
    OP("addcdiv", {at::addcdiv(in.x, in.y, in.positive, 2)}),
    OP("addcmul", {at::addcmul(in.x, in.y, in.unit, 2)}),
    OP("angle", {at::angle(in.x)}),
    OP("asin", {at::asin(in.unit)}),
    OP("asinh", {at::asinh(in.x)}),
    OP("atan", {at::atan(in.x)}),
    OP("atan2", {at::atan2(in.x, in.y)}),
    OP("atanh", {at::atanh(in.unit)}),
    OP("bitwise_and", {at::bitwise_and(in.whole, in.counts)}),
    OP("bitwise_left_shift", {at::bitwise_left_shift(in.whole, in.counts)}),
    OP("bitwise_not", {at::bitwise_not(in.whole)}),
    OP("bitwise_or", {at::bitwise_or(in.whole, in.counts)}),
    OP("bitwise_xor", {at::bitwise_xor(in.mask, in.mask)}),
    OP("ceil", {at::ceil(in.x)}),
    OP("celu", {at::celu(in.x)}),
    OP("clamp", {at::clamp(in.x, -0.5, 0.5)}),
    OP("clamp_min", {at::clamp_min(in.x, in.y)}),
    OP("complex", {at::abs(at::complex(in.x, in.y))}),
    OP("copysign", {at::copysign(in.x, in.y)}),
    OP("cos", {at::cos(in.x)}),
    OP("cosh", {at::cosh(in.x)}),
    OP("deg2rad", {at::deg2rad(in.x)}),
    OP("digamma", {at::digamma(in.positive)}),
    OP("div", {at::div(in.x, in.positive)}),
    OP("div floor", {at::div(in.x, in.positive, "floor")}),
    OP("elu", {at::elu(in.x)}),
    OP("eq", {at::eq(in.whole, in.counts)}),
    OP("erf", {at::erf(in.x)}),
    OP("erfc", {at::erfc(in.x)}),
    OP("erfinv", {at::erfinv(in.unit)}),
    OP("exp", {at::exp(in.x)}),
    OP("exp2", {at::exp2(in.x)}),
    OP("expm1", {at::expm1(in.x)}),
    OP("floor", {at::floor(in.x)}),
    OP("floor_divide", {at::floor_divide(in.whole, in.counts)}),
    OP("fmax", {at::fmax(in.x, in.y)}),
    OP("fmod", {at::fmod(in.x, in.positive)}),
    OP("frac", {at::frac(in.x)}),
    OP("frexp", list(at::frexp(in.x.detach()))),
    OP("gcd", {at::gcd(in.whole, in.counts)}),
    OP("ge", {at::ge(in.x, in.y)}),
    OP("gelu", {at::gelu(in.x)}),
    OP("gelu tanh", {at::gelu(in.x, "tanh")}),
    OP("hardshrink", {at::hardshrink(in.x)}),
    OP("hardsigmoid", {at::hardsigmoid(in.x)}),
    OP("hardswish", {at::hardswish(in.x)}),
    OP("hardtanh", {at::hardtanh(in.x)}),
    OP("heaviside", {at::heaviside(in.x.detach(), in.y.detach())}),
    OP("hypot", {at::hypot(in.x, in.y)}),
    OP("isclose", {at::isclose(in.x, in.x)}),
    OP("isnan", {at::isnan(at::log(in.x))}),
    OP("ldexp", {at::ldexp(in.x, in.counts)}),
    OP("leaky_relu", {at::leaky_relu(in.x)}),
    OP("lerp", {at::lerp(in.x, in.y, 0.3)}),
    OP("lgamma", {at::lgamma(in.positive)}),
    OP("log", {at::log(in.positive)}),
    OP("log10", {at::log10(in.positive)}),
    OP("log1p", {at::log1p(in.positive)}),
    OP("log2", {at::log2(in.positive)}),
    OP("log_sigmoid", {at::log_sigmoid(in.x)}),
    OP("logaddexp", {at::logaddexp(in.x, in.y)}),
    OP("logical_and", {at::logical_and(in.mask, in.whole)}),
    OP("logit", {at::logit(in.unit)}),
    OP("lt", {at::lt(in.x, 0.1)}),
    OP("maximum", {at::maximum(in.x, in.y)}),
    OP("minimum", {at::minimum(in.x, in.row)}),
    OP("mish", {at::mish(in.x)}),
    OP("mul", {at::mul(in.x, in.row)}),
    OP("mul int float", {at::mul(in.whole, in.x)}),
    OP("mvlgamma", {at::mvlgamma(in.positive + 2, 2)}),
    OP("nan_to_num", {at::nan_to_num(at::log(in.x.detach()), 7)}),
    OP("neg", {at::neg(in.x)}),
    OP("nextafter", {at::nextafter(in.x.detach(), in.y.detach())}),
    OP("polygamma", {at::polygamma(1, in.positive)}),
    OP("pow", {at::pow(in.positive, in.y)}),
    OP("pow scalar", {at::pow(in.x, 3)}),
    OP("prelu", {at::prelu(in.x, in.row)}),
    OP("reciprocal", {at::reciprocal(in.positive)}),
    OP("relu", {at::relu(in.x)}),
    OP("relu6", {at::relu6(in.x)}),
    OP("remainder", {at::remainder(in.whole, in.counts)}),
    OP("round", {at::round(in.x, 1)}),
    OP("rsqrt", {at::rsqrt(in.positive)}),
    OP("rsub", {at::rsub(in.x, in.y, 2)}),
    OP("selu", {at::selu(in.x)}),
    OP("sgn", {at::sgn(in.x)}),
    OP("sigmoid", {at::sigmoid(in.x)}),
    OP("sign", {at::sign(in.x)}),
    OP("signbit", {at::signbit(in.x)}),
    OP("silu", {at::silu(in.x)}),
    OP("sin", {at::sin(in.x)}),
    OP("sinc", {at::sinc(in.x)}),
    OP("sinh", {at::sinh(in.x)}),
    OP("softplus", {at::softplus(in.x)}),
    OP("softshrink", {at::softshrink(in.x)}),
    OP("sqrt", {at::sqrt(in.positive)}),
    OP("square", {at::square(in.x)}),
    OP("tan", {at::tan(in.x)}),
    OP("tanh", {at::tanh(in.x)}),
    OP("threshold", {at::threshold(in.x, 0.1, 9)}),
    OP("trunc", {at::trunc(in.x)}),
    OP("where", {at::where(in.mask, in.x, in.row)}),
    OP("xlogy", {at::xlogy(in.x, in.positive)}),
};

const Op kReductions[] = {
    OP("all", {at::all(in.mask, 1)}),
    OP("amax", {at::amax(in.x, {0})}),
    OP("amin", {at::amin(in.x, {1}, true)}),
    OP("aminmax", list(at::aminmax(in.x, 1))),
    OP("any", {at::any(in.mask)}),
    OP("argmax", {at::argmax(in.x, 1)}),
    OP("argmin", {at::argmin(in.x)}),
    OP("argsort", {at::argsort(in.x, 1, true)}),
    OP("count_nonzero", {at::count_nonzero(in.whole, at::IntArrayRef{0})}),
    OP("cummax", list(at::cummax(in.x, 1))),
    OP("cumprod", {at::cumprod(in.x, 1)}),
    OP("cumsum", {at::cumsum(in.x, 0)}),
    OP("kthvalue", list(at::kthvalue(in.x, 2, 1))),
    OP("log_softmax", {at::log_softmax(in.x, 1)}),
    OP("logcumsumexp", {at::logcumsumexp(in.x, 1)}),
    OP("logsumexp", {at::logsumexp(in.x, {0})}),
    OP("max", list(at::max(in.x, 1))),
    OP("mean", {at::mean(in.x, {0, 1})}),
    OP("median", list(at::median(in.x, 1))),
    OP("min", {at::min(in.x)}),
    OP("mode", list(at::mode(in.whole, 1))),
    OP("norm", {at::norm(in.x, 3, {1})}),
    OP("prod", {at::prod(in.x, 1)}),
    OP("quantile", {at::quantile(in.x, 0.3, 1)}),
    OP("softmax", {at::softmax(in.x, 0)}),
    OP("sort", list(at::sort(in.x, 1))),
    OP("std", {at::std(in.x, 1)}),
    OP("sum", {at::sum(in.batch, {0, 2})}),
    OP("sum int", {at::sum(in.whole)}),
    OP("topk", list(at::topk(in.x, 3, 1))),
    OP("var_mean", list(at::var_mean(in.x, 1))),
};

const Op kShapes[] = {
    OP("as_strided", {at::as_strided(in.x, {3, 2}, {2, 5}, 1) * 2}),
    OP("block_diag", {at::block_diag({in.x, in.square})}),
    OP("broadcast_to", {at::broadcast_to(in.row, {3, 6}) + 1}),
    OP("bucketize", {at::bucketize(in.x, std::get<0>(at::sort(in.row)))}),
    OP("cartesian_prod", {at::cartesian_prod({in.row, in.row})}),
    OP("cat", {at::cat({in.x, in.y}, 1)}),
    OP("cdist", {at::cdist(in.x, in.y)}),
    OP("chunk", {at::chunk(in.x, 2, 1)[1] * 3}),
    OP("constant_pad_nd", {at::constant_pad_nd(in.x, {1, 2}, 0.5)}),
    OP("diag", {at::diag(in.square, 1)}),
    OP("diag_embed", {at::diag_embed(in.x)}),
    OP("diagonal", {at::diagonal(in.batch, -1, 1, 2) * 2}),
    OP("diff", {at::diff(in.x)}),
    OP("embedding", {at::embedding(in.table, in.index)}),
    OP("flip", {at::flip(in.x, {0, 1})}),
    OP("gather", {at::gather(in.x, 0, in.index)}),
    OP("index", {at::index(in.table, {in.index})}),
    OP("index_add", {at::index_add(in.table, 0, in.labels, in.x)}),
    OP("index_fill", {at::index_fill(in.table, 0, in.labels, 4)}),
    OP("index_put", {at::index_put(in.table, {in.labels}, in.x, true)}),
    OP("index_select", {at::index_select(in.table, 0, in.labels)}),
    OP("kron", {at::kron(in.x, in.row)}),
    OP("masked_fill", {at::masked_fill(in.x, in.mask, 5)}),
    OP("masked_scatter", {at::masked_scatter(in.x.detach(), in.mask, in.y.detach())}),
    OP("meshgrid", {at::meshgrid({in.row, in.x.select(0, 1)}, "ij")[0] + 1}),
    OP("movedim", {at::movedim(in.batch, 0, 2) * 2}),
    OP("narrow", {at::narrow(in.x, 1, 2, 3) * 2}),
    OP("one_hot", {at::one_hot(in.labels, 6)}),
    OP("permute", {at::permute(in.batch, {2, 0, 1}) + 1}),
    OP("pixel_shuffle", {at::pixel_shuffle(at::cat({in.image, in.image, in.image, in.image}, 1), 2)}),
    OP("reflection_pad2d", {at::reflection_pad2d(in.image, {1, 2, 1, 0})}),
    OP("repeat", {in.x.repeat({2, 1, 3})}),
    OP("repeat_interleave", {at::repeat_interleave(in.x, 2, 1)}),
    OP("replication_pad1d", {at::replication_pad1d(in.signal, {1, 2})}),
    OP("roll", {at::roll(in.x, {1, 2}, {0, 1})}),
    OP("rot90", {at::rot90(in.x)}),
    OP("scatter", {at::scatter(in.x, 0, in.index, in.y.detach())}),
    OP("scatter_add", {at::scatter_add(in.x, 0, in.index, in.y)}),
    OP("scatter_reduce", {at::scatter_reduce(in.x, 0, in.index, in.y, "amax")}),
    OP("searchsorted", {at::searchsorted(std::get<0>(at::sort(in.row)), in.x)}),
    OP("select", {at::select(in.batch, 1, 2) * 2}),
    OP("slice_scatter", {at::slice_scatter(in.x, at::narrow(in.y, 1, 0, 2), 1, 2, 4)}),
    OP("split_with_sizes", {at::split_with_sizes(in.x, {2, 4}, 1)[1] * 2}),
    OP("stack", {at::stack({in.x, in.y}, 1)}),
    OP("take", {at::take(in.x, in.labels)}),
    OP("take_along_dim", {at::take_along_dim(in.x, in.index, 0)}),
    OP("tile", {at::tile(in.row, {2, 3})}),
    OP("transpose", {at::transpose(in.batch, 0, 2).contiguous()}),
    OP("tril", {at::tril(in.x, 1)}),
    OP("triu", {at::triu(in.batch)}),
    OP("unfold", {in.signal.unfold(2, 4, 2) * 2}),
    OP("vander", {at::vander(in.row.detach())}),
    AT_ONCE("bincount", {at::bincount(in.labels)}),
    AT_ONCE("masked_select", {at::masked_select(in.x, in.mask)}),
    AT_ONCE("nonzero", {at::nonzero(in.whole)}),
    AT_ONCE("unique_dim", list(at::unique_dim(in.labels, 0))),
};

const Op kAlgebra[] = {
    OP("addbmm", {at::addbmm(in.x.narrow(1, 0, 3), in.batch, in.other)}),
    OP("addmm", {at::addmm(in.row.narrow(0, 0, 4), in.x, in.y.t(), 2, 3)}),
    OP("addmv", {at::addmv(in.row.narrow(0, 0, 4), in.x, in.row)}),
    OP("addr", {at::addr(in.x, in.row.narrow(0, 0, 4), in.row)}),
    OP("baddbmm", {at::baddbmm(in.row.narrow(0, 0, 3), in.batch, in.other)}),
    OP("bilinear", {at::bilinear(in.x, in.y, in.batch.transpose(1, 2).matmul(in.batch), {})}),
    OP("bmm", {at::bmm(in.batch, in.other)}),
    OP("linalg_cholesky", {at::linalg_cholesky(in.definite.detach())}),
    OP("cross", {at::cross(in.other, in.other + 1, 2)}),
    OP("det", {at::det(in.square)}),
    OP("dot", {at::dot(in.row, in.row + 1)}),
    OP("einsum", {at::einsum("bij,bjk->ik", {in.batch, in.other})}),
    OP("inverse", {at::inverse(in.definite)}),
    OP("linalg_solve", {at::linalg_solve(in.definite, in.square)}),
    OP("linear", {at::linear(in.batch, in.x, in.row.narrow(0, 0, 4))}),
    OP("matmul", {at::matmul(in.batch, in.other)}),
    OP("mm", {at::mm(in.x.t(), in.y)}),
    OP("mv", {at::mv(in.x, in.row)}),
    OP("outer", {at::outer(in.row, in.row)}),
    OP("pinverse", {at::pinverse(in.definite)}),
    OP("tensordot", {at::tensordot(in.batch, in.other, {2, 0}, {1, 0})}),
    OP("trace", {at::trace(in.square)}),
};

const Op kNetworks[] = {
    OP("adaptive_avg_pool2d", {at::adaptive_avg_pool2d(in.image, {3, 3})}),
    OP("adaptive_max_pool1d", list(at::adaptive_max_pool1d(in.signal, 5))),
    OP("avg_pool1d", {at::avg_pool1d(in.signal, 3, 2)}),
    OP("avg_pool2d", {at::avg_pool2d(in.image, 2)}),
    OP("batch_norm", {at::batch_norm(in.image, {}, {}, {}, {}, true, 0.1, 1e-5, false)}),
    OP("binary_cross_entropy", {at::binary_cross_entropy(in.unit, at::sigmoid(in.y).detach())}),
    OP("binary_cross_entropy_with_logits", {at::binary_cross_entropy_with_logits(in.x, in.unit.detach())}),
    OP("conv1d", {at::conv1d(in.signal, in.line, {}, 2, 1)}),
    OP("conv2d", {at::conv2d(in.image, in.kernel, in.row.narrow(0, 0, 4), 1, 1)}),
    OP("conv2d dilated", {at::conv2d(in.image, in.kernel, {}, {1, 1}, at::IntArrayRef{0, 0}, {2, 2})}),
    OP("conv_transpose2d", {at::conv_transpose2d(in.image, in.kernel.transpose(0, 1), {}, 2, 1)}),
    OP("cosine_embedding_loss", {at::cosine_embedding_loss(in.x, in.y, at::ones_like(in.labels))}),
    OP("cosine_similarity", {at::cosine_similarity(in.x, in.y)}),
    OP("cross_entropy_loss", {at::cross_entropy_loss(in.x, in.labels)}),
    OP("cross_entropy_loss smoothed", {at::cross_entropy_loss(in.x, in.labels, {}, 0, -100, 0.1)}),
    OP("glu", {at::glu(in.x)}),
    OP("grid_sampler", {at::grid_sampler(in.image, at::tanh(in.image.narrow(1, 0, 2).permute({0, 2, 3, 1})), 0, 0, false)}),
    OP("group_norm", {at::group_norm(in.kernel.transpose(0, 1).contiguous(), 2)}),
    OP("huber_loss", {at::huber_loss(in.x, in.y)}),
    OP("im2col", {at::im2col(in.image, {3, 3}, {1, 1}, {1, 1}, {2, 2})}),
    OP("instance_norm", {at::instance_norm(in.image, {}, {}, {}, {}, true, 0.1, 1e-5, false)}),
    OP("kl_div", {at::kl_div(in.x, in.unit)}),
    OP("l1_loss", {at::l1_loss(in.x, in.y)}),
    OP("layer_norm", {at::layer_norm(in.x, {6}, in.row, in.row)}),
    OP("margin_ranking_loss", {at::margin_ranking_loss(in.x, in.y, at::ones_like(in.x))}),
    OP("max_pool1d", {at::max_pool1d(in.signal, 2)}),
    OP("max_pool2d_with_indices", list(at::max_pool2d_with_indices(in.image, {3, 3}, {2, 2}, {1, 1}))),
    OP("mse_loss", {at::mse_loss(in.x, in.y)}),
    OP("multi_margin_loss", {at::multi_margin_loss(in.x, in.labels)}),
    OP("nll_loss", {at::nll_loss(at::log_softmax(in.x, 1), in.labels)}),
    OP("poisson_nll_loss", {at::poisson_nll_loss(in.x, in.positive.detach(), true, false, 1e-8, 1)}),
    OP("rms_norm", {at::rms_norm(in.x, {6}, in.row)}),
    OP("scaled_dot_product_attention", {at::scaled_dot_product_attention(in.batch, in.batch, in.batch, {}, 0, true)}),
    OP("smooth_l1_loss", {at::smooth_l1_loss(in.x, in.y)}),
    OP("soft_margin_loss", {at::soft_margin_loss(in.x, at::sign(in.y).detach())}),
    OP("triplet_margin_loss", {at::triplet_margin_loss(in.x, in.y, in.positive)}),
    OP("upsample_bilinear2d", {at::upsample_bilinear2d(in.image, {11, 13}, false)}),
    OP("upsample_nearest2d", {at::upsample_nearest2d(in.image, {12, 16})}),
};

const Op kInPlace[] = {
    OP("add_", {in.x.clone().add_(in.row)}),
    OP("addmm_", {in.square.clone().addmm_(in.definite, in.square)}),
    OP("clamp_", {in.x.clone().clamp_(-1, 1)}),
    OP("copy_ to a view",
       [&] {
         const at::Tensor base = in.x.clone();
         base.narrow(1, 1, 2).copy_(in.y.narrow(1, 3, 2));
         return Out{base};
       }()),
    OP("div_", {in.x.clone().div_(in.positive)}),
    OP("exp_", {in.x.clone().exp_()}),
    OP("fill_ of a row",
       [&] {
         const at::Tensor base = in.x.clone();
         base.select(0, 2).fill_(4);
         return Out{base};
       }()),
    OP("index_add_", {in.table.clone().index_add_(0, in.labels, in.x)}),
    OP("index_put_", {in.table.clone().index_put_({in.labels}, in.x)}),
    OP("masked_fill_", {in.x.clone().masked_fill_(in.mask, 2)}),
    OP("mul_ of a diagonal",
       [&] {
         const at::Tensor base = in.square.clone();
         base.diagonal().mul_(3);
         return Out{base};
       }()),
    OP("scatter_add_", {in.x.clone().scatter_add_(0, in.index, in.y)}),
    OP("sigmoid_", {in.x.clone().sigmoid_()}),
    OP("sub_", {in.x.clone().sub_(in.y, 0.5)}),
    OP("t_", {in.x.clone().t_().mul(2)}),
    OP("tril_", {in.square.clone().tril_()}),
    OP("zero_", {in.x.clone().zero_()}),
};

#undef OP
#undef AT_ONCE

struct Ran {
  Out results, gradients;
};

Ran run(const Op& op, const at::Device& where) {
  In in = inputs(where);
  Ran ran{op.run(in), {}};
  at::Tensor total;
  for (const at::Tensor& result : ran.results) {
    if (result.requires_grad()) {
      const at::Tensor sum = (result * result).sum();
      total = total.defined() ? total + sum : sum;
    }
  }
  if (total.defined()) {
    total.backward();
    each(in, [&](const at::Tensor& tensor) { ran.gradients.push_back(tensor.grad()); });
  }
  return ran;
}

void expect_close(const Out& got, const Out& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), want[i].defined()) << what << ' ' << i;
    if (want[i].defined()) {
      EXPECT_EQ(got[i].scalar_type(), want[i].scalar_type()) << what << ' ' << i;
      EXPECT_EQ(got[i].sizes(), want[i].sizes()) << what << ' ' << i;
      EXPECT_EQ(got[i].requires_grad(), want[i].requires_grad()) << what << ' ' << i;
      EXPECT_TRUE(got[i].device().is_xla()) << what << ' ' << i;
      EXPECT_TRUE(at::allclose(got[i].cpu(), want[i], 1e-4, 1e-5, /*equal_nan=*/true)) << what << ' ' << i;
    }
  }
}

std::set<std::string> run_at_once() {
  std::set<std::string> names;
  for (const std::string& name : metrics::counter_names()) {
    if (name.starts_with("aten::")) {
      names.insert(name);
    }
  }
  return names;
}

class Ops : public testing::TestWithParam<Op> {};

TEST_P(Ops, EqualTheCpuForwardAndBackwardAndStayInTheGraph) {
  const Op& op = GetParam();
  metrics::clear_counters();
  const Ran got = run(op, device());
  const std::set<std::string> at_once = run_at_once();
  const Ran want = run(op, at::kCPU);
  expect_close(got.results, want.results, "result");
  expect_close(got.gradients, want.gradients, "gradient");
  EXPECT_EQ(!at_once.empty(), op.at_once) << (at_once.empty() ? "" : *at_once.begin());
}

std::string test_name(const testing::TestParamInfo<Op>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Pointwise, Ops, testing::ValuesIn(kPointwise), test_name);
INSTANTIATE_TEST_SUITE_P(Reductions, Ops, testing::ValuesIn(kReductions), test_name);
INSTANTIATE_TEST_SUITE_P(Shapes, Ops, testing::ValuesIn(kShapes), test_name);
INSTANTIATE_TEST_SUITE_P(Algebra, Ops, testing::ValuesIn(kAlgebra), test_name);
INSTANTIATE_TEST_SUITE_P(Networks, Ops, testing::ValuesIn(kNetworks), test_name);
INSTANTIATE_TEST_SUITE_P(InPlace, Ops, testing::ValuesIn(kInPlace), test_name);

}  // namespace
}  // namespace spool::test
