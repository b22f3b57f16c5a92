// Reductions that have no meta function of their own, and products of vectors.
#include "src/torch/rules.h"

#include <numeric>

namespace spool::torch_side {
namespace {

// The sizes left after reducing `dims`; all of them where there are none.
std::vector<int64_t> reduced_sizes(const at::Tensor& self, std::vector<int64_t> dims, bool keepdim) {
  const int64_t rank = self.dim();
  if (dims.empty()) {
    dims.resize(static_cast<size_t>(rank));
    std::iota(dims.begin(), dims.end(), 0);
  }
  std::vector<bool> reduce(static_cast<size_t>(rank), false);
  for (const int64_t dim : dims) {
    const auto at = static_cast<size_t>(wrapped(dim, rank));
    if (rank > 0) {
      expect(!reduce[at]);
      reduce[at] = true;
    }
  }
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < rank; ++d) {
    if (!reduce[static_cast<size_t>(d)]) {
      sizes.push_back(self.size(d));
    } else if (keepdim) {
      sizes.push_back(1);
    }
  }
  return sizes;
}

std::vector<int64_t> optional_dims(const Arguments& arguments, size_t i) {
  return arguments.is_none(i) ? std::vector<int64_t>() : arguments.integers(i);
}

at::ScalarType sum_dtype(const at::Tensor& self, std::optional<at::ScalarType> dtype) {
  return dtype.value_or(at::isIntegralType(self.scalar_type(), /*includeBool=*/true) ? at::kLong : self.scalar_type());
}

// var.correction and std.correction(self, dim, *, correction, keepdim)
at::Tensor variance_of(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  expect(at::isFloatingType(self.scalar_type()) || self.is_complex());
  return make_meta(reduced_sizes(self, optional_dims(arguments, 1), arguments.boolean(3)),
                   c10::toRealValueType(self.scalar_type()));
}

std::optional<Results> variance(const Arguments& arguments) { return Results{variance_of(arguments)}; }

std::optional<Results> variance_out(const Arguments& arguments) {
  const auto& out = arguments.tensor(4);
  const auto result = variance_of(arguments);
  expect(at::canCast(arguments.tensor(0).scalar_type(), out.scalar_type()) && !arguments.tensor(0).is_complex());
  resize_out(out, result.sizes());
  return Results{out};
}

std::optional<Results> variance_and_mean(const Arguments& arguments) {
  const auto variance = variance_of(arguments);
  return Results{variance, make_meta(variance.sizes(), arguments.tensor(0).scalar_type())};
}

// prod(self, *, dtype): everything multiplied
std::optional<Results> product(const Arguments& arguments) {
  return Results{make_meta({}, sum_dtype(arguments.tensor(0), arguments.optional_dtype(1)))};
}

// max(self), min(self), median(self)
std::optional<Results> extreme(const Arguments& arguments) {
  expect(arguments.tensor(0).numel() > 0 && !arguments.tensor(0).is_complex());
  return Results{make_meta({}, arguments.tensor(0).scalar_type())};
}

std::optional<Results> extreme_out(const Arguments& arguments) {
  const auto& out = arguments.tensor(1);
  expect(arguments.tensor(0).numel() > 0 && out.scalar_type() == arguments.tensor(0).scalar_type());
  resize_out(out, {});
  return Results{out};
}

std::optional<Results> median(const Arguments& arguments) {
  expect(!arguments.tensor(0).is_complex() && arguments.tensor(0).scalar_type() != at::kBool);
  return Results{make_meta({}, arguments.tensor(0).scalar_type())};
}

// nansum(self, dim, keepdim, *, dtype)
std::optional<Results> nan_sum(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  expect(!self.is_complex());
  return Results{make_meta(reduced_sizes(self, optional_dims(arguments, 1), arguments.boolean(2)),
                           sum_dtype(self, arguments.optional_dtype(3)))};
}

// count_nonzero.dim_IntList(self, dim)
std::optional<Results> count_nonzero(const Arguments& arguments) {
  return Results{make_meta(reduced_sizes(arguments.tensor(0), arguments.integers(1), false), at::kLong)};
}

std::optional<Results> trace(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  expect(self.dim() == 2);
  return Results{make_meta({}, sum_dtype(self, std::nullopt))};
}

// dot(self, tensor), vdot(self, other)
std::optional<Results> dot(const Arguments& arguments) {
  const auto &left = arguments.tensor(0), &right = arguments.tensor(1);
  expect(left.dim() == 1 && right.dim() == 1 && left.numel() == right.numel() && left.scalar_type() == right.scalar_type());
  expect(left.scalar_type() != at::kBool);
  return Results{make_meta({}, left.scalar_type())};
}

// _logcumsumexp(self, dim)
std::optional<Results> log_cumulative_sum(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  wrapped(arguments.integer(1), self.dim());
  expect(at::isFloatingType(self.scalar_type()) || self.is_complex());
  return Results{make_meta(self.sizes(), self.scalar_type())};
}

// logsumexp.out(self, dim, keepdim, out)
std::optional<Results> log_sum_exp_out(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &out = arguments.tensor(3);
  expect(at::isFloatingType(self.scalar_type()) && out.scalar_type() == self.scalar_type());
  resize_out(out, reduced_sizes(self, arguments.integers(1), arguments.boolean(2)));
  return Results{out};
}

// Writes sizes with `dim` reduced to the last two arguments: the values found and where they were.
Results into_values_and_indices(const Arguments& arguments, int64_t dim, bool keepdim) {
  const auto& self = arguments.tensor(0);
  const auto &values = arguments.tensor(arguments.size() - 2), &indices = arguments.tensor(arguments.size() - 1);
  dim = wrapped(dim, self.dim());
  expect(self.dim() == 0 || self.size(dim) > 0);
  expect(!self.is_complex() && self.scalar_type() != at::kBool && values.scalar_type() == self.scalar_type());
  expect(indices.scalar_type() == at::kLong);
  const auto sizes = reduced_sizes(self, {dim}, keepdim);
  resize_out(values, sizes);
  resize_out(indices, sizes);
  return {values, indices};
}

// median.dim_values, nanmedian.dim_values and mode.values(self, dim, keepdim, values, indices)
std::optional<Results> median_out(const Arguments& arguments) {
  return into_values_and_indices(arguments, arguments.integer(1), arguments.boolean(2));
}

// kthvalue.values(self, k, dim, keepdim, values, indices)
std::optional<Results> kth_value_out(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  const int64_t dim = wrapped(arguments.integer(2), self.dim());
  expect(arguments.integer(1) >= 1 && arguments.integer(1) <= (self.dim() == 0 ? 1 : self.size(dim)));
  return into_values_and_indices(arguments, dim, arguments.boolean(3));
}

// mode(self, dim, keepdim)
std::optional<Results> mode(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  const int64_t dim = wrapped(arguments.integer(1), self.dim());
  expect((self.dim() == 0 || self.size(dim) > 0) && !self.is_complex());
  const auto sizes = reduced_sizes(self, {dim}, arguments.boolean(2));
  return Results{make_meta(sizes, self.scalar_type()), make_meta(sizes, at::kLong)};
}

// addbmm(self, batch1, batch2, beta, alpha)
std::optional<Results> batched_product_sum(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &left = arguments.tensor(1), &right = arguments.tensor(2);
  expect(left.dim() == 3 && right.dim() == 3 && left.size(0) == right.size(0) && left.size(2) == right.size(1));
  expect(left.scalar_type() == right.scalar_type() && left.scalar_type() == self.scalar_type());
  const std::vector<int64_t> sizes{left.size(1), right.size(2)};
  expect(broadcast_shape({self, make_meta(sizes, self.scalar_type())}) == sizes);
  return Results{make_meta(sizes, self.scalar_type())};
}

// _cdist_forward(x1, x2, p, compute_mode)
std::optional<Results> distances(const Arguments& arguments) {
  const auto &left = arguments.tensor(0), &right = arguments.tensor(1);
  expect(left.dim() >= 2 && right.dim() >= 2 && left.size(-1) == right.size(-1) && arguments.real(2) >= 0);
  expect(left.scalar_type() == right.scalar_type() && at::isFloatingType(left.scalar_type()));
  const auto batch = [](const at::Tensor& tensor) {
    return make_meta(tensor.sizes().slice(0, static_cast<size_t>(tensor.dim() - 2)), tensor.scalar_type());
  };
  auto sizes = broadcast_shape({batch(left), batch(right)});
  sizes.insert(sizes.end(), {left.size(-2), right.size(-2)});
  return Results{make_meta(sizes, left.scalar_type())};
}

// _cdist_backward(grad, x1, x2, p, cdist)
std::optional<Results> distances_gradient(const Arguments& arguments) {
  const auto &gradient = arguments.tensor(0), &left = arguments.tensor(1), &right = arguments.tensor(2);
  expect(left.dim() >= 2 && right.dim() >= 2 && gradient.dim() >= 2 && left.size(-1) == right.size(-1));
  expect(left.scalar_type() == right.scalar_type() && at::isFloatingType(left.scalar_type()));
  auto sizes = gradient.sizes().slice(0, static_cast<size_t>(gradient.dim() - 2)).vec();
  sizes.insert(sizes.end(), {left.size(-2), left.size(-1)});
  if (left.numel() == 0 || right.numel() == 0) {
    return Results{make_meta_like(left)};
  }
  return Results{make_meta(sizes, left.scalar_type())};
}

// linalg_pinv.atol_rtol_tensor(self, *, atol, rtol, hermitian)
std::optional<Results> pseudo_inverse(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  expect(self.dim() >= 2 && (at::isFloatingType(self.scalar_type()) || self.is_complex()));
  expect(!arguments.boolean(3) || self.size(-1) == self.size(-2));
  auto sizes = self.sizes().vec();
  std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  return Results{make_meta(sizes, self.scalar_type())};
}

}  // namespace

