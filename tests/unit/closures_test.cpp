// Step closures: when they run, in which order, and where their exceptions come out.
#include "src/runtime/closures.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace spool::closures {
namespace {

struct ClosuresTest : testing::Test {
  ~ClosuresTest() override { drain(); }
};

void fail_with(const char* what) { throw std::out_of_range(what); }

/// Runs what was added and returns when its asynchronous part has run, and its failures have been noted: they run in order.
void run_to_the_end() {
  std::promise<void> reached;
  add([&] { reached.set_value(); }, true);
  run();
  reached.get_future().wait();
}

TEST_F(ClosuresTest, RunOnceInOrderOnTheThreadThatCuts) {
  std::vector<int> ran;
  const auto thread = std::this_thread::get_id();
  for (int i = 0; i < 3; ++i) {
    add(
        [&, i] {
          EXPECT_EQ(std::this_thread::get_id(), thread);
          ran.push_back(i);
        },
        false);
  }
  EXPECT_TRUE(ran.empty());
  run();
  run();
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2}));
}

TEST_F(ClosuresTest, OneAddedByAClosureRunsNextTime) {
  int ran = 0;
  add(
      [&] {
        add([&] { ran = 2; }, false);
        ran = 1;
      },
      false);
  run();
  EXPECT_EQ(ran, 1);
  run();
  EXPECT_EQ(ran, 2);
}

TEST_F(ClosuresTest, AnExceptionComesOutAfterTheOthersHaveRun) {
  int ran = 0;
  add([] { fail_with("first"); }, false);
  add([&] { ++ran; }, false);
  add([] { fail_with("second"); }, false);
  try {
    run();
    FAIL();
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_EQ(ran, 1);
  run();
}

TEST_F(ClosuresTest, AsynchronousOnesRunInOrderOnOneOtherThread) {
  std::vector<int> ran;
  std::vector<std::thread::id> threads;
  for (int i = 0; i < 10; ++i) {
    add(
        [&, i] {
          ran.push_back(i);
          threads.push_back(std::this_thread::get_id());
        },
        true);
    run();
  }
  drain();
  ASSERT_EQ(ran.size(), 10);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(ran[static_cast<std::size_t>(i)], i);
    EXPECT_EQ(threads[static_cast<std::size_t>(i)], threads[0]);
  }
  EXPECT_NE(threads[0], std::this_thread::get_id());
}

TEST_F(ClosuresTest, AnAsynchronousFailureComesOutOfTheNextCallOnce) {
  add([] { fail_with("async"); }, true);
  run_to_the_end();  // never of the call that starts it
  EXPECT_THROW(run(), std::out_of_range);
  run();

  add([] { fail_with("async"); }, true);
  run();
  EXPECT_THROW(drain(), std::out_of_range);
  drain();

  add([] { fail_with("async"); }, true);
  run_to_the_end();
  bool ran = false;
  EXPECT_THROW(add([&] { ran = true; }, false), std::out_of_range);
  run();
  EXPECT_TRUE(ran) << "what the failing call added was added";
}

TEST_F(ClosuresTest, TheFirstOfSeveralAsynchronousFailuresIsToldAndTheRestStillRun) {
  std::atomic<int> ran{0};
  for (int i = 0; i < 3; ++i) {
    add(
        [&, i] {
          ++ran;
          fail_with(i == 0 ? "first" : "later");
        },
        true);
  }
  run_to_the_end();
  EXPECT_EQ(ran, 3);
  try {
    run();
    FAIL();
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "first");
  }
}

TEST_F(ClosuresTest, WhatAClosureHoldsGoesWhenItHasRun) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  add([held] {}, false);
  add([held] {}, true);
  held.reset();
  EXPECT_FALSE(watch.expired());
  run();
  drain();
  EXPECT_TRUE(watch.expired());
}

TEST_F(ClosuresTest, DrainWaitsAndLaterOnesStartTheThreadAgain) {
  std::atomic<int> ran{0};
  for (int round = 0; round < 3; ++round) {
    add(
        [&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          ++ran;
        },
        true);
    run();
    drain();
    EXPECT_EQ(ran, round + 1);
  }
  drain();
}

TEST_F(ClosuresTest, AForkedChildEndsAndRunsClosuresOfItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer follows no threads that a forked child starts";
#endif
  add([] {}, true);
  run();  // the parent's thread is there, the child has none
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // ends a child that hangs
    bool ran = false;
    add([&] { ran = true; }, true);
    run();
    drain();
    _exit(ran ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ClosuresDeathTest, OneThatRunsWhenTheProcessEndsRunsToItsEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        alarm(20);
        add(
            [] {
              std::this_thread::sleep_for(std::chrono::milliseconds(200));
              static_cast<void>(!write(STDERR_FILENO, "ran to its end", 14));
            },
            true);
        run();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "ran to its end");
}

TEST(ClosuresDeathTest, OneThatFailsWhenTheProcessEndsIsToldOnStderr) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        alarm(20);
        add([] { fail_with("too late"); }, true);
        run();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "\\[add_step_closure\\].*too late");
}

}  // namespace
}  // namespace spool::closures
