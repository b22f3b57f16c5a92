// Layer, batch and group normalisation and their gradients.
#include <algorithm>
#include <optional>

#include "src/ops/decompositions.h"

namespace spool {
namespace {

bool given(const Arg& arg) { return arg.tag == Tag::Tensor; }

/// Whether the pieces would be understood: floating point, and not empty (whose statistics are ATen's own affair).
bool suits(const Arg& input) { return given(input) && is_floating(input.geometry.dtype) && input.geometry.numel() > 0; }

std::int64_t count(const View& x, const Sizes& dims) {
  std::int64_t product = 1;
  for (const std::int64_t d : dims) {
    product *= x.size(static_cast<std::size_t>(d));
  }
  return product;
}

Sizes from_to(std::size_t first, std::size_t end) {
  Sizes dims;
  for (std::size_t d = first; d < end; ++d) {
    dims.push_back(static_cast<std::int64_t>(d));
  }
  return dims;
}

/// x as deviation from its mean over `dims`, with the mean and 1 / sqrt(variance + eps), all in the type to accumulate in; the mean
/// and the deviation's scale have size 1 there.
struct Standardised {
  View deviation, mean, rstd;
  std::optional<View> variance;
};

struct Statistics {
  ValueId mean = no_value, rstd = no_value;  ///< results to define, if they have that type
};

Standardised standardise(Builder& b, const View& x, const Sizes& dims, const Arg& eps, Statistics results) {
  const auto n = static_cast<double>(count(x, dims));
  Standardised result;
  result.mean = b.kept(b.div(b.sum(x, dims, true), n), results.mean);
  result.deviation = b.sub(x, result.mean);
  result.variance = b.div(b.sum(b.square(result.deviation), dims, true), n);
  result.rstd = b.kept(b.rsqrt(b.add(*result.variance, Builder::wrapped(eps))), results.rstd);
  return result;
}

/// x * weight + bias, as far as they are there; `place` says how they lie along x.
template <class Place>
View scaled(Builder& b, View x, const Arg& weight, const Arg& bias, Place&& place) {
  if (given(weight)) {
    x = b.mul(x, b.to(place(Builder::view(weight)), x.dtype()));
  }
  if (given(bias)) {
    x = b.add(x, b.to(place(Builder::view(bias)), x.dtype()));
  }
  return x;
}

// native_layer_norm(input, normalized_shape, weight, bias, eps) → (output, mean, rstd)
bool layer_norm(const Node& node, Builder& b, Decomposed& /*known*/) {
  if (!suits(node.args[0])) {
    return false;
  }
  const View input = Builder::view(node.args[0]);
  const std::size_t axis = input.rank() - node.args[1].list.size();
  const View x = b.to(input, accumulation(input.dtype()));
  const Standardised s = standardise(b, x, from_to(axis, input.rank()), node.args[4], {node.results[1], node.results[2]});
  const View y = scaled(b, b.mul(s.deviation, s.rstd), node.args[2], node.args[3], [](const View& p) { return p; });
  b.define_as(node.results[0], y);
  return true;
}

/// Gradients of x, scale and shift of y = xhat * scale + shift, xhat = (x - mean) * rstd with statistics over `dims`.
struct Gradients {
  View dy, xhat, rstd;
  Sizes dims;

