// A process may end at any point, with work recorded, launched or running, without a hang or a crash.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <thread>

#include "tests/cpp/device_state.h"

namespace spool::test {
namespace {

at::Tensor global;  // destroyed after the device was told to end

/// Each test is a process of its own that ends well within a minute, or is ended by SIGALRM.
struct ExitDeathTest : testing::Test {
  ExitDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

const auto well = testing::ExitedWithCode(0);

at::Tensor long_work() {
  at::Tensor x = at::rand({400, 400}).to(device());
  for (int i = 0; i < 20; ++i) {
    x = x.mm(x) * 1e-2;
  }
  return x;
}

TEST_F(ExitDeathTest, WithNothingUsed) { EXPECT_EXIT(std::exit(0), well, "^$"); }

TEST_F(ExitDeathTest, WithOpsPending) {
  EXPECT_EXIT(
      {
        alarm(60);
        global = long_work();
        std::exit(0);
      },
      well, "^$");
}

TEST_F(ExitDeathTest, WithWorkLaunchedAndHeldByAGlobal) {
  EXPECT_EXIT(
      {
        alarm(60);
        for (int i = 0; i < 3; ++i) {
          global = long_work();
          barrier();
        }
        std::exit(0);
      },
      well, "^$");
}

TEST_F(ExitDeathTest, WithALazyTensorInAStaticMadeAfterTheDevice) {
  EXPECT_EXIT(
      {
        alarm(60);
        static const auto kept = std::make_unique<at::Tensor>(long_work());
        sync();
        static const auto late = std::make_unique<at::Tensor>(*kept + 1);
        std::exit(0);
      },
      well, "^$");
}

TEST_F(ExitDeathTest, InsideAStep) {
  EXPECT_EXIT(
      {
        alarm(60);
        step([] {
          const at::Tensor x = long_work();
          std::exit(0);
        });
      },
      well, "^$");
}

TEST_F(ExitDeathTest, WithAFailedPlanNobodyAskedAbout) {
  EXPECT_EXIT(
      {
        alarm(60);
        global = ready({4}).index_select(0, at::full({1}, 9, at::kLong).to(device()));
        barrier();
        std::exit(0);
      },
      well, "^$");
}

TEST_F(ExitDeathTest, WhileAnAsynchronousClosureReads) {
  EXPECT_EXIT(
      {
        alarm(60);
        step([] {
          add_step_closure(
              [x = long_work()] {
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                x.sum().item<float>();
                static_cast<void>(!write(STDERR_FILENO, "closure done", 12));
              },
              /*run_async=*/true);
        });
        std::exit(0);
      },
      well, "closure done");
}

TEST_F(ExitDeathTest, ByAnUncaughtExceptionIsTheExceptionsOwn) {
  EXPECT_EXIT(
      {
        alarm(60);
        std::thread([] {  // GoogleTest would catch it in the main thread
          step([] {
            global = long_work();
            throw std::runtime_error("the user's");
          });
        })
            .join();
      },
      testing::KilledBySignal(SIGABRT), "the user's");
}

}  // namespace
}  // namespace spool::test
