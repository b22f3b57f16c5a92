// fork() after the device was used: the child gets an answer or a clear error and never hangs; the parent goes on.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "tests/cpp/device_state.h"

namespace spool::test {
namespace {

/// Runs `body` in a forked child, which ends with what it returns; 0 is well. A child that hangs is ended by SIGALRM.
template <class Body>
void expect_well_in_child(const Body& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    int code = 100;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
    }
    _exit(code);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "the child was ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

/// 0 if `body` either works or says that the process was forked.
template <class Body>
int works_or_says_why(const Body& body) {
  try {
    body();
    return 0;
  } catch (const c10::Error& error) {
    return has(error.what(), "fork") ? 0 : 1;
  }
}

TEST(Fork, WhatWasComputedStaysReadableInTheChild) {
  const at::Tensor x = ready({4});
  expect_well_in_child([&] { return at::equal(x.cpu(), at::arange(4, at::kFloat)) ? 0 : 1; });
  expect_same(x + 1, at::arange(4, at::kFloat) + 1);
}

TEST(Fork, LaunchingInTheChildIsAClearErrorAndRecordingDoesNotHang) {
  const at::Tensor x = ready({4});
  expect_well_in_child([&] {
    return works_or_says_why([&] { (x + 1).cpu(); }) + works_or_says_why([&] { step([&] { return x * 2; }); }) +
           works_or_says_why([] { sync(true); }) + works_or_says_why([] { synchronize(); });
  });
  expect_same(x + 1, at::arange(4, at::kFloat) + 1);
}

TEST(Fork, WhatIsPendingIsReadInTheParent) {
  const at::Tensor x = ready({4});
  const at::Tensor y = x * 3;
  expect_well_in_child([&] { return works_or_says_why([&] { y.cpu(); }); });
  expect_same(y, at::arange(4, at::kFloat) * 3);
}

TEST(Fork, WhatWasRunningIsLostInTheChildOnly) {
  const at::Tensor x = at::rand({500, 500}).to(device());
  at::Tensor y = x;
  step([&] {
    for (int i = 0; i < 20; ++i) {
      y = y.mm(x) * 1e-2;
    }
  });
  expect_well_in_child([&] { return works_or_says_why([&] { y.cpu(); }) + works_or_says_why([] { wait_device_ops(); }); });
  at::Tensor want = x.cpu();
  for (int i = 0; i < 20; ++i) {
    want = want.mm(x.cpu()) * 1e-2;
  }
  expect_same(y, want);
}

TEST(Fork, OrdinaryCpuWorkGoesOnInTheChild) {
  ready({4});
  expect_well_in_child([] { return (at::ones({3}) + 1).sum().item<float>() == 6 ? 0 : 1; });
}

TEST(Fork, AChildThatEndsNormallyDoesNotHang) {
  const at::Tensor x = ready({4});
  add_step_closure([] {}, /*run_async=*/true);
  sync();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    std::exit(0);  // with all that runs at exit
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "the child was ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Fork, WhileAnotherThreadRecordsTheChildDoesNotHang) {
  const at::Tensor x = ready({4});
  std::atomic<bool> stop{false};
  std::thread recorder([&] {
    at::Tensor y = at::ones({8}, at::TensorOptions(device()));
    while (!stop) {
      step([&] { y = y * 0.5 + 1; });
    }
  });
  for (int i = 0; i < 20; ++i) {
    expect_well_in_child(
        [&] { return works_or_says_why([&] { (x + 1).cpu(); }) + (at::equal(x.cpu(), at::arange(4, at::kFloat)) ? 0 : 1); });
  }
  stop = true;
  recorder.join();
}

}  // namespace
}  // namespace spool::test
