// Generated code against the interpreter.
#include <gtest/gtest.h>

#include "tests/unit/kernel_build.h"

namespace spool::test {
namespace {

constexpr DType f32 = DType::Float32;

TEST(KernelCode, SoftmaxOfRows) {
  for (const std::int64_t length : {1, 7, 64, 100, 1000}) {
    KernelBuilder k(2, 1);
    const auto x = k.load();
    const auto most = k.reduce(KernelOp::ReduceMaximum, x, KernelOver::Rest);
    const auto e = k.add(KernelOp::Exp, f32, {k.add(KernelOp::Sub, f32, {x, most})});
    k.store(k.add(KernelOp::Div, f32, {e, k.reduce(KernelOp::ReduceSum, e, KernelOver::Rest)}));
    KernelTrial trial(k.kernel, {37, length});
    trial.place({length, 1});
    trial.place({length, 1});
    trial.fill(1);
    trial.run();
    EXPECT_EQ(trial.difference(16), "") << length;
  }
}

TEST(KernelCode, SoftmaxOfColumnsIsComputedAcrossRows) {
  KernelBuilder k(2, 1);
  const auto x = k.load();
  const auto most = k.reduce(KernelOp::ReduceMaximum, x, KernelOver::Rest);
  const auto e = k.add(KernelOp::Exp, f32, {k.add(KernelOp::Sub, f32, {x, most})});
  k.store(k.add(KernelOp::Div, f32, {e, k.reduce(KernelOp::ReduceSum, e, KernelOver::Rest)}));
  KernelTrial trial(k.kernel, {135, 21});
  trial.place({1, 135});
  trial.place({1, 135});
  trial.fill(2);
  trial.run();
  EXPECT_EQ(trial.difference(16), "");
}

TEST(KernelCode, SumsOverKeptRestAndAll) {
  for (const KernelOver over : {KernelOver::Rest, KernelOver::Kept, KernelOver::All}) {
    for (const bool transposed : {false, true}) {
      for (const std::int64_t rows : {1, 5, 300}) {
        for (const std::int64_t columns : {1, 18, 700}) {
          KernelBuilder k(2, 1);
          const auto x = k.load();
          k.store(k.add(KernelOp::Mul, f32, {k.reduce(KernelOp::ReduceSum, x, over), k.constant(0.5)}));
          KernelTrial trial(k.kernel, {rows, columns});
          trial.place(transposed ? std::vector<std::int64_t>{1, rows} : std::vector<std::int64_t>{columns, 1});
          trial.place(over == KernelOver::Rest   ? std::vector<std::int64_t>{1, 0}
                      : over == KernelOver::Kept ? std::vector<std::int64_t>{0, 1}
                                                 : std::vector<std::int64_t>{0, 0});
          trial.fill(3);
          trial.run();
          EXPECT_EQ(trial.difference(64, 100), "") << rows << " rows, " << columns << " columns, transposed " << transposed;
        }
      }
    }
  }
}

TEST(KernelCode, UpdatesInPlaceWithNumbers) {
  KernelBuilder k(3, 3);
  const auto p = k.load();
  const auto g = k.load();
  const auto rate = k.add(KernelOp::Cast, f32, {k.number(DType::Float64)});
  k.store(k.add(KernelOp::Sub, f32, {p, k.add(KernelOp::Mul, f32, {g, rate})}));
  KernelTrial trial(k.kernel, {5, 70, 33});
  trial.place({33 * 70, 33, 1});
  trial.place({1, 5, 350});
  trial.place({33 * 70, 33, 1}, 0, 0);
  trial.numbers() = {std::bit_cast<std::int64_t>(0.1)};
  trial.fill(4);
  trial.run();
  EXPECT_EQ(trial.difference(0), "");
}

}  // namespace
}  // namespace spool::test
