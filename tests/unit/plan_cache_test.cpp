// Which plans are kept, and what an eviction takes along.
#include "src/cache/plan_cache.h"

#include <gtest/gtest.h>

#include "tests/unit/fake_engine.h"
#include "tests/unit/small_call.h"
#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

struct Fixture : testing::Test {
  Recording r;
  FakeEngine engine;
  Storage x = filled(16);

  /// The leaf of a tape of one op, told apart by `kind`.
  TapeNode& leaf(double kind) {
    r.record(SmallCall(add_).write(x, f32({4})).real(kind));
    TapeNode& node = r.tape.leaf();
    r.tape.reset();
    return node;
  }
};
using PlanCacheTest = Fixture;

TEST_F(PlanCacheTest, FindsByLeafLivenessAndEngine) {
  PlanCache cache(8);
  FakeEngine other;
  TapeNode& node = leaf(0);
  EXPECT_EQ(cache.find(node, {true}, engine), nullptr);
  CacheEntry& entry = cache.insert(node, {true}, engine, std::make_shared<Executable>());
  EXPECT_EQ(cache.find(node, {true}, engine), &entry);
  EXPECT_EQ(cache.find(node, {false}, engine), nullptr);
  EXPECT_EQ(cache.find(node, {true}, other), nullptr);
  EXPECT_EQ(cache.find(leaf(1), {true}, engine), nullptr);
}

TEST_F(PlanCacheTest, EntriesHaveIdsOfTheirOwn) {
  PlanCache cache(8);
  TapeNode& node = leaf(0);
  const CacheEntry& first = cache.insert(node, {true}, engine, nullptr);
  const CacheEntry& second = cache.insert(node, {false}, engine, nullptr);
  EXPECT_NE(first.id, second.id);
  EXPECT_EQ(cache.size(), 2);
}

TEST_F(PlanCacheTest, EvictsTheLeastRecentlyUsed) {
  PlanCache cache(2);
  TapeNode& a = leaf(0);
  TapeNode& b = leaf(1);
  TapeNode& c = leaf(2);
  cache.insert(a, {true}, engine, nullptr);
  cache.insert(b, {true}, engine, nullptr);
  EXPECT_NE(cache.find(a, {true}, engine), nullptr);  // now b is the oldest
  cache.insert(c, {true}, engine, nullptr);
  EXPECT_EQ(cache.size(), 3) << "nothing goes before the tape has ended";
  cache.shrink(r.tape);
  EXPECT_EQ(cache.size(), 2);
  EXPECT_NE(cache.find(a, {true}, engine), nullptr);
  EXPECT_NE(cache.find(c, {true}, engine), nullptr);
  TapeNode* root = a.parent;
  EXPECT_EQ(root->children.size(), 2) << "b's node has gone with its plan";
  leaf(1);
  EXPECT_FALSE(r.followed);
}

TEST_F(PlanCacheTest, AnEvictedPlanLivesUntilItsLastLaunch) {
  PlanCache cache(1);
  auto executable = std::make_shared<Executable>();
  const std::weak_ptr<Executable> watch = executable;
  std::shared_ptr<Executable> launch = executable;
  cache.insert(leaf(0), {true}, engine, std::move(executable));
  cache.insert(leaf(1), {true}, engine, nullptr);
  cache.shrink(r.tape);
  EXPECT_FALSE(watch.expired());
  launch.reset();
  EXPECT_TRUE(watch.expired());
}

TEST_F(PlanCacheTest, ALeafWithAnotherPlanStays) {
  PlanCache cache(1);
  TapeNode& node = leaf(0);
  cache.insert(node, {true}, engine, nullptr);
  CacheEntry& kept = cache.insert(node, {false}, engine, nullptr);
  cache.shrink(r.tape);
  EXPECT_EQ(cache.find(node, {true}, engine), nullptr);
  EXPECT_EQ(cache.find(node, {false}, engine), &kept);
  EXPECT_EQ(node.plans.size(), 1);
}

TEST_F(PlanCacheTest, ALowerCapacityHoldsAtTheNextShrink) {
  PlanCache cache(16);
  for (int i = 0; i < 10; ++i) {
    cache.insert(leaf(i), {true}, engine, nullptr);
  }
  TapeNode* root = leaf(9).parent;
  cache.set_capacity(3);
  cache.shrink(r.tape);
  EXPECT_EQ(cache.size(), 3);
  EXPECT_EQ(root->children.size(), 3);
}

TEST_F(PlanCacheTest, ALongRunOfNewTapesKeepsTheTrieBounded) {
  PlanCache cache(4);
  TapeNode* root = nullptr;
  for (int i = 0; i < 500; ++i) {
    TapeNode& node = leaf(i);
    root = node.parent;
    cache.insert(node, {true}, engine, nullptr);
    cache.shrink(r.tape);
  }
  EXPECT_EQ(cache.size(), 4);
  EXPECT_EQ(root->children.size(), 4);
}

}  // namespace
}  // namespace spool::test
