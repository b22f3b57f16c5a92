// Ops that fill a tensor given as out= whose size numbers decide, and copies in another form.
#include "src/torch/rules.h"

namespace spool::torch_side {
namespace {

// clone(self, *, memory_format)
std::optional<Results> clone(const Arguments& arguments) {
  return Results{make_meta_like(arguments.tensor(0), std::nullopt,
                                arguments.optional_memory_format(1).value_or(at::MemoryFormat::Preserve))};
}

// _to_copy(self, *, dtype, layout, device, pin_memory, non_blocking, memory_format): the device is the caller's business
std::optional<Results> to_copy(const Arguments& arguments) {
  return Results{make_meta_like(arguments.tensor(0), arguments.optional_dtype(1),
                                arguments.optional_memory_format(6).value_or(at::MemoryFormat::Preserve))};
}

// randperm.generator_out(n, *, generator, out)
std::optional<Results> permutation(const Arguments& arguments) {
  const int64_t n = arguments.integer(0);
  const auto& out = arguments.tensor(2);
  // Every number below n must have a value of its own in out's dtype.
  expect(n >= 0 && !(out.scalar_type() == at::kHalf && n > (1 << 11) + 1) &&
         !(out.scalar_type() == at::kBFloat16 && n > (1 << 8) + 1));
  expect(!(out.scalar_type() == at::kFloat && n > (1 << 24) + 1));
  expect(out.scalar_type() != at::kBool && !out.is_complex());
  expect(!(c10::elementSize(out.scalar_type()) < 4 && at::isIntegralType(out.scalar_type(), true) && n > 127));
  resize_out(out, {n});
  return Results{out};
}

// bernoulli.out(self, *, generator, out)
std::optional<Results> bernoulli_out(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &out = arguments.tensor(2);
  expect(at::isFloatingType(self.scalar_type()));
  resize_out(out, self.sizes());
  return Results{out};
}

// new_empty_strided(self, size, stride, *, dtype, …)
std::optional<Results> new_empty_strided(const Arguments& arguments) {
  const auto sizes = arguments.integers(1), strides = arguments.integers(2);
  expect(sizes.size() == strides.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    expect(sizes[i] >= 0 && strides[i] >= 0);
  }
  return Results{make_meta_strided(sizes, strides, arguments.optional_dtype(3).value_or(arguments.tensor(0).scalar_type()))};
}

// bernoulli.p(self, p, *, generator)
std::optional<Results> bernoulli_like(const Arguments& arguments) {
  expect(arguments.real(1) >= 0 && arguments.real(1) <= 1);
  return Results{make_meta(arguments.tensor(0).sizes(), arguments.tensor(0).scalar_type())};
}

// multinomial(self, num_samples, replacement, *, generator): a row of samples for each row of weights
std::vector<int64_t> sample_sizes(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  const int64_t samples = arguments.integer(1);
  expect((self.dim() == 1 || self.dim() == 2) && at::isFloatingType(self.scalar_type()) && samples > 0);
  expect((arguments.boolean(2) || samples <= self.size(-1)) && self.size(-1) <= (1 << 24));
  return self.dim() == 1 ? std::vector<int64_t>{samples} : std::vector<int64_t>{self.size(0), samples};
}

std::optional<Results> multinomial(const Arguments& arguments) { return Results{make_meta(sample_sizes(arguments), at::kLong)}; }

std::optional<Results> multinomial_out(const Arguments& arguments) {
  expect(arguments.tensor(4).scalar_type() == at::kLong);
  resize_out(arguments.tensor(4), sample_sizes(arguments));
  return Results{arguments.tensor(4)};
}

}  // namespace

void add_factory_rules(RuleTable& table) {
  table["aten::clone"] = clone;
  table["aten::new_empty_strided"] = new_empty_strided;
  table["aten::bernoulli.p"] = bernoulli_like;
  table["aten::multinomial"] = multinomial;
  table["aten::multinomial.out"] = multinomial_out;
  table["aten::_to_copy"] = to_copy;
  table["aten::randperm.generator_out"] = permutation;
  table["aten::bernoulli.out"] = bernoulli_out;
}

}  // namespace spool::torch_side
