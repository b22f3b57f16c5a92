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

} // namespace

void add_factory_rules(RuleTable& table) {
  table["aten::clone"] = clone;
  table["aten::_to_copy"] = to_copy;
  table["aten::randperm.generator_out"] = permutation;
  table["aten::bernoulli.out"] = bernoulli_out;
}

} // namespace spool::torch_side
