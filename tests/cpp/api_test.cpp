// The public C++ API with no Python in the process: devices, cuts, steps, closures, eager mode, random numbers.
// compile_test.cpp has compile(), failures_test.cpp errors, training_test.cpp whole models.
#include <dlfcn.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "src/base/scope.h"
#include "tests/cpp/device_state.h"

namespace spool::test {
namespace {

TEST(Api, RunsWithoutPython) { EXPECT_EQ(dlsym(RTLD_DEFAULT, "Py_IsInitialized"), nullptr); }

TEST(Api, NamesItsDevices) {
  EXPECT_EQ(device().str(), "xla:0");
  EXPECT_EQ(device_count(), 1);
  EXPECT_EQ(devices(), std::vector<at::Device>{device(0)});
  EXPECT_TRUE(has(message_of<c10::Error>([] { device(1); }), "[device] expected an index from 0 to 0, got 1"));
  EXPECT_THROW(device(-1), c10::Error);
}

// --- cuts and waits ---

TEST(Sync, LaunchesAllThatIsPendingAsOneGraph) {
  const at::Tensor x = ready({6});
  const at::Tensor y = x * 2;
  const at::Tensor z = y + x;
  EXPECT_EQ(pending(), 2);
  sync();
  EXPECT_EQ(pending(), 0);
  EXPECT_EQ(launches(), 1);
  expect_same(z, at::arange(6, at::kFloat) * 3);
  EXPECT_EQ(launches(), 1) << "nothing is computed twice";
  sync();
  EXPECT_EQ(launches(), 1) << "nothing was pending";
}

TEST(Sync, WithWaitReturnsWhenTheResultsAreThere) {
  const at::Tensor y = ready({300, 300}).mm(ready({300, 300}));
  clear_metrics();
  sync(true);
  EXPECT_EQ(metrics::data("ExecuteTime")->samples, 1);
}

TEST(Sync, ResetsScopesOnlyIfAsked) {
  scope::push("outer");
  sync(false, /*reset_scope=*/false);
  EXPECT_EQ(scope::current(), "outer");
  barrier();
  EXPECT_EQ(scope::current(), "outer");
  sync();
  EXPECT_EQ(scope::current(), "");
  scope::pop();
}

TEST(Barrier, CutsWithoutWaitingAndRunsNoClosures) {
  const at::Tensor x = ready({4});
  bool ran = false;
  add_step_closure([&] { ran = true; });
  const at::Tensor y = x + 1;
  barrier();
  EXPECT_EQ(pending(), 0);
  EXPECT_EQ(launches(), 1);
  EXPECT_FALSE(ran);
  sync();
  EXPECT_TRUE(ran);
}

TEST(Synchronize, WaitsAndLaunchesNothing) {
  const at::Tensor x = ready({6});
  const at::Tensor y = x * 2;
  sync();
  const at::Tensor z = y + x;
  testing::internal::CaptureStderr();
  synchronize();
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(metrics::data("ExecuteTime")->samples, 1);
  EXPECT_EQ(pending(), 1);
  expect_same(z, at::arange(6, at::kFloat) * 3);
}

TEST(Synchronize, SaysOnceUntilTheNextSyncThatOpsArePending) {
  const at::Tensor x = ready({6});
  sync();
  for (int round = 0; round < 2; ++round) {
    testing::internal::CaptureStderr();
    synchronize();
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "nothing is pending";
    const at::Tensor y = x + 1;
    testing::internal::CaptureStderr();
    synchronize();
    synchronize();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.rfind("[synchronize] 1 recorded op", 0), 0) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    sync();
  }
}

TEST(Synchronize, InAStepWaitsSilentlyAndDoesNotCut) {
  const at::Tensor x = ready({6});
  testing::internal::CaptureStderr();
  step([&] {
    const at::Tensor y = x + 1;
    synchronize();
    wait_device_ops();
    EXPECT_EQ(pending(), 1);
  });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Read, OfWhatIsComputedLaunchesNothing) {
  const at::Tensor total = ready({4}).sum();
  EXPECT_EQ(total.item<float>(), 6);
  EXPECT_EQ(launches(), 1);
  EXPECT_EQ(total.item<float>(), 6);
  EXPECT_EQ(launches(), 1);
  EXPECT_EQ(counted("GraphBreak"), 0) << "outside any region a read breaks nothing";
}

// --- step ---

TEST(Step, GivesWhatTheBodyReturns) {
  EXPECT_EQ(step([] { return 7; }), 7);
  const auto moved = step([] { return std::make_unique<int>(8); });
  EXPECT_EQ(*moved, 8);
  step([] {});
}

TEST(Step, LaunchesPendingWorkAtEntryInAGraphOfItsOwn) {
  const at::Tensor x = ready({5});
  const at::Tensor y = x + 1;
  const at::Tensor z = step([&] {
    EXPECT_EQ(pending(), 0);
    return y * 2;
  });
  EXPECT_EQ(pending(), 0);
  EXPECT_EQ(launches(), 2);
  expect_same(z, (at::arange(5, at::kFloat) + 1) * 2);
}

struct Odd {
  int value;
};

TEST(Step, AnExceptionPassesThroughUnchangedAndWhatWasBeforeItTakesEffect) {
  at::Tensor weight = ready({3});
  try {
    step([&] {
      weight.add_(1);
      throw Odd{42};  // need not be a std::exception
    });
    FAIL();
  } catch (const Odd& odd) {
    EXPECT_EQ(odd.value, 42);
  }
  EXPECT_EQ(pending(), 0);
  EXPECT_EQ(launches(), 1);
  expect_same(weight, at::arange(3, at::kFloat) + 1);
}

TEST(Step, AfterAnExceptionLaterStepsHitTheCache) {
  at::Tensor weight = ready({3, 41});
  at::Tensor eager = weight.cpu();
  const auto one = [](at::Tensor& w, bool fail) {
    w.mul_(2);
    if (fail) {
      throw std::runtime_error("half way");
    }
    w.sub_(0.5);
  };
  step([&] { one(weight, false); });
  EXPECT_EQ(message_of<std::runtime_error>([&] { step([&] { one(weight, true); }); }), "half way");
  const std::int64_t compiled = counted("UncachedCompile");
  const std::int64_t cached = counted("CachedCompile");
  step([&] { one(weight, false); });
  EXPECT_EQ(counted("UncachedCompile"), compiled);
  EXPECT_EQ(counted("CachedCompile"), cached + 1);
  eager.mul_(2).sub_(0.5).mul_(2).mul_(2).sub_(0.5);
  expect_same(weight, eager);
}

TEST(Step, AnEarlierGraphsFailureDoesNotReplaceTheBodysException) {
  at::Tensor x = ready({4});
  const at::Tensor far = at::full({1}, 400, at::kLong).to(device());
  at::Tensor bad;
  EXPECT_EQ(message_of<std::runtime_error>([&] {
              step([&] {
                bad = x.index_select(0, far);
                barrier();
                x.add_(1);
                throw std::runtime_error("the user's");
              });
            }),
            "the user's");
  EXPECT_THROW(bad.cpu(), c10::Error);
  expect_same(x, at::arange(4, at::kFloat) + 1);
  sync(true);
}

TEST(Step, AClosuresExceptionDoesNotReplaceTheBodysAndIsTold) {
  testing::internal::CaptureStderr();
  EXPECT_THROW(step([] {
                 add_step_closure([] { throw std::runtime_error("the closure's"); });
                 throw Odd{1};
               }),
               Odd);
  EXPECT_TRUE(has(testing::internal::GetCapturedStderr(), "the closure's"));
  testing::internal::CaptureStderr();
  EXPECT_THROW(step([] {
                 add_step_closure([] { throw Odd{2}; });
                 throw std::out_of_range("the user's");
               }),
               std::out_of_range);
  EXPECT_TRUE(has(testing::internal::GetCapturedStderr(), "an exception of unknown type"));
}

TEST(Step, NestsAndEachEntryAndExitCuts) {
  const at::Tensor x = ready({2});
  const at::Tensor c = step([&] {
    const at::Tensor a = x + 1;
    const at::Tensor b = step([&] {
      EXPECT_EQ(pending(), 0);
      return a * 3;
    });
    EXPECT_EQ(pending(), 0);
    return b - 1;
  });
  EXPECT_EQ(launches(), 3);
  expect_same(c, (at::arange(2, at::kFloat) + 1) * 3 - 1);
}

TEST(Step, AnExceptionLeavesAnInnerStepAndTheOuterGoesOn) {
  at::Tensor x = ready({2});
  step([&] {
    EXPECT_THROW(step([&] {
                   x.add_(1);
                   throw Odd{1};
                 }),
                 Odd);
    x.mul_(10);
  });
  expect_same(x, (at::arange(2, at::kFloat) + 1) * 10);
}

TEST(Step, SyncInsideCutsItInTwo) {
  const at::Tensor x = ready({2});
  const at::Tensor b = step([&] {
    const at::Tensor a = x + 1;
    sync();
    EXPECT_EQ(pending(), 0);
    return a + 1;
  });
  EXPECT_EQ(launches(), 2);
  expect_same(b, at::arange(2, at::kFloat) + 2);
}

TEST(Step, ItemInsideLaunchesOnceAndCountsAGraphBreak) {
  const at::Tensor x = ready({4});
  const at::Tensor y = step([&] {
    const at::Tensor total = x.sum();
    EXPECT_EQ(total.item<float>(), 6);
    EXPECT_EQ(pending(), 0);
    EXPECT_EQ(total.item<float>(), 6);
    return x / total;
  });
  EXPECT_EQ(launches(), 2);
  EXPECT_EQ(counted("GraphBreak"), 1);
  expect_same(y, at::arange(4, at::kFloat) / 6);
}

TEST(Step, ARepeatedOneCompilesOnceWhateverItsNumbers) {
  at::Tensor weight = ready({7});
  at::Tensor eager = weight.cpu();
  for (int i = 0; i < 50; ++i) {
    step([&] { weight.sub_(weight * (0.01 / (i + 1))); });
    eager.sub_(eager * (0.01 / (i + 1)));
  }
  EXPECT_EQ(counted("UncachedCompile"), 1);
  EXPECT_EQ(counted("CachedCompile"), 49);
  expect_same(weight, eager);
}

TEST(Step, InPlaceUpdatesOfLiveInputsAreCountedPerLaunch) {
  at::Tensor a = ready({4});
  at::Tensor b = ready({4});
  at::Tensor made;
  step([&] {
    a.add_(1);
    b.mul_(2);
    made = a + b;
  });
  EXPECT_EQ(metrics::data("InputOutputAliasCount")->total, 2);
  EXPECT_EQ(metrics::data("SyncTensors")->total, 3);
}

// --- step closures ---

TEST(Closures, RunInOrderWhenAStepEndsAndMayReadItsResults) {
  const at::Tensor x = ready({4});
  std::vector<float> read;
  step([&] {
    const at::Tensor loss = x.sum();
    add_step_closure([&, loss] { read.push_back(loss.item<float>()); });
    add_step_closure([&] { read.push_back(-1); });
    EXPECT_TRUE(read.empty());
  });
  EXPECT_EQ(read, (std::vector<float>{6, -1}));
  EXPECT_EQ(counted("GraphBreak"), 0);
  EXPECT_EQ(launches(), 1);
}

TEST(Closures, AnExceptionComesOutOfTheCallThatRunsThem) {
  add_step_closure([] { throw std::out_of_range("from the closure"); });
  EXPECT_EQ(message_of<std::out_of_range>([] { sync(); }), "from the closure");
  add_step_closure([] { throw std::out_of_range("from the closure"); });
  EXPECT_THROW(step([] {}), std::out_of_range);
  sync();
}

/// Runs an asynchronous closure that throws, and returns when its exception has been noted.
void fail_in_the_background() {
  auto done = std::make_shared<std::atomic<bool>>(false);
  add_step_closure([] { throw std::out_of_range("from the background"); }, /*run_async=*/true);
  add_step_closure([done] { *done = true; }, /*run_async=*/true);  // one thread runs them in order
  sync();
  for (int i = 0; i < 20000 && !*done; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(*done);
}

TEST(Closures, AnAsynchronousOnesExceptionComesOutOfTheNextCall) {
  fail_in_the_background();
  EXPECT_EQ(message_of<std::out_of_range>([] { sync(); }), "from the background");
  fail_in_the_background();
  EXPECT_THROW(step([] {}), std::out_of_range);
  fail_in_the_background();
  EXPECT_THROW(add_step_closure([] {}), std::out_of_range);
  sync();
}

TEST(Closures, AnAsynchronousOneReadsOnAnotherThread) {
  const at::Tensor x = ready({4});
  auto done = std::make_shared<std::atomic<bool>>(false);
  float read = 0;
  std::thread::id thread;
  step([&] {
    add_step_closure(
        [&, done, total = x.sum()] {
          read = total.item<float>();
          thread = std::this_thread::get_id();
          *done = true;
        },
        /*run_async=*/true);
  });
  for (int i = 0; i < 20000 && !*done; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(*done);
  EXPECT_EQ(read, 6);
  EXPECT_NE(thread, std::this_thread::get_id());
}

// --- eager mode, engines, memory ---

struct EagerMode {
  EagerMode() { set_eager_mode(true); }
  EagerMode(const EagerMode&) = delete;
  EagerMode& operator=(const EagerMode&) = delete;
  ~EagerMode() { set_eager_mode(false); }
};

TEST(EagerMode, LaunchesEachOpByItself) {
  const at::Tensor x = ready({4});
  const at::Tensor before = x + 1;
  EXPECT_FALSE(is_eager_mode());
  {
    const EagerMode eager;
    EXPECT_TRUE(is_eager_mode());
    EXPECT_EQ(pending(), 0) << "what was pending is launched";
    const at::Tensor y = x * 2;
    EXPECT_EQ(pending(), 0);
    const at::Tensor z = y + before;
    EXPECT_EQ(launches(), 3);
    expect_same(z, at::arange(4, at::kFloat) * 3 + 1);
  }
  const at::Tensor y = x + 1;
  EXPECT_EQ(pending(), 1);
}

TEST(Engine, CanBeChosenAndCutsWhatIsPending) {
  const std::string chosen = engine_name();
  const at::Tensor x = ready({4});
  const at::Tensor y = x + 1;
  const std::string other = chosen == "native" ? "reference" : "native";
  set_engine(other);
  EXPECT_EQ(engine_name(), other);
  EXPECT_EQ(pending(), 0);
  const at::Tensor z = y * 2;
  expect_same(z, (at::arange(4, at::kFloat) + 1) * 2);
  set_engine(chosen);
  expect_same(z - y, at::arange(4, at::kFloat) + 1);
  const std::string message = message_of<c10::ValueError>([] { set_engine("steam"); });
  EXPECT_TRUE(has(message, "[engine] expected one of: native, reference; got 'steam'")) << message;
  EXPECT_EQ(engine_name(), chosen);
}

TEST(MemoryUse, FollowsWhatTensorsHold) {
  const std::size_t before = [] {
    ready({1});
    return memory_use().used;
  }();
  {
    const at::Tensor x = ready({1 << 20});
    EXPECT_GE(memory_use().used, before + (4 << 20U));
    EXPECT_GE(memory_use().peak, memory_use().used);
  }
  EXPECT_LT(memory_use().used, before + (1 << 20U));
}

// --- random numbers ---

TEST(Random, TheSameSeedGivesEagersNumbers) {
  manual_seed(7);
  const at::Tensor drawn = at::rand({5}, at::TensorOptions(device()));
  const at::Tensor normal = at::empty({5}, at::TensorOptions(device())).normal_(1, 2);
  manual_seed(7);
  const at::Tensor eager = at::rand({5});
  const at::Tensor eager_normal = at::empty({5}).normal_(1, 2);
  expect_same(drawn, eager);
  expect_same(normal, eager_normal);
}

TEST(Random, StateIsRestoredAndOrderedWithTheOps) {
  manual_seed(1);
  const at::Tensor state = get_rng_state();
  EXPECT_EQ(state.scalar_type(), at::kByte);
  EXPECT_TRUE(state.device().is_cpu());
  const at::Tensor first = at::rand({4}, at::TensorOptions(device()));
  const at::Tensor second = at::rand({4}, at::TensorOptions(device()));
  set_rng_state(state);  // nothing has run yet: what was drawn stays what it was
  const at::Tensor again = at::rand({4}, at::TensorOptions(device()));
  EXPECT_TRUE(at::equal(first.cpu(), again.cpu()));
  EXPECT_FALSE(at::equal(first.cpu(), second.cpu()));
  EXPECT_THROW(set_rng_state(at::zeros({3}, at::kByte)), c10::Error);
}

// --- what is pending, as text ---

TEST(GraphText, ShowsWhatIsPendingForTheTensorsAndLaunchesNothing) {
  const at::Tensor x = ready({2, 3});
  const at::Tensor y = x * 2;
  const at::Tensor z = y.t() + 1;
  const std::string all = graph_text({z});
  EXPECT_TRUE(has(all, "aten::mul") && has(all, "aten::add") && has(all, "strides[1,3]")) << all;
  EXPECT_FALSE(has(graph_text({y}), "aten::add")) << "only what the tensors need";
  EXPECT_EQ(pending(), 2);
  EXPECT_EQ(launches(), 0);
  sync(true);
  EXPECT_EQ(graph_text({z}), "graph()\n  return\n");
  EXPECT_TRUE(has(message_of<c10::Error>([] { graph_text({at::ones({1})}); }), "[graph_text] expected tensors on xla:0"));
  EXPECT_THROW(graph_text({at::Tensor()}), c10::Error);
}

}  // namespace
}  // namespace spool::test
