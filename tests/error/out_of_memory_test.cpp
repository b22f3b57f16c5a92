// A plan that asks for more memory than there is: a clear error, and the process and its tensors live on.
#include "tests/cpp/device_state.h"

namespace spool::test {
namespace {

constexpr std::int64_t far_too_many = std::int64_t{1} << 44;  // 64 TiB of floats: refused whatever the system overcommits

struct OutOfMemory : testing::TestWithParam<const char*> {
  OutOfMemory() : before_(engine_name()) { set_engine(GetParam()); }
  ~OutOfMemory() override { set_engine(before_); }
  std::string before_;
};

void expect_clear(const std::string& message) {
  EXPECT_TRUE(message.starts_with("[")) << message;
  EXPECT_TRUE(has(message, "memory")) << message;
  EXPECT_TRUE(has(message, std::to_string(far_too_many * 4)) || has(message, "aten::")) << message;
}

TEST_P(OutOfMemory, IsAClearErrorAtTheReadAndTheProcessLives) {
  const at::Tensor x = ready({4});
  {
    const at::Tensor huge = at::ones({far_too_many}, at::TensorOptions(device()));
    const at::Tensor total = huge.sum();
    expect_clear(message_of<c10::Error>([&] { total.cpu(); }));
  }
  expect_same(x + 1, at::arange(4, at::kFloat) + 1);
  sync(true);
}

TEST_P(OutOfMemory, OfAnOutputPoisonsOnlyItsGraph) {
  at::Tensor weight = ready({4});
  at::Tensor huge;
  step([&] { weight.add_(1); });
  step([&] { huge = at::ones({far_too_many}, at::TensorOptions(device())); });
  expect_clear(message_of<c10::Error>([] { sync(true); }));
  step([&] { weight.add_(1); });
  expect_same(weight, at::arange(4, at::kFloat) + 2);
  sync(true);
}

INSTANTIATE_TEST_SUITE_P(Engines, OutOfMemory, testing::Values("native", "reference"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace spool::test
