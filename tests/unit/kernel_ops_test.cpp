// Every op of a kernel in every dtype, against the interpreter.
#include <gtest/gtest.h>

#include "tests/unit/kernel_build.h"

namespace spool::test {
namespace {

constexpr DType all_dtypes[] = {DType::Bool,  DType::UInt8,   DType::Int8,     DType::Int16,   DType::Int32,
                                DType::Int64, DType::Float16, DType::BFloat16, DType::Float32, DType::Float64};

bool exists(KernelOp op, DType dtype) {
  if (floating(dtype)) {
    return op != KernelOp::BitNot && !(op >= KernelOp::And && op <= KernelOp::Shr);
  }
  const bool common = op == KernelOp::Abs || op == KernelOp::Sign || op == KernelOp::Not || op == KernelOp::BitNot ||
                      op == KernelOp::IsNan || is_comparison(op) || op == KernelOp::Add || op == KernelOp::Sub ||
                      op == KernelOp::Mul || op == KernelOp::Pow || op == KernelOp::Where ||
                      (op >= KernelOp::Maximum && op <= KernelOp::Xor);
  const bool whole = op == KernelOp::Neg || op == KernelOp::Floor || op == KernelOp::Ceil || op == KernelOp::Round ||
                     op == KernelOp::Trunc || op == KernelOp::Div || op == KernelOp::FloorDiv || op == KernelOp::Fmod ||
                     op == KernelOp::Remainder || op == KernelOp::Shl || op == KernelOp::Shr || op == KernelOp::Fma;
  return common || (whole && dtype != DType::Bool);
}

bool gives_bool(KernelOp op) { return is_comparison(op) || op == KernelOp::IsNan || op == KernelOp::Not; }

/// Functions that are right to a unit or so; everything else is right to the last bit.
double tolerance(KernelOp op) {
  if (op == KernelOp::Lgamma) {
    return 8;
  }
  const bool function =
      (op >= KernelOp::Exp && op <= KernelOp::Lgamma) || op == KernelOp::Pow || op == KernelOp::Atan2 || op == KernelOp::Hypot;
  return function ? 2 : 0;
}

void check(KernelOp op, DType dtype, bool special) {
  KernelBuilder k(1, 1);
  std::vector<std::int32_t> operands;
  if (op == KernelOp::Where) {
    operands.push_back(k.load(DType::Bool));
  }
  while (static_cast<int>(operands.size()) < arity(op)) {
    operands.push_back(k.load(dtype));
  }
  if (!floating(dtype) && dtype != DType::Bool && op == KernelOp::Pow) {
    // Small exponents: the interpreter multiplies.
    operands[1] = k.add(KernelOp::Minimum, dtype, {operands[1], k.constant(9, dtype)});
  }
  const auto loads = k.kernel.accesses.size();
  k.store(k.add(op, dtype, operands), gives_bool(op) ? DType::Bool : dtype);
  KernelTrial trial(k.kernel, {211});
  for (std::size_t a = 0; a <= loads; ++a) {
    trial.place({1});
  }
  trial.fill(static_cast<std::uint32_t>(op) * 16 + static_cast<std::uint32_t>(dtype), special);
  trial.run();
  EXPECT_EQ(trial.difference(special ? 4 : tolerance(op)), "");
}

class KernelOps : public testing::TestWithParam<DType> {};

TEST_P(KernelOps, GiveWhatTheInterpreterGives) {
  for (auto op = KernelOp::Neg; op <= KernelOp::Where; op = static_cast<KernelOp>(static_cast<int>(op) + 1)) {
    if (exists(op, GetParam())) {
      check(op, GetParam(), false);
    }
  }
}

TEST_P(KernelOps, HandleInfinitiesAndNan) {
  for (auto op = KernelOp::Neg; floating(GetParam()) && op <= KernelOp::Where;
       op = static_cast<KernelOp>(static_cast<int>(op) + 1)) {
    if (exists(op, GetParam())) {
      check(op, GetParam(), true);
    }
  }
}

TEST_P(KernelOps, CastToEveryDtype) {
  for (const DType to : all_dtypes) {
    KernelBuilder k(1, 1);
    auto value = k.load(GetParam());
    if (to == DType::UInt8 && GetParam() != DType::Bool) {
      value = k.add(KernelOp::Abs, GetParam(), {value});  // negative numbers fit nowhere
    }
    k.store(k.add(KernelOp::Cast, to, {value}), to);
    KernelTrial trial(k.kernel, {211});
    trial.place({1});
    trial.place({1});
    trial.fill(7, false, -100, 100);
    trial.run();
    EXPECT_EQ(trial.difference(0), "");
  }
}

TEST_P(KernelOps, ReduceInEveryWay) {
  for (const KernelOp op : {KernelOp::ReduceSum, KernelOp::ReduceProduct, KernelOp::ReduceMaximum, KernelOp::ReduceMinimum}) {
    for (const KernelOver over : {KernelOver::Rest, KernelOver::Kept, KernelOver::All}) {
      KernelBuilder k(2, 1);
      auto value = k.load(GetParam());
      if (op == KernelOp::ReduceProduct && floating(GetParam())) {
        value = k.add(KernelOp::Exp, GetParam(), {k.add(KernelOp::Mul, GetParam(), {value, k.constant(1.0 / 64, GetParam())})});
      }
      k.store(k.reduce(op, value, over, GetParam()), GetParam());
      KernelTrial trial(k.kernel, {9, 83});
      trial.place({83, 1});
      trial.place(over == KernelOver::Rest   ? std::vector<std::int64_t>{1, 0}
                  : over == KernelOver::Kept ? std::vector<std::int64_t>{0, 1}
                                             : std::vector<std::int64_t>{0, 0});
      trial.fill(11);
      trial.run();
      const bool exact = op == KernelOp::ReduceMaximum || op == KernelOp::ReduceMinimum;
      EXPECT_EQ(trial.difference(exact ? 0 : op == KernelOp::ReduceProduct ? 200 : 8, 30), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllDtypes, KernelOps, testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace spool::test
