// The device with no PyTorch behind it: calls are recorded by hand and run by an engine of the test's own. This is also what
// ThreadSanitizer sees whole, as nothing here is without instrumentation.
#include "src/runtime/device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "src/base/error.h"
#include "tests/unit/fake_engine.h"
#include "tests/unit/small_call.h"
#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

const Geometry four = f32({4});
std::atomic<int> runs{0};

/// Gives every output memory: an input's own where the output replaces it. Refuses graphs that have test::check in them.
class CountingEngine final : public Engine {
 public:
  std::string name() const override { return "counting"; }
  std::unique_ptr<Plan> compile(const Graph& graph, const PlanOptions& /*options*/, Graph* /*lowered*/) override {
    for (const Node& node : graph.nodes) {
      SPOOL_CHECK(node.op != &check_, NotImplemented, "[test::check] no plan for this");
    }
    return std::make_unique<FakePlan>([this, outputs = graph.outputs, values = graph.values](const RunArgs& args) {
      ++runs;
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        *args.outputs[i] = outputs[i].input >= 0 ? std::move(*args.inputs[static_cast<std::size_t>(outputs[i].input)])
                                                 : allocate(values[static_cast<std::size_t>(outputs[i].value)].nbytes);
      }
    });
  }
  std::unique_ptr<Plan> load(const Graph& lowered) override { return compile(lowered, {}, nullptr); }
  void run(Plan& plan, const RunArgs& args) override { memory_.run(plan, args); }
  Memory allocate(std::size_t nbytes) override { return memory_.allocate(nbytes); }
  MemoryInfo memory() const override { return {}; }
  Memory clone(const Memory& from) override { return memory_.clone(from); }

 private:
  FakeEngine memory_;
};

const bool chosen = [] {
  register_engine("counting", []() -> std::unique_ptr<Engine> { return std::make_unique<CountingEngine>(); });
  setenv("SPOOL_ENGINE", "counting", 1);  // before anything has read the settings
  return true;
}();

/// Records a call as the recorder does; gives the storage of its one result, if it has one.
std::optional<Storage> record(const Call& call, const Results& results) {
  Device& device = Device::get();
  const auto lock = device.lock();
  device.bound_tape(call);
  if (device.tape().follow(call) == nullptr) {
    device.tape().append(device.signatures().intern(call, results), call, nullptr);
  }
  std::optional<Storage> made;
  if (!results.tensors.empty()) {
    made.emplace(device.tape().result(0));
  }
  device.recorded();
  return made;
}

Storage make() { return std::move(*record(SmallCall(add).integers({4}), one_result(four))); }
Storage twice(const Storage& x) { return std::move(*record(SmallCall(neg).read(x, four).number(2), one_result(four))); }
void update(const Storage& x) { record(SmallCall(add_).write(x, four).number(1), {}); }

TEST(Device, ACutLaunchesWhatIsPendingAndAReadWaitsForIt) {
  Device& device = Device::get();
  const Storage x = make();
  const Storage y = twice(x);
  const int before = runs;
  device.sync(false);
  EXPECT_EQ(device.tape_length(), 0);
  const BufferPtr content = device.read(*y, "test");
  ASSERT_NE(content, nullptr);
  EXPECT_EQ(content->memory.nbytes(), 16);
  EXPECT_EQ(runs, before + 1);
}

TEST(Device, AnInPlaceUpdateKeepsItsMemoryUnlessSomeoneElseHoldsIt) {
  Device& device = Device::get();
  const Storage x = make();
  const void* address = device.read(*x, "test")->memory.data();
  update(x);
  EXPECT_EQ(device.read(*x, "test")->memory.data(), address);
  const BufferPtr held = device.read(*x, "test");
  update(x);
  EXPECT_NE(device.read(*x, "test")->memory.data(), address);
  EXPECT_EQ(held->memory.data(), address);
}

TEST(Device, WhatAnEngineRefusesIsPoisonedAndLeavesNothingBehind) {
  Device& device = Device::get();
  const Storage x = make();
  device.sync(true);
  const std::size_t plans = device.cache_size();
  for (int round = 0; round < 2; ++round) {
    const Storage y = std::move(*record(SmallCall(check_).read(x, four), one_result(four)));
    try {
      device.sync(false);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::NotImplemented);
    }
    EXPECT_EQ(device.tape_length(), 0);
    EXPECT_THROW(device.read(*y, "test"), Error);
  }
  EXPECT_EQ(device.cache_size(), plans);
  EXPECT_NE(device.read(*x, "test"), nullptr);
}

TEST(Device, AnUncutTapeIsCutAtItsBoundWhereItRepeatsItself) {
  Device& device = Device::get();
  const Storage x = make();
  device.sync(true);
  std::size_t longest = 0;
  for (int i = 0; i < 5000; ++i) {
    update(x);
    longest = std::max(longest, device.tape_length());
  }
  EXPECT_EQ(longest, 2048);
  device.sync(true);
}

TEST(Device, ThreadsRecordCutReadAndDropAtOnce) {
  Device& device = Device::get();
  device.sync(true);
  const std::size_t before = Slot::live();
  {
    const Storage shared = make();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        Storage x = make();
        for (int i = 0; i < 150; ++i) {
          x = twice(x);
          update(x);
          twice(shared);  // nobody keeps it
          if (i % (7 + t) == 0) {
            device.sync(false);
          }
          if (i % (11 + t) == 0) {
            EXPECT_NE(device.read(*x, "test"), nullptr);
          }
          if (i % (13 + t) == 0) {
            device.begin_step();
            update(x);
            device.end_step(false);
          }
        }
        EXPECT_NE(device.read(*x, "test"), nullptr);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  device.sync(true);
  EXPECT_EQ(Slot::live(), before);
}

TEST(Device, ShutsDownAndStartsAgain) {
  Device& device = Device::get();
  const Storage x = make();
  device.sync(false);
  device.shut_down();
  update(x);
  EXPECT_NE(device.read(*x, "test"), nullptr);
}

}  // namespace
}  // namespace spool::test
