// Several threads at once: recording, cutting, reading and running backward.
#include <ATen/core/grad_mode.h>

#include <atomic>
#include <future>
#include <thread>

#include "src/runtime/options.h"
#include "tests/cpp/device_state.h"

namespace spool::test {
namespace {

/// What each thread records: in-place writes through views, and cuts at places of its own.
std::vector<at::Tensor> work(int id, const at::Device& where, int rounds) {
  at::Tensor x = at::arange(6, at::kFloat).to(where) + id;
  std::vector<at::Tensor> out;
  for (int k = 0; k < rounds; ++k) {
    x = (x * 1.25 - k).clamp(-50, 50);
    x.view({2, 3}).select(0, 0).add_(id);
    out.push_back(x.clone());
    if (!where.is_cpu() && k % (3 + id) == 0) {
      sync();
    }
    if (!where.is_cpu() && k % (5 + id) == 0) {
      x.sum().item<float>();
    }
  }
  return out;
}

TEST(Threads, RecordingAtOnceEachGetsItsResults) {
  constexpr int threads = 3;
  constexpr int rounds = 60;
  std::vector<std::vector<at::Tensor>> results(threads);
  std::vector<std::thread> running;
  for (int id = 0; id < threads; ++id) {
    running.emplace_back([&, id] { results[static_cast<std::size_t>(id)] = work(id, device(), rounds); });
  }
  for (std::thread& thread : running) {
    thread.join();
  }
  for (int id = 0; id < threads; ++id) {
    const auto want = work(id, at::kCPU, rounds);
    for (std::size_t k = 0; k < want.size(); ++k) {
      expect_same(results[static_cast<std::size_t>(id)][k], want[k]);
    }
  }
}

TEST(Threads, OneTensorMayBeReadByMany) {
  const at::Tensor x = ready({1000});
  const at::Tensor y = x * 2;  // pending: one of the readers cuts
  std::atomic<int> right{0};
  std::vector<std::thread> running;
  for (int id = 0; id < 4; ++id) {
    running.emplace_back([&] { right += at::equal(y.cpu(), at::arange(1000, at::kFloat) * 2) ? 1 : 0; });
  }
  for (std::thread& thread : running) {
    thread.join();
  }
  EXPECT_EQ(right, 4);
  EXPECT_EQ(launches(), 1);
}

TEST(Threads, TensorsMayBeDroppedWhileOthersRecord) {
  ready({1});
  const std::size_t before = Slot::live();
  std::vector<std::thread> running;
  for (int id = 0; id < 3; ++id) {
    running.emplace_back([] {
      for (int k = 0; k < 200; ++k) {
        const at::Tensor dropped = at::ones({4}, at::TensorOptions(device())) + k;
        if (k % 50 == 0) {
          barrier();
        }
      }
    });
  }
  for (std::thread& thread : running) {
    thread.join();
  }
  sync(true);
  EXPECT_EQ(Slot::live(), before);
}

TEST(Threads, RegionsOfTwoThreadsMayOverlap) {
  // One opens a compile() region, the other a step in the middle of it that ends later.
  const at::Tensor x = ready({3});
  std::promise<void> compiling;
  std::promise<void> stepping;
  std::promise<void> compiled;
  at::Tensor y;
  at::Tensor z;
  std::thread one([&] {
    y = compile([&] {
      compiling.set_value();
      stepping.get_future().wait();
      return x + 1;
    })();
    compiled.set_value();
  });
  std::thread other([&] {
    compiling.get_future().wait();
    z = step([&] {
      stepping.set_value();
      compiled.get_future().wait();
      return x + 2;
    });
  });
  one.join();
  other.join();
  expect_same(y, at::arange(3, at::kFloat) + 1);
  expect_same(z, at::arange(3, at::kFloat) + 2);
  step([] {});
  testing::internal::CaptureStderr();
  const at::Tensor pending_here = x + 1;
  synchronize();
  EXPECT_NE(testing::internal::GetCapturedStderr(), "") << "no region is left open: pending ops outside any are told of";
}

TEST(Threads, BackwardOfTwoModelsAtOnce) {
  const auto train = [](int seed, const at::Device& where) {
    plan_options().exact = true;  // of this thread: results are compared to the last bit
    at::Tensor w = (at::arange(40, at::kFloat).view({8, 5}) * 0.01 * seed).to(where).set_requires_grad(true);
    for (int k = 0; k < 10; ++k) {
      const at::Tensor x = (at::arange(32, at::kFloat).view({4, 8}) * 0.1 - k).to(where);
      x.mm(w).tanh().square().mean().backward();
      {
        const at::NoGradGuard no_grad;
        w.sub_(w.grad() * 0.1);
      }
      w.mutable_grad().reset();
      if (!where.is_cpu()) {
        sync();
      }
    }
    return w.detach();
  };
  std::vector<at::Tensor> results(2);
  std::vector<std::thread> running;
  for (int id = 0; id < 2; ++id) {
    running.emplace_back([&, id] { results[static_cast<std::size_t>(id)] = train(id + 1, device()); });
  }
  for (std::thread& thread : running) {
    thread.join();
  }
  for (int id = 0; id < 2; ++id) {
    expect_same(results[static_cast<std::size_t>(id)], train(id + 1, at::kCPU));
  }
}

}  // namespace
}  // namespace spool::test
