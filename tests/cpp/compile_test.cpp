// compile(): a region that is one graph, its limits and its end.
#include <stdexcept>

#include "tests/cpp/device_state.h"

namespace spool::test {
namespace {

TEST(Compile, EndsInACutSoThatWhatFollowsIsInAnotherGraph) {
  const at::Tensor x = ready({3});
  auto twice = compile([](const at::Tensor& t) { return t * 2; });
  const at::Tensor y = twice(x);
  EXPECT_EQ(pending(), 0);
  EXPECT_EQ(launches(), 1);
  const at::Tensor z = y + 1;
  sync();
  EXPECT_EQ(launches(), 2);
  expect_same(z, at::arange(3, at::kFloat) * 2 + 1);
}

TEST(Compile, ATensorMadeBeforeTheCallIsAnInput) {
  const at::Tensor x = ready({3});
  const at::Tensor before = x - 1;
  std::string seen;
  auto thrice = compile([&](const at::Tensor& t) {
    EXPECT_EQ(pending(), 0);
    at::Tensor out = t * 3;
    seen = graph_text({out});
    return out;
  });
  const at::Tensor y = thrice(before);
  EXPECT_EQ(launches(), 2);
  EXPECT_TRUE(has(seen, "aten::mul")) << seen;
  EXPECT_FALSE(has(seen, "aten::sub")) << seen;
  expect_same(y, (at::arange(3, at::kFloat) - 1) * 3);
}

TEST(Compile, PassesArgumentsAndResultsThrough) {
  const at::Tensor x = ready({2});
  int calls = 0;
  auto update = compile([&](at::Tensor& t, double by, std::unique_ptr<int> owned) {
    t.mul_(by);
    calls += *owned;
  });
  at::Tensor weight = x.clone();
  update(weight, 4.0, std::make_unique<int>(1));
  update(weight, 0.5, std::make_unique<int>(1));
  EXPECT_EQ(calls, 2);
  expect_same(weight, at::arange(2, at::kFloat) * 2);
}

TEST(Compile, FullGraphTurnsEachBreakIntoAnErrorThatNamesTheRegion) {
  const at::Tensor x = ready({3});
  const std::vector<std::function<void(const at::Tensor&)>> breaks{
      [](const at::Tensor& t) { t.sum().item<float>(); },
      [](const at::Tensor& t) { t.cpu(); },
      [](const at::Tensor& t) { t.nonzero(); },
      [](const at::Tensor&) { sync(); },
      [](const at::Tensor&) { barrier(); },
      [](const at::Tensor&) { step([] {}); },
      [](const at::Tensor&) { synchronize(); },
  };
  for (std::size_t i = 0; i < breaks.size(); ++i) {
    auto region = compile(
        [&](const at::Tensor& t) {
          at::Tensor u = t + 1;
          breaks[i](u);
          return u;
        },
        {.full_graph = true, .name = "inner loop"});
    const std::string message = message_of<c10::Error>([&] { region(x); });
    EXPECT_TRUE(message.starts_with("[") && has(message, "full_graph") && has(message, "inner loop")) << i << ": " << message;
    EXPECT_EQ(pending(), 0) << i;
  }
  auto whole = compile([](const at::Tensor& t) { return t + 1; }, {.full_graph = true});
  expect_same(whole(x), at::arange(3, at::kFloat) + 1);
}

TEST(Compile, WithoutFullGraphAReadBreaksTheGraphAndIsCounted) {
  const at::Tensor x = ready({3});
  auto scaled = compile([](const at::Tensor& t) { return t * t.sum().item<float>(); });
  expect_same(scaled(x), at::arange(3, at::kFloat) * 3);
  EXPECT_EQ(counted("GraphBreak"), 1);
  EXPECT_EQ(launches(), 2);
}

TEST(Compile, AFurtherGraphThanAllowedIsAnErrorBeforeItIsCompiled) {
  auto twice = compile([](const at::Tensor& t) { return t * 2; },
                       {.full_graph = true, .name = "one shape", .num_different_graphs_allowed = 1});
  const at::Tensor small = ready({3});
  const at::Tensor large = ready({4});
  for (int i = 0; i < 3; ++i) {
    twice(small);
  }
  const std::int64_t compiled = counted("UncachedCompile");
  const std::string message = message_of<c10::Error>([&] { twice(large); });
  EXPECT_TRUE(has(message, "one shape") && has(message, "num_different_graphs_allowed=1")) << message;
  EXPECT_EQ(counted("UncachedCompile"), compiled);
  expect_same(twice(small), at::arange(3, at::kFloat) * 2);
}

TEST(Compile, NumbersMakeNoDifferentGraphs) {
  auto affine = compile([](const at::Tensor& t, double by) { return t * by + by; }, {.num_different_graphs_allowed = 1});
  const at::Tensor x = ready({5});
  for (const double by : {0.0, 0.5, 1.0, -3.25}) {
    expect_same(affine(x, by), at::arange(5, at::kFloat) * by + by);
  }
}

TEST(Compile, EachWrapperHasALimitOfItsOwn) {
  const at::Tensor small = ready({6});
  const at::Tensor large = ready({7});
  const auto body = [](const at::Tensor& t) { return t - 3; };
  auto one = compile(body, {.num_different_graphs_allowed = 1});
  auto other = compile(body, {.num_different_graphs_allowed = 1});
  one(small);
  other(large);
  EXPECT_THROW(one(large), c10::Error);
  EXPECT_THROW(other(small), c10::Error);
}

TEST(Compile, AnExceptionPassesThroughAndWhatWasBeforeItRuns) {
  at::Tensor x = ready({2});
  auto failing = compile(
      [](at::Tensor& t) {
        t.add_(1);
        throw std::out_of_range("the user's");
      },
      {.full_graph = true, .num_different_graphs_allowed = 0});
  EXPECT_EQ(message_of<std::out_of_range>([&] { failing(x); }), "the user's");
  EXPECT_EQ(pending(), 0);
  expect_same(x, at::arange(2, at::kFloat) + 1);
}

TEST(Compile, NestsInStepsAndInItself) {
  at::Tensor x = ready({2});
  auto inner = compile([&] { x.mul_(2); });
  auto outer = compile([&] {
    x.add_(1);
    inner();
    x.sub_(3);
  });
  step([&] { outer(); });
  expect_same(x, (at::arange(2, at::kFloat) + 1) * 2 - 3);
}

}  // namespace
}  // namespace spool::test
