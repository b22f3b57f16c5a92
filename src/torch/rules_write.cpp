// Ops that write to their first argument and return it.
#include "src/torch/rules.h"

namespace spool::torch_side {
namespace {

std::optional<Results> self(const Arguments& arguments) { return Results{arguments.tensor(0)}; }

// copy_(self, src, non_blocking)
std::optional<Results> copy(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &source = arguments.tensor(1);
  expect(broadcast_shape({self, source}) == self.sizes().vec());
  return Results{self};
}

// _copy_from(self, dst, non_blocking)
std::optional<Results> copy_from(const Arguments& arguments) {
  const auto &source = arguments.tensor(0), &target = arguments.tensor(1);
  expect(broadcast_shape({target, source}) == target.sizes().vec());
  return Results{target};
}

// fill_.Tensor(self, value)
std::optional<Results> fill(const Arguments& arguments) {
  expect(arguments.tensor(1).dim() == 0);
  return Results{arguments.tensor(0)};
}

void check_mask(const at::Tensor& self, const at::Tensor& mask) {
  expect(mask.scalar_type() == at::kBool && broadcast_shape({self, mask}) == self.sizes().vec());
}

// masked_fill_.Scalar(self, mask, value)
std::optional<Results> masked_fill_number(const Arguments& arguments) {
  check_mask(arguments.tensor(0), arguments.tensor(1));
  expect(!arguments[2].toScalar().isComplex() || arguments.tensor(0).is_complex());
  return Results{arguments.tensor(0)};
}

// masked_fill_.Tensor(self, mask, value)
std::optional<Results> masked_fill_tensor(const Arguments& arguments) {
  check_mask(arguments.tensor(0), arguments.tensor(1));
  expect(arguments.tensor(2).dim() == 0);
  return Results{arguments.tensor(0)};
}

// masked_fill.*(self, mask, value): broadcast, always contiguous
std::optional<Results> masked_fill(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  expect(arguments.tensor(1).scalar_type() == at::kBool);
  expect(!arguments[2].isTensor() || arguments.tensor(2).dim() == 0);
  return Results{make_meta(broadcast_shape({self, arguments.tensor(1)}), self.scalar_type())};
}

bool is_random_target(const at::Tensor& self) { return at::isFloatingType(self.scalar_type()) || self.is_complex(); }

// uniform_(self, from, to, *, generator)
std::optional<Results> uniform(const Arguments& arguments) {
  expect(is_random_target(arguments.tensor(0)) && arguments.real(1) <= arguments.real(2));
  return self(arguments);
}

// normal_(self, mean, std, *, generator)
std::optional<Results> normal(const Arguments& arguments) {
  expect(is_random_target(arguments.tensor(0)) && arguments.real(2) >= 0);
  return self(arguments);
}

// bernoulli_.float(self, p, *, generator)
std::optional<Results> bernoulli(const Arguments& arguments) {
  expect(arguments.real(1) >= 0 && arguments.real(1) <= 1);
  return self(arguments);
}

// bernoulli_.Tensor(self, p, *, generator)
std::optional<Results> bernoulli_of_tensor(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &probability = arguments.tensor(1);
  expect(at::isFloatingType(probability.scalar_type()) && broadcast_shape({self, probability}) == self.sizes().vec());
  return Results{self};
}

// exponential_(self, lambd, *, generator)
std::optional<Results> exponential(const Arguments& arguments) {
  expect(at::isFloatingType(arguments.tensor(0).scalar_type()) && arguments.real(1) > 0);
  return self(arguments);
}

bool fits(int64_t value, at::ScalarType dtype) {
  switch (dtype) {
    case at::kByte: return value >= 0 && value <= 255;
    case at::kChar: return value >= -128 && value <= 127;
    case at::kShort: return value >= -32768 && value <= 32767;
    case at::kInt: return value >= -2147483648LL && value <= 2147483647LL;
    case at::kLong:
    case at::kDouble:
    case at::kFloat: return true;
    default:
      // Half, bfloat16, bool and the rest have bounds that the op knows better.
      return value >= 0 && value <= 1;
  }
}

// random_(self), random_.to(self, to), random_.from(self, from, to)
std::optional<Results> random_to(const Arguments& arguments) {
  expect(arguments.integer(1) > 0 && fits(arguments.integer(1) - 1, arguments.tensor(0).scalar_type()));
  return self(arguments);
}

std::optional<Results> random_from(const Arguments& arguments) {
  const auto dtype = arguments.tensor(0).scalar_type();
  expect(fits(arguments.integer(1), dtype) && !arguments.is_none(2));
  expect(arguments.integer(1) < arguments.integer(2) && fits(arguments.integer(2) - 1, dtype));
  return self(arguments);
}

// cauchy_(self, median, sigma), log_normal_(self, mean, std): the spread must be positive
std::optional<Results> spread(const Arguments& arguments) {
  expect(at::isFloatingType(arguments.tensor(0).scalar_type()) && arguments.real(2) > 0);
  return self(arguments);
}

// geometric_(self, p, *, generator)
std::optional<Results> geometric(const Arguments& arguments) {
  expect(arguments.real(1) > 0 && arguments.real(1) < 1 && arguments.tensor(0).scalar_type() != at::kBool);
  return self(arguments);
}

std::optional<Results> not_boolean(const Arguments& arguments) {
  expect(arguments.tensor(0).scalar_type() != at::kBool && !arguments.tensor(0).is_complex());
  return self(arguments);
}

std::optional<Results> floating(const Arguments& arguments) {
  expect(at::isFloatingType(arguments.tensor(0).scalar_type()));
  return self(arguments);
}

// hardtanh_(self, min_val, max_val)
std::optional<Results> hardtanh(const Arguments& arguments) {
  expect(arguments[1].toScalar().toDouble() <= arguments[2].toScalar().toDouble());
  return floating(arguments);
}

// floor_divide_.Tensor(self, other), __ilshift__.Tensor and __irshift__.Tensor
std::optional<Results> with_other(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &other = arguments.tensor(1);
  expect(broadcast_shape({self, other}) == self.sizes().vec() && at::canCast(other.scalar_type(), self.scalar_type()));
  expect(self.scalar_type() != at::kBool);
  return Results{self};
}

// index_fill_.int_Scalar and .int_Tensor(self, dim, index, value)
std::optional<Results> index_fill(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &index = arguments.tensor(2);
  wrapped(arguments.integer(1), self.dim());
  expect(index.scalar_type() == at::kLong && index.dim() <= 1 && !self.is_complex());
  expect(!arguments[3].isTensor() || arguments.tensor(3).dim() == 0);
  return Results{self};
}

// masked_scatter_(self, mask, source)
std::optional<Results> masked_scatter(const Arguments& arguments) {
  check_mask(arguments.tensor(0), arguments.tensor(1));
  expect(arguments.tensor(0).scalar_type() == arguments.tensor(2).scalar_type());
  return self(arguments);
}

// put_(self, index, source, accumulate)
std::optional<Results> put(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &index = arguments.tensor(1), &source = arguments.tensor(2);
  expect(index.scalar_type() == at::kLong && source.scalar_type() == self.scalar_type() && index.numel() == source.numel());
  expect(self.numel() > 0 || index.numel() == 0);
  return Results{self};
}

// addbmm_(self, batch1, batch2, …)
std::optional<Results> add_products(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &left = arguments.tensor(1), &right = arguments.tensor(2);
  expect(left.dim() == 3 && right.dim() == 3 && left.size(0) == right.size(0) && left.size(2) == right.size(1));
  expect(self.dim() == 2 && self.size(0) == left.size(1) && self.size(1) == right.size(2));
  expect(self.scalar_type() == left.scalar_type() && self.scalar_type() == right.scalar_type());
  return Results{self};
}

}  // namespace

void add_write_rules(RuleTable& table) {
  table["aten::copy_"] = copy;
  table["aten::_copy_from"] = copy_from;
  table["aten::fill_.Scalar"] = self;
  table["aten::fill_.Tensor"] = fill;
  table["aten::zero_"] = self;
  table["aten::masked_fill_.Scalar"] = masked_fill_number;
  table["aten::masked_fill_.Tensor"] = masked_fill_tensor;
  table["aten::masked_fill.Scalar"] = masked_fill;
  table["aten::masked_fill.Tensor"] = masked_fill;
  table["aten::uniform_"] = uniform;
  table["aten::normal_"] = normal;
  table["aten::bernoulli_.float"] = bernoulli;
  table["aten::bernoulli_.Tensor"] = bernoulli_of_tensor;
  table["aten::exponential_"] = exponential;
  table["aten::cauchy_"] = spread;
  table["aten::log_normal_"] = spread;
  table["aten::geometric_"] = geometric;
  table["aten::relu_"] = not_boolean;
  table["aten::hardtanh_"] = hardtanh;
  table["aten::hardswish_"] = floating;
  table["aten::logit_"] = floating;
  table["aten::floor_divide_.Tensor"] = with_other;
  table["aten::__ilshift__.Tensor"] = with_other;
  table["aten::__irshift__.Tensor"] = with_other;
  table["aten::__ilshift__.Scalar"] = not_boolean;
  table["aten::__irshift__.Scalar"] = not_boolean;
  table["aten::index_fill_.int_Scalar"] = index_fill;
  table["aten::index_fill_.int_Tensor"] = index_fill;
  table["aten::masked_scatter_"] = masked_scatter;
  table["aten::put_"] = put;
  table["aten::addbmm_"] = add_products;
  table["aten::random_"] = self;
  table["aten::random_.to"] = random_to;
  table["aten::random_.from"] = random_from;
}

}  // namespace spool::torch_side
