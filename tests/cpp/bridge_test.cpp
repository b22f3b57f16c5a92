// Extracted graphs from C++: recorded apart, compiled without running, launched on the buffers of their inputs.
#include "src/torch/bridge.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "src/torch/lazy.h"
#include "tests/cpp/device_state.h"

namespace spool::test {
namespace {

using torch_side::BridgeGraph;
using torch_side::BridgeRecording;

/// a += 1; gives a * b, a[1:].
std::shared_ptr<BridgeGraph> extracted(const at::Tensor& a, const at::Tensor& b) {
  BridgeRecording recording;
  at::Tensor first = recording.stand_in(a);
  const at::Tensor second = recording.stand_in(b);
  first.add_(1);
  return recording.finish({first * second, first.slice(0, 1)});
}

TEST(Bridge, ExtractingRunsNothingAndALaunchOfTheGraphRecordsNothing) {
  const at::Tensor a = ready({3});
  const at::Tensor b = ready({3});
  const auto graph = extracted(a, b);
  EXPECT_EQ(launches(), 0);
  EXPECT_EQ(pending(), 0U);
  expect_same(a, at::arange(3, at::kFloat));
  for (int i = 1; i < 4; ++i) {
    const auto outputs = graph->run({a, b});
    EXPECT_EQ(pending(), 0U);
    const at::Tensor want = at::arange(3, at::kFloat) + i;
    expect_same(a, want);
    expect_same(outputs[0], want * at::arange(3, at::kFloat));
    EXPECT_TRUE(outputs[1].is_alias_of(a));
    expect_same(outputs[1], want.slice(0, 1));
  }
  EXPECT_EQ(launches(), 3);
  EXPECT_EQ(counted("UncachedCompile"), 1);
}

TEST(Bridge, AGraphMatchesTensorsLikeItsInputsAndNoOthers) {
  const at::Tensor a = ready({3});
  const at::Tensor b = ready({3});
  const auto graph = extracted(a, b);
  const auto matches = [&](const std::vector<at::Tensor>& tensors) {
    std::vector<const at::Tensor*> inputs;
    for (const at::Tensor& tensor : tensors) {
      inputs.push_back(&tensor);
    }
    return graph->call(inputs, [](const std::function<void()>& launch) { launch(); }).has_value();
  };
  EXPECT_TRUE(matches({b, a}));
  EXPECT_FALSE(matches({a}));
  EXPECT_FALSE(matches({a, ready({4})}));
  EXPECT_FALSE(matches({a, at::arange(3, at::kFloat)}));
  EXPECT_FALSE(matches({a, ready({6}).slice(0, 0, 6, 2)}));
  EXPECT_FALSE(matches({a, a})) << "it updates the one and reads the other";
}

TEST(Bridge, AReadOrAForeignTensorAbandonsTheGraphAndTheDeviceGoesOn) {
  const at::Tensor a = ready({3});
  {
    BridgeRecording recording;
    const at::Tensor stand_in = recording.stand_in(a);
    EXPECT_NE(message_of<c10::Error>([&] { stand_in.sum().item(); }).find("[extract]"), std::string::npos);
    EXPECT_NE(recording.reason(), "");
    EXPECT_NE(message_of<c10::Error>([&] { recording.finish({stand_in}); }).find("[extract]"), std::string::npos);
  }
  {
    BridgeRecording recording;
    const at::Tensor stand_in = recording.stand_in(a);
    EXPECT_NE(message_of<c10::Error>([&] { stand_in.add(a); }).find("no input of the graph"), std::string::npos);
  }
  EXPECT_EQ(pending(), 0U);
  expect_same(a + 1, at::arange(1, 4, at::kFloat));
}

TEST(Bridge, OtherThreadsGoOnRecordingOnTheDevicesTape) {
  const at::Tensor a = ready({3});
  at::Tensor other;
  std::shared_ptr<BridgeGraph> graph;
  {
    BridgeRecording recording;
    const at::Tensor stand_in = recording.stand_in(a);
    const at::Tensor doubled = stand_in * 2;
    std::thread([&] { other = a + 5; }).join();
    graph = recording.finish({doubled});
  }
  EXPECT_EQ(pending(), 1U);
  expect_same(graph->run({a})[0], at::arange(3, at::kFloat) * 2);
  expect_same(other, at::arange(3, at::kFloat) + 5);
}

TEST(Bridge, OneThreadExtractsOneGraphAtATime) {
  const BridgeRecording recording;
  EXPECT_NE(message_of<Error>([] { const BridgeRecording second; }).find("extracting a graph already"), std::string::npos);
}

}  // namespace
}  // namespace spool::test