void add_reduction_rules(RuleTable& table) {
  table["aten::var.correction"] = variance;
  table["aten::std.correction"] = variance;
  table["aten::var.correction_out"] = variance_out;
  table["aten::std.correction_out"] = variance_out;
  table["aten::var_mean.correction"] = variance_and_mean;
  table["aten::std_mean.correction"] = variance_and_mean;
  table["aten::prod"] = product;
  table["aten::max"] = extreme;
  table["aten::min"] = extreme;
  table["aten::max.unary_out"] = extreme_out;
  table["aten::min.unary_out"] = extreme_out;
  table["aten::median"] = median;
  table["aten::nanmedian"] = median;
  table["aten::logsumexp.out"] = log_sum_exp_out;
  table["aten::median.dim_values"] = median_out;
  table["aten::nanmedian.dim_values"] = median_out;
  table["aten::mode.values"] = median_out;
  table["aten::mode"] = mode;
  table["aten::addbmm"] = batched_product_sum;
  table["aten::_cdist_forward"] = distances;
  table["aten::_cdist_backward"] = distances_gradient;
  table["aten::linalg_pinv.atol_rtol_tensor"] = pseudo_inverse;
  table["aten::kthvalue.values"] = kth_value_out;
  table["aten::nansum"] = nan_sum;
  table["aten::count_nonzero.dim_IntList"] = count_nonzero;
  table["aten::trace"] = trace;
  table["aten::dot"] = dot;
  table["aten::vdot"] = dot;
  table["aten::_logcumsumexp"] = log_cumulative_sum;
}

}  // namespace spool::torch_side
