// The launch queue: order, back pressure, failures and their poison, waiting, its end and its new start.
#include "src/runtime/queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <stdexcept>

#include "src/base/error.h"
#include "tests/unit/fake_engine.h"

namespace spool::test {
namespace {

using namespace std::chrono_literals;
using Body = std::function<void(const RunArgs&)>;

FakeEngine& fake() {
  static FakeEngine engine;
  return engine;
}

BufferPtr buffer(float value) {
  auto made = std::make_shared<Buffer>();
  made->memory = fake().allocate(sizeof(float));
  made->nbytes = sizeof(float);
  std::memcpy(made->memory.data(), &value, sizeof value);
  return made;
}

float content(const Memory& memory) {
  float value = 0;
  std::memcpy(&value, memory.data(), sizeof value);
  return value;
}

BufferPtr empty_buffer() {
  auto made = std::make_shared<Buffer>();
  made->nbytes = sizeof(float);
  return made;
}

Launch launch(Body body, std::vector<BufferPtr> inputs = {}, std::vector<BufferPtr> outputs = {}) {
  Launch made;
  made.executable = std::make_shared<Executable>();
  made.executable->engine = &fake();
  made.executable->plan = std::make_unique<FakePlan>(std::move(body));
  made.executable->owned.assign(inputs.size(), 0);
  made.inputs = std::move(inputs);
  made.outputs = std::move(outputs);
  return made;
}

void nothing(const RunArgs& /*args*/) {}

/// A queue that has run everything and ended its thread when the test ends.
struct QueueTest : testing::Test {
  Queue queue{2};
  ~QueueTest() override {
    set_wait_hooks({});
    queue.shut_down();
  }
  void wait_all() { queue.wait(queue.newest()); }
};

/// Holds a launch until it is opened.
struct Gate {
  std::promise<void> promise;
  std::shared_future<void> opened{promise.get_future()};
  Body body() {
    return [opened = opened](const RunArgs&) { opened.wait(); };
  }
  void open() { promise.set_value(); }
};

TEST_F(QueueTest, RunsInOrderOnAThreadOfItsOwn) {
  std::vector<int> ran;
  std::thread::id thread;
  for (int i = 0; i < 20; ++i) {
    queue.submit(launch([&, i](const RunArgs&) {
      ran.push_back(i);
      thread = std::this_thread::get_id();
    }));
  }
  EXPECT_EQ(queue.newest(), 20);
  wait_all();
  EXPECT_TRUE(queue.complete(20));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(ran.at(static_cast<std::size_t>(i)), i);
  }
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST_F(QueueTest, NumbersLaunchesAndTheirOutputs) {
  EXPECT_EQ(queue.newest(), 0);
  EXPECT_TRUE(queue.complete(0));
  queue.wait(0);  // what was filled from the start needs no wait
  const BufferPtr first = empty_buffer();
  const BufferPtr second = empty_buffer();
  queue.submit(launch(nothing, {}, {first}));
  queue.submit(launch(nothing, {first}, {second}));
  EXPECT_EQ(first->ready, 1);
  EXPECT_EQ(second->ready, 2);
}

TEST_F(QueueTest, GivesInputsOutputsAndParametersToTheRun) {
  const BufferPtr out = empty_buffer();
  Launch made = launch(
      [](const RunArgs& args) {
        *args.outputs[0] = fake().allocate(sizeof(float));
        const float sum = content(*args.inputs[0]) + static_cast<float>(args.numbers[0].real) +
                          static_cast<float>(*static_cast<int*>(args.generators[0].get()));
        std::memcpy(args.outputs[0]->data(), &sum, sizeof sum);
      },
      {buffer(1)}, {out});
  made.numbers = {{.real = 10}};
  made.generators = {std::make_shared<int>(100)};
  queue.submit(std::move(made));
  queue.wait(out->ready);
  EXPECT_EQ(content(out->memory), 111);
}

TEST_F(QueueTest, BlocksWhileAsManyAsAllowedAreInFlight) {
  Gate gate;
  queue.submit(launch(gate.body()));
  queue.submit(launch(nothing));
  auto third = std::async(std::launch::async, [&] { queue.submit(launch(nothing)); });
  EXPECT_EQ(third.wait_for(100ms), std::future_status::timeout);
  EXPECT_EQ(queue.newest(), 2);
  gate.open();
  third.get();
  wait_all();
  EXPECT_TRUE(queue.complete(3));
}

TEST_F(QueueTest, AFailureIsLeftOnWhatTheLaunchShouldHaveWrittenAndToldOnce) {
  const BufferPtr lost = empty_buffer();
  const BufferPtr fine = empty_buffer();
  queue.submit(launch([](const RunArgs&) { fail(ErrorKind::Index, "[op] out of range"); }, {}, {lost}));
  queue.submit(launch([](const RunArgs& args) { *args.outputs[0] = fake().allocate(4); }, {}, {fine}));
  wait_all();
  ASSERT_NE(lost->failure, nullptr);
  EXPECT_EQ(lost->failure->kind(), ErrorKind::Index);
  EXPECT_STREQ(lost->failure->what(), "[op] out of range");
  EXPECT_EQ(fine->failure, nullptr);
  EXPECT_NE(fine->memory.data(), nullptr);
  EXPECT_EQ(queue.take_failure(), lost->failure);
  EXPECT_EQ(queue.take_failure(), nullptr);
}

TEST_F(QueueTest, AFailureThatAReaderWasToldOfIsNotTakenAgain) {
  const BufferPtr first = empty_buffer();
  queue.submit(launch([](const RunArgs&) { fail(ErrorKind::Runtime, "first"); }, {}, {first}));
  wait_all();
  queue.told(std::make_shared<const Error>(ErrorKind::Runtime, "another"));
  queue.told(first->failure);
  EXPECT_EQ(queue.take_failure(), nullptr);
}

TEST_F(QueueTest, PoisonPassesOnWithoutARun) {
  const BufferPtr lost = empty_buffer();
  const BufferPtr next = empty_buffer();
  bool ran = false;
  queue.submit(launch([](const RunArgs&) { fail(ErrorKind::Runtime, "[op] why"); }, {}, {lost}));
  queue.submit(launch([&](const RunArgs&) { ran = true; }, {buffer(1), lost}, {next}));
  wait_all();
  EXPECT_FALSE(ran);
  EXPECT_EQ(next->failure, lost->failure);
  EXPECT_EQ(queue.take_failure(), lost->failure);
  EXPECT_EQ(queue.take_failure(), nullptr) << "one failure, not two";
}

TEST_F(QueueTest, AFailedRunLeavesNothingHalfWritten) {
  const BufferPtr lost = empty_buffer();
  queue.submit(launch(
      [](const RunArgs& args) {
        *args.outputs[0] = fake().allocate(4);
        fail(ErrorKind::Runtime, "half way");
      },
      {}, {lost}));
  wait_all();
  EXPECT_EQ(lost->memory.data(), nullptr);
}

TEST_F(QueueTest, AnyExceptionBecomesAnErrorOfItsKind) {
  const BufferPtr memory = empty_buffer();
  const BufferPtr other = empty_buffer();
  queue.submit(launch([](const RunArgs&) { throw std::bad_alloc(); }, {}, {memory}));
  queue.submit(launch([](const RunArgs&) { throw std::logic_error("odd"); }, {}, {other}));
  wait_all();
  ASSERT_NE(memory->failure, nullptr);
  EXPECT_EQ(memory->failure->kind(), ErrorKind::OutOfMemory);
  ASSERT_NE(other->failure, nullptr);
  EXPECT_EQ(other->failure->kind(), ErrorKind::Runtime);
  EXPECT_STREQ(other->failure->what(), "[launch] odd");
}

TEST_F(QueueTest, AnOwnedInputIsCopiedUnlessNobodyElseHoldsIt) {
  const auto overwrite = [](const RunArgs& args) {
    const float value = 9;
    std::memcpy(args.inputs[0]->data(), &value, sizeof value);
    *args.outputs[0] = std::move(*args.inputs[0]);
  };
  for (const bool exclusive : {false, true}) {
    BufferPtr in = buffer(1);
    const void* address = in->memory.data();
    const BufferPtr out = empty_buffer();
    Launch made = launch(overwrite, {in}, {out});
    made.executable->owned = {1};
    if (exclusive) {
      in.reset();
    }
    queue.submit(std::move(made));
    wait_all();
    EXPECT_EQ(content(out->memory), 9);
    EXPECT_EQ(out->memory.data() == address, exclusive);
    if (!exclusive) {
      EXPECT_EQ(content(in->memory), 1);
    }
  }
}

TEST_F(QueueTest, LetsGoOfBuffersBeforeALaunchCountsAsComplete) {
  BufferPtr in = buffer(1);
  const std::weak_ptr<Buffer> watch = in;
  queue.submit(launch(nothing, {std::move(in)}));
  wait_all();
  EXPECT_TRUE(watch.expired());
}

TEST_F(QueueTest, ShutDownRunsWhatWasSubmittedAndALaterSubmitStartsAgain) {
  std::atomic<int> ran{0};
  Gate gate;
  queue.submit(launch(gate.body()));
  queue.submit(launch([&](const RunArgs&) { ++ran; }));
  auto ended = std::async(std::launch::async, [&] { queue.shut_down(); });
  EXPECT_EQ(ended.wait_for(50ms), std::future_status::timeout);
  gate.open();
  ended.get();
  EXPECT_EQ(ran, 1);
  queue.shut_down();  // nothing to do
  queue.submit(launch([&](const RunArgs&) { ++ran; }));
  wait_all();
  EXPECT_EQ(ran, 2);
}

TEST_F(QueueTest, AQueueThatWasNeverUsedShutsDown) { queue.shut_down(); }

TEST_F(QueueTest, ManyThreadsMaySubmitAndWait) {
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const BufferPtr out = empty_buffer();
        queue.submit(launch([&](const RunArgs&) { ++ran; }, {}, {out}));
        queue.wait(out->ready);
        EXPECT_TRUE(queue.complete(out->ready));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(ran, 200);
}

// --- waiting with hooks, as the Python binding sets them ---

std::atomic<int> entered{0};
std::atomic<int> left{0};
std::atomic<int> polled{0};

TEST_F(QueueTest, HooksAreCalledAroundAWaitThatBlocks) {
  entered = left = polled = 0;
  set_wait_hooks({.enter = []() -> void* {
                    ++entered;
                    return &entered;
                  },
                  .leave = [](void* state) { left += state == &entered ? 1 : 100; },
                  .poll = [](void*) { ++polled; }});
  queue.submit(launch(nothing));
  queue.wait(0);
  EXPECT_EQ(entered, 0) << "nothing to wait for";
  queue.submit(launch([](const RunArgs&) { std::this_thread::sleep_for(350ms); }));
  wait_all();
  EXPECT_EQ(entered, 1);
  EXPECT_EQ(left, 1);
  EXPECT_GE(polled, 1);
}

TEST_F(QueueTest, WhatAPollThrowsEndsTheWaitAndTheLaunchGoesOn) {
  left = 0;
  Gate gate;
  set_wait_hooks({.enter = nullptr, .leave = [](void*) { ++left; }, .poll = [](void*) { throw std::range_error("Ctrl-C"); }});
  const BufferPtr out = empty_buffer();
  queue.submit(launch(
      [opened = gate.opened](const RunArgs& args) {
        opened.wait();
        *args.outputs[0] = fake().allocate(4);
      },
      {}, {out}));
  EXPECT_THROW(wait_all(), std::range_error);
  EXPECT_EQ(left, 1);
  EXPECT_FALSE(queue.complete(1));
  set_wait_hooks({});
  gate.open();
  wait_all();
  EXPECT_NE(out->memory.data(), nullptr);
}

}  // namespace
}  // namespace spool::test
