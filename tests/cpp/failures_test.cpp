// Bad input and failing plans: errors of eager's type at the call, or at the next read with the op's name.
#include "tests/cpp/device_state.h"

namespace spool::test {
namespace {

/// The same wrong call on both devices: the same type of exception at the call, the same message, and later work is fine.
template <class E, class Body>
void expect_eagers_error(const Body& body) {
  const auto thrown = [&](const at::Device& where) {
    try {
      body(at::arange(6, at::kFloat).view({2, 3}).to(where));
    } catch (const E& error) {
      return std::string(error.what_without_backtrace());
    }
    ADD_FAILURE() << "no exception of the expected type on " << where;
    return std::string();
  };
  ready({1});
  EXPECT_EQ(thrown(device()), thrown(at::kCPU));
  EXPECT_EQ(launches(), 0) << "the error comes at the call";
  expect_same(ready({3}) + 1, at::arange(3, at::kFloat) + 1);
}

TEST(WrongCall, ThrowsEagersExceptionAtTheCall) {
  expect_eagers_error<c10::Error>([](const at::Tensor& x) { x.mm(x); });
  expect_eagers_error<c10::Error>([](const at::Tensor& x) { return x + at::ones({2, 4}, x.options()); });
  expect_eagers_error<c10::IndexError>([](const at::Tensor& x) { return x.select(0, 9); });
  expect_eagers_error<c10::IndexError>([](const at::Tensor& x) { return x.sum(5); });
  expect_eagers_error<c10::Error>([](const at::Tensor& x) { return x.view({4, 4}); });
  expect_eagers_error<c10::Error>([](const at::Tensor& x) { return x.mm(x.t().to(at::kLong)); });
  expect_eagers_error<c10::Error>([](const at::Tensor& x) { return at::cat({x, x.t()}, 0); });
  expect_eagers_error<c10::Error>([](const at::Tensor& x) { return at::empty({-1}, x.options()); });
  expect_eagers_error<c10::Error>([](const at::Tensor& x) { return x.item(); });
}

TEST(WrongCall, MixingDevicesIsEagersDeviceError) {
  const at::Tensor x = ready({3});
  const std::string message = message_of<c10::Error>([&] { x + at::ones({3}); });
  EXPECT_TRUE(has(message, "Expected all tensors to be on the same device")) << message;
  expect_same(x + 1, at::arange(3, at::kFloat) + 1);
}

at::Tensor out_of_range(const at::Tensor& x) { return x.index_select(0, at::full({1}, 400, at::kLong).to(device())); }

TEST(FailingPlan, SurfacesAtTheNextReadWithTheOpsName) {
  const at::Tensor x = ready({4});
  const at::Tensor before = x + 1;
  sync();
  const at::Tensor bad = out_of_range(x);
  const std::string message = message_of<c10::Error>([&] { bad.cpu(); });
  EXPECT_TRUE(has(message, "aten::index_select")) << message;
  EXPECT_THROW(bad.cpu(), c10::Error) << "it stays lost";
  expect_same(before, at::arange(4, at::kFloat) + 1);
  expect_same(x, at::arange(4, at::kFloat));
  sync(true);  // it has been told
}

TEST(FailingPlan, SurfacesAtTheNextWaitOnce) {
  const at::Tensor x = ready({4});
  const at::Tensor bad = out_of_range(x);
  barrier();
  const std::string message = message_of<c10::Error>([] { synchronize(); });
  EXPECT_TRUE(has(message, "aten::index_select")) << message;
  synchronize();
  wait_device_ops();
  sync(true);

  const at::Tensor again = out_of_range(x);
  EXPECT_THROW(sync(true), c10::Error);
  const at::Tensor third = out_of_range(x);
  barrier();
  EXPECT_THROW(wait_device_ops(), c10::Error);
}

TEST(FailingPlan, PoisonsWhatFollowsFromItAndNothingElse) {
  const at::Tensor x = ready({4});
  const at::Tensor bad = out_of_range(x);
  barrier();
  const at::Tensor from_bad = bad * 2;
  barrier();
  const at::Tensor fine = x * 2;
  expect_same(fine, at::arange(4, at::kFloat) * 2);
  const std::string message = message_of<c10::Error>([&] { from_bad.cpu(); });
  EXPECT_TRUE(has(message, "aten::index_select")) << message;
  sync(true);
}

TEST(FailingPlan, WhatIsPoisonedCanBeWrittenAnew) {
  at::Tensor bad = out_of_range(ready({4}));
  EXPECT_THROW(bad.cpu(), c10::Error);
  bad.copy_(at::ones({1}));
  expect_same(bad, at::ones({1}));
}

TEST(FailingPlan, AStepThatFailsLeavesTheNextOneFine) {
  at::Tensor weight = ready({4});
  const at::Tensor x = ready({4});
  step([&] { weight.add_(out_of_range(x)); });
  EXPECT_THROW(sync(true), c10::Error);
  EXPECT_THROW(weight.cpu(), c10::Error) << "it should have been written by the graph that failed";
  at::Tensor other = ready({4});
  step([&] { other.add_(1); });
  expect_same(other, at::arange(4, at::kFloat) + 1);
}

TEST(FailingPlan, RunsAgainNormallyOnceItsInputIsRight) {
  const at::Tensor x = ready({4});
  for (const std::int64_t index : {9, 2, 9, 3}) {
    const at::Tensor picked = x.index_select(0, at::full({1}, index, at::kLong).to(device()));
    if (index == 9) {
      EXPECT_THROW(picked.cpu(), c10::Error);
    } else {
      EXPECT_EQ(picked.item<float>(), static_cast<float>(index));
    }
  }
  sync(true);
}

}  // namespace
}  // namespace spool::test
