// What the native engine promises beyond being right: results are born where the plan wants them, memory is used again, and a run
// uses the threads that PyTorch was told to use.
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <thread>

#include "src/base/error.h"
#include "src/engine/native/plan.h"
#include "tests/conformance/graph_builder.h"

namespace spool {
namespace {

using test::GraphBuilder;
using Ints = std::vector<std::int64_t>;

/// A residual block's forward and backward pass with the ops that ResNet records.
GraphBuilder residual_block() {
  GraphBuilder b;
  const auto x = b.input(at::randn({2, 16, 14, 14}));
  const auto weight = b.input(at::randn({16, 16, 3, 3}));
  const auto gamma = b.input(at::rand({16}));
  const auto beta = b.input(at::randn({16}));
  const auto mean = b.input(at::zeros({16}));
  const auto variance = b.input(at::ones({16}));
  const Ints one{1, 1};
  const Ints none{0, 0};
  const auto y = b.one("aten::convolution", {x, weight, c10::IValue(), one, one, one, false, none, 1});
  const auto norm = b.call("aten::native_batch_norm", {y, gamma, beta, mean, variance, true, 0.1, 1e-5}, {3, 4});
  b.call("aten::add_.Tensor", {norm[0], x});
  const auto active = b.one("aten::relu", {norm[0]});
  const auto pooled = b.one("aten::mean.dim", {active, Ints{-1, -2}, true});
  const auto gradient = b.one("aten::div.Scalar", {pooled.expand({2, 16, 14, 14}), 196});
  const auto to_norm = b.one("aten::threshold_backward", {gradient, active, 0});
  const auto back = b.call("aten::native_batch_norm_backward", {to_norm, y, gamma, mean, variance, norm[1], norm[2], true, 1e-5,
                                                                c10::List<bool>({true, true, true})});
  const auto to_x = b.call("aten::convolution_backward", {back[0], x, weight, c10::IValue(), one, one, one, false, none, 1,
                                                          c10::List<bool>({true, true, false})});
  b.call("aten::add_.Tensor", {weight, to_x[1], -0.1});
  b.call("aten::add_.Tensor", {gamma, back[1], -0.1});
  b.call("aten::add_.Tensor", {beta, back[2], -0.1});
  b.output(weight, 1);
  b.output(gamma, 2);
  b.output(beta, 3);
  b.output(mean, 4);
  b.output(variance, 5);
  b.output(to_x[0]);
  return b;
}

TEST(NativeMemory, ResultsAreBornInTheirPlaces) {
  const auto b = residual_block();
  Engine& native = engine("native");
  const auto plan = native.compile(b.graph, {.exact = true});
  // The first run learns which of a kernel's allocations become results.
  test::expect_equal(test::run(native, *plan, b), b);
  const auto before = native::copied_results();
  for (int i = 0; i < 3; ++i) {
    test::expect_equal(test::run(native, *plan, b), b);
  }
  EXPECT_EQ(native::copied_results(), before);
}

TEST(NativeMemory, RunsDoNotGrow) {
  const auto b = residual_block();
  Engine& native = engine("native");
  const auto plan = native.compile(b.graph, {.exact = true});
  test::run(native, *plan, b);
  const std::size_t used = native.memory().used;
  for (int i = 0; i < 20; ++i) {
    test::run(native, *plan, b);
  }
  EXPECT_EQ(native.memory().used, used);
}

TEST(NativeMemory, ArenaGrowsToTheLargestPlanAndServesTheSmaller) {
  Engine& native = engine("native");
  std::vector<GraphBuilder> builders;
  std::vector<std::unique_ptr<Plan>> plans;
  for (const std::int64_t size : {100, 2'000'000, 3000}) {
    GraphBuilder b;
    const auto x = b.input(at::randn({size}));
    b.output(b.one("aten::neg", {b.one("aten::exp", {b.one("aten::abs", {x})})}));
    plans.push_back(native.compile(b.graph, {.exact = true}));
    builders.push_back(std::move(b));
  }
  for (const std::size_t i : {0, 1, 2, 0, 1}) {
    test::expect_equal(test::run(native, *plans[i], builders[i]), builders[i]);
  }
}

TEST(NativeMemory, KernelsOfOtherThreadsAreNotPlanned) {
  const auto b = residual_block();
  Engine& native = engine("native");
  const auto plan = native.compile(b.graph, {.exact = true});
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) {
      const GraphBuilder own = residual_block();
      EXPECT_FALSE(own.expected.empty());
    }
  });
  for (int i = 0; i < 10; ++i) {
    test::expect_equal(test::run(native, *plan, b), b);
  }
  stop = true;
  other.join();
}

TEST(NativeThreads, ARunUsesAsManyThreadsAsPyTorchWasTold) {
  const auto b = residual_block();
  Engine& native = engine("native");
  const auto plan = native.compile(b.graph, {.exact = true});
  const int before = at::get_num_threads();
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    int seen = 0;
    std::thread runtime([&] {
      test::run(native, *plan, b);
      seen = at::get_num_threads();
    });
    runtime.join();
    EXPECT_EQ(seen, threads);
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace spool
