// Counters and samples.
#include "src/runtime/metrics.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace spool::metrics {
namespace {

struct MetricsTest : testing::Test {
  MetricsTest() {
    clear_counters();
    clear_metrics();
  }
};

TEST_F(MetricsTest, CountersAddUp) {
  EXPECT_EQ(counter("a"), std::nullopt);
  count("b");
  count("a", 3);
  count("a", -1);
  EXPECT_EQ(counter("a"), 2);
  EXPECT_EQ(counter("b"), 1);
  EXPECT_EQ(counter_names(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(MetricsTest, SamplesKeepTheirUnitSumAndTimes) {
  EXPECT_FALSE(data("t").has_value());
  sample("t", 2.5, Unit::Bytes);
  sample("t", 4, Unit::Bytes);
  const auto found = data("t");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->samples, 2);
  EXPECT_EQ(found->total, 6.5);
  EXPECT_EQ(found->unit, Unit::Bytes);
  ASSERT_EQ(found->recent.size(), 2);
  EXPECT_EQ(found->recent[1].second, 4);
  EXPECT_GT(found->recent[0].first, 1.6e9) << "seconds since the epoch";
  EXPECT_LE(found->recent[0].first, found->recent[1].first);
  EXPECT_EQ(names(), std::vector<std::string>{"t"});
}

TEST_F(MetricsTest, OnlyTheNewestSamplesAreKeptButTotalsAreExact) {
  for (int i = 0; i < 3000; ++i) {
    sample("t", i, Unit::Count);
  }
  const auto found = data("t");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->samples, 3000);
  EXPECT_EQ(found->total, 2999.0 * 3000 / 2);
  ASSERT_EQ(found->recent.size(), 1024);
  for (std::size_t i = 0; i < found->recent.size(); ++i) {
    ASSERT_EQ(found->recent[i].second, static_cast<double>(3000 - 1024 + i)) << "oldest first";
  }
}

TEST_F(MetricsTest, CountersAndMetricsAreClearedApart) {
  count("c");
  sample("m", 1, Unit::Count);
  clear_counters();
  EXPECT_TRUE(counter_names().empty());
  EXPECT_TRUE(data("m").has_value());
  clear_metrics();
  EXPECT_TRUE(names().empty());
}

TEST_F(MetricsTest, ATimerSamplesNanoseconds) {
  {
    const Timer timer("t");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const auto found = data("t");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->unit, Unit::Nanoseconds);
  EXPECT_GE(found->total, 20e6);
  EXPECT_LT(found->total, 60e9);
}

TEST_F(MetricsTest, TheReportNamesEverythingThatWasAskedFor) {
  EXPECT_EQ(report(), "");
  sample("CompileTime", 1.5e6, Unit::Nanoseconds);
  sample("Bytes", 3 * 1024 * 1024, Unit::Bytes);
  count("CachedCompile", 12345);
  const std::string all = report();
  for (const char* part : {"CompileTime", "1.5 ms", "Bytes", "3.0 MiB", "CachedCompile", "12345"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part << " in\n" << all;
  }
  const std::string some = report({"CachedCompile"});
  EXPECT_NE(some.find("CachedCompile"), std::string::npos);
  EXPECT_EQ(some.find("CompileTime"), std::string::npos);
  EXPECT_EQ(report({"no such"}), "");
}

TEST_F(MetricsTest, ALongNameIsReportedWhole) {
  const std::string name(400, 'n');
  count(name, 7);
  EXPECT_NE(report().find(name), std::string::npos);
}

TEST_F(MetricsTest, ThreadsMayCountAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 1000; ++i) {
        count("c");
        sample("m", 1, Unit::Count);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(counter("c"), 4000);
  EXPECT_EQ(data("m")->total, 4000);
}

TEST_F(MetricsTest, AChildForkedWhileAnotherThreadCountsCanCount) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      count("busy");
    }
  });
  int hung = 0;
  for (int i = 0; i < 200 && hung == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);  // ends a child that hangs
      count("child");
      _exit(counter("child") == 1 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    hung += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
  }
  stop = true;
  busy.join();
  EXPECT_EQ(hung, 0);
}

}  // namespace
}  // namespace spool::metrics