  View input(Builder& b, const View& scaled_dy) const {
    const auto n = static_cast<double>(count(xhat, dims));
    const View shift = b.div(b.sum(scaled_dy, dims, true), n);
    const View slope = b.div(b.sum(b.mul(scaled_dy, xhat), dims, true), n);
    const View level = b.sub(scaled_dy, shift);
    return b.mul(b.sub(level, b.mul(xhat, slope)), rstd);
  }
};

// native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)
bool layer_norm_backward(const Node& node, Builder& b, Decomposed& /*known*/) {
  if (!suits(node.args[1]) || !given(node.args[0])) {
    return false;
  }
  const View input = Builder::view(node.args[1]);
  const DType type = accumulation(input.dtype());
  const std::size_t axis = input.rank() - node.args[2].list.size();
  const View x = b.to(input, type);
  const View mean = b.to(Builder::view(node.args[3]), type);
  Gradients g{.dy = b.to(Builder::view(node.args[0]), type), .xhat = {}, .rstd = b.to(Builder::view(node.args[4]), type)};
  g.xhat = b.mul(b.sub(x, mean), g.rstd);
  g.dims = from_to(axis, input.rank());
  if (node.results[0] != no_value) {
    const View scaled_dy = scaled(b, g.dy, node.args[5], Arg{}, [](const View& p) { return p; });
    b.define_as(node.results[0], g.input(b, scaled_dy));
  }
  const Sizes outer = from_to(0, axis);
  const auto parameter = [&](ValueId id, const View& each) {
    if (id != no_value) {
      b.define_as(id, axis == 0 ? each : b.sum(each, outer, false));
    }
  };
  if (node.results[1] != no_value) {
    parameter(node.results[1], b.mul(g.dy, g.xhat));
  }
  parameter(node.results[2], g.dy);
  return true;
}

/// How a vector over channels lies along a batch.
auto over_channels(const View& batch) {
  return [rank = batch.rank()](const View& vector) { return Builder::placed(vector, {1}, rank); };
}

Sizes all_but_channels(const View& batch) {
  Sizes dims = from_to(0, batch.rank());
  dims.erase(dims.begin() + 1);
  return dims;
}

struct BatchNorm {
  Arg input, weight, bias, mean, variance, momentum, eps;
  bool training = true;
};

bool batch_norm_of(const BatchNorm& norm, const Node& node, Builder& b) {
  // Running statistics that share storage, or only one of them, stay with ATen.
  const std::size_t updated = norm.training ? static_cast<std::size_t>(given(norm.mean)) + (given(norm.variance) ? 1U : 0U) : 0U;
  const std::size_t next = node.results.size() - static_cast<std::size_t>(node.fresh);
  if (!suits(norm.input) || norm.input.geometry.sizes.size() < 2 || next != updated || updated == 1 || node.fresh < 3) {
    return false;
  }
  const View input = Builder::view(norm.input);
  const DType type = accumulation(input.dtype());
  const View x = b.to(input, type);
  const auto place = over_channels(input);
  const Sizes dims = all_but_channels(input);
  if (!norm.training) {
    if (!given(norm.mean) || !given(norm.variance)) {
      return false;
    }
    const View deviation = b.sub(x, b.to(place(Builder::view(norm.mean)), type));
    const View variance = b.to(place(Builder::view(norm.variance)), type);
    const View rstd = b.rsqrt(b.add(variance, Builder::wrapped(norm.eps)));
    b.define_as(node.results[0], scaled(b, b.mul(deviation, rstd), norm.weight, norm.bias, place));
    b.define_undefined(node.results[1]);
    b.define_undefined(node.results[2]);
    return true;
  }
  const std::int64_t n = count(input, dims);
  if (n < 2) {
    return false;
  }
  const Standardised s = standardise(b, x, dims, norm.eps, {node.results[1], node.results[2]});
  b.define_as(node.results[0], scaled(b, b.mul(s.deviation, s.rstd), norm.weight, norm.bias, place));
  if (updated == 2) {
    const auto follow = [&](const Arg& running, const View& statistic, ValueId id) {
      View vector = b.to(statistic, running.geometry.dtype);
      vector.geometry = row_major(vector.dtype(), {input.size(1)});
      b.update("aten::lerp_.Scalar", Builder::view(running), {Builder::tensor(vector), norm.momentum}, id);
    };
    const auto unbiased = static_cast<double>(n) / static_cast<double>(n - 1);
    follow(norm.mean, s.mean, node.results[static_cast<std::size_t>(node.fresh)]);
    follow(norm.variance, b.mul(*s.variance, unbiased), node.results[static_cast<std::size_t>(node.fresh) + 1]);
  }
  return true;
}

// native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps) → (output, save_mean, save_invstd)
bool batch_norm(const Node& node, Builder& b, Decomposed& /*known*/) {
  const auto& a = node.args;
  return batch_norm_of({a[0], a[1], a[2], a[3], a[4], a[6], a[7], a[5].integer != 0}, node, b);
}

// _native_batch_norm_legit.no_stats(input, weight, bias, training, momentum, eps)
bool batch_norm_no_statistics(const Node& node, Builder& b, Decomposed& /*known*/) {
  const auto& a = node.args;
  return a[3].integer != 0 && batch_norm_of({a[0], a[1], a[2], Arg{}, Arg{}, a[4], a[5], true}, node, b);
}

// native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask)
bool batch_norm_backward(const Node& node, Builder& b, Decomposed& /*known*/) {
  const auto& a = node.args;
  const bool training = a[7].integer != 0;
  const Arg& centre = training ? a[5] : a[3];
  const Arg& scale = training ? a[6] : a[4];
  if (!suits(a[1]) || !given(a[0]) || a[1].geometry.sizes.size() < 2 || !given(centre) || !given(scale) ||
      centre.geometry.numel() != a[1].geometry.sizes[1] || scale.geometry.numel() != a[1].geometry.sizes[1]) {
    return false;
  }
  const View input = Builder::view(a[1]);
  const DType type = accumulation(input.dtype());
  const auto place = over_channels(input);
  const View mean = b.to(place(Builder::view(centre)), type);
  Gradients g{.dy = b.to(Builder::view(a[0]), type), .xhat = {}, .rstd = b.to(place(Builder::view(scale)), type)};
  if (!training) {
    g.rstd = b.rsqrt(b.add(g.rstd, Builder::wrapped(a[8])));
  }
  g.xhat = b.mul(b.sub(b.to(input, type), mean), g.rstd);
  g.dims = all_but_channels(input);
  // The sums that the parameters' gradients are, are also what the input's gradient needs.
  const auto n = static_cast<double>(count(input, g.dims));
  const bool sums = training || node.results[1] != no_value;
  const View slope = sums ? b.kept(b.sum(b.mul(g.dy, g.xhat), g.dims, true), node.results[1]) : View{};
  const View shift = training || node.results[2] != no_value ? b.kept(b.sum(g.dy, g.dims, true), node.results[2]) : View{};
  if (node.results[0] != no_value) {
    View dx = g.dy;
    if (training) {
      const View level = b.sub(g.dy, b.div(shift, n));
      const View tilt = b.mul(g.xhat, b.div(slope, n));
      dx = b.sub(level, tilt);
    }
    b.define_as(node.results[0], scaled(b, b.mul(dx, g.rstd), a[2], Arg{}, place));
  }
  return true;
}

/// A batch [N, C, …] with its channels in groups: [N, groups, C / groups, …].
View grouped(const View& batch, std::int64_t groups) { return Builder::split(batch, 1, {groups, batch.size(1) / groups}); }

// native_group_norm(input, weight, bias, N, C, HxW, group, eps) → (output, mean, rstd)
bool group_norm(const Node& node, Builder& b, Decomposed& /*known*/) {
  const auto& a = node.args;
  if (!suits(a[0])) {
    return false;
  }
  const View input = grouped(Builder::view(a[0]), a[6].integer);
  const auto place = [&](const View& vector) {
    return Builder::placed(Builder::split(vector, 0, {input.size(1), input.size(2)}), {1, 2}, input.rank());
  };
  const View x = b.to(input, accumulation(input.dtype()));
  const Standardised s = standardise(b, x, from_to(2, input.rank()), a[7], {node.results[1], node.results[2]});
  const Geometry layout = grouped({node.results[0], b.value(node.results[0]).geometry}, a[6].integer).geometry;
  b.define_as(node.results[0], scaled(b, b.mul(s.deviation, s.rstd), a[1], a[2], place), &layout);
  return true;
}

// native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)
bool group_norm_backward(const Node& node, Builder& b, Decomposed& /*known*/) {
  const auto& a = node.args;
  if (!suits(a[1]) || !given(a[0]) || !given(a[2]) || !given(a[3])) {
    return false;
  }
  const std::int64_t groups = a[8].integer;
  const View input = grouped(Builder::view(a[1]), groups);
  const DType type = accumulation(input.dtype());
  const auto of_groups = [&](const Arg& arg) { return b.to(Builder::placed(Builder::view(arg), {0, 1}, input.rank()), type); };
  const auto of_channels = [&](const View& vector) {
    return Builder::placed(Builder::split(vector, 0, {input.size(1), input.size(2)}), {1, 2}, input.rank());
  };
  const View mean = of_groups(a[2]);
  Gradients g{.dy = b.to(grouped(Builder::view(a[0]), groups), type), .xhat = {}, .rstd = of_groups(a[3])};
  g.xhat = b.mul(b.sub(b.to(input, type), mean), g.rstd);
  g.dims = from_to(2, input.rank());
  if (node.results[0] != no_value) {
    const Geometry layout = grouped({node.results[0], b.value(node.results[0]).geometry}, groups).geometry;
    b.define_as(node.results[0], g.input(b, scaled(b, g.dy, a[4], Arg{}, of_channels)), &layout);
  }
  Sizes others = from_to(3, input.rank());
  others.insert(others.begin(), 0);
  const auto parameter = [&](ValueId id, const View& each) {
    const Geometry layout = Builder::split({id, b.value(id).geometry}, 0, {input.size(1), input.size(2)}).geometry;
    b.define_as(id, b.sum(each, others, false), &layout);
  };
  if (node.results[1] != no_value) {
    parameter(node.results[1], b.mul(g.dy, g.xhat));
  }
  if (node.results[2] != no_value) {
    parameter(node.results[2], g.dy);
  }
  return true;
}

}  // namespace

void add_normalisation_decompositions(DecompositionTable& table) {
  table["aten::native_layer_norm"] = layer_norm;
  table["aten::native_layer_norm_backward"] = layer_norm_backward;
  table["aten::native_batch_norm"] = batch_norm;
  table["aten::_native_batch_norm_legit"] = batch_norm;
  table["aten::_native_batch_norm_legit.no_stats"] = batch_norm_no_statistics;
  table["aten::native_batch_norm_backward"] = batch_norm_backward;
  table["aten::native_group_norm"] = group_norm;
  table["aten::native_group_norm_backward"] = group_norm_backward;
}

}  // namespace spool
