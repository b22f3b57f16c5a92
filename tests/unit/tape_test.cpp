// The tape: following and leaving known prefixes, what operands and liveness are, and the trie's upkeep.
#include "src/tape/tape.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/unit/small_call.h"
#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

const Geometry four = f32({4});

TEST(Tape, StartsEmpty) {
  Tape tape;
  EXPECT_TRUE(tape.empty());
  EXPECT_EQ(tape.length(), 0);
  EXPECT_TRUE(tape.path().empty());
  EXPECT_TRUE(tape.live().empty());
  EXPECT_EQ(tape.follow(SmallCall(add)), nullptr);
}

TEST(Tape, FollowsWhatItRecordedBefore) {
  Recording r;
  const Storage x = filled(16);
  std::vector<const TapeNode*> first;
  for (int round = 0; round < 3; ++round) {
    const Storage y = r.make(SmallCall(neg).read(x, four), four);
    EXPECT_EQ(r.followed, round != 0);
    const Storage z = r.make(SmallCall(add).read(x, four).read(y, four).number(round), four);
    EXPECT_EQ(r.followed, round != 0);
    EXPECT_EQ(r.tape.length(), 2);
    if (round == 0) {
      first = r.tape.path();
    }
    EXPECT_EQ(r.tape.path(), first);
    ASSERT_EQ(r.tape.numbers().size(), 1);
    EXPECT_EQ(r.tape.numbers()[0].real, round);
    r.tape.reset();
  }
}

TEST(Tape, AFailedFollowChangesNothing) {
  Recording r;
  const Storage x = filled(16);
  const Storage y = filled(16);
  r.record(SmallCall(add_).write(x, four).read(x, four));
  r.tape.reset();

  // The same words, but two storages instead of one: only the operands tell.
  EXPECT_EQ(r.tape.follow(SmallCall(add_).write(x, four).read(y, four)), nullptr);
  EXPECT_TRUE(r.tape.empty());
  EXPECT_TRUE(r.tape.slots().empty());
  EXPECT_FALSE(r.tape.touches(*x));
  EXPECT_FALSE(x->dirty);
  r.record(SmallCall(add_).write(x, four).read(x, four));
  EXPECT_TRUE(r.followed);
}

TEST(Tape, KeepsBothWaysAfterADivergenceAndPredictsTheLast) {
  Recording r;
  const Storage x = filled(16);
  const auto one = SmallCall(add_).write(x, four).number(1);
  const auto other = SmallCall(add_).write(x, four).integer(1);
  const TapeNode* first = &r.record(one);
  r.tape.reset();
  const TapeNode* second = &r.record(other);
  EXPECT_FALSE(r.followed);
  EXPECT_NE(first, second);
  r.tape.reset();
  EXPECT_EQ(&r.record(one), first) << "known, though not predicted";
  EXPECT_FALSE(r.followed);
  r.tape.reset();
  EXPECT_EQ(&r.record(one), first);
  EXPECT_TRUE(r.followed);
  EXPECT_EQ(first->parent->children.size(), 2);
}

TEST(Tape, AnOperandIsWhatItsStorageWasAtItsFirstTouch) {
  Recording r;
  const Storage x = filled(32);
  const Storage y = uninitialised(16);
  const TapeNode& node = r.record(SmallCall(add_).write(y, four).read(x, four).read(y, four));
  const std::vector<Operand> expected{
      {0, Operand::First::Uninitialised, 16}, {1, Operand::First::Buffer, 32}, {0, Operand::First::No, 0}};
  EXPECT_EQ(node.operands, expected);
}

TEST(Tape, UninitialisedAndFilledStorageAreDifferentTapes) {
  Recording r;
  const Storage y = uninitialised(16);
  const TapeNode* first = &r.record(SmallCall(add_).write(y, four));
  r.tape.reset();
  y->buffer = std::make_shared<Buffer>();
  EXPECT_NE(&r.record(SmallCall(add_).write(y, four)), first);
}

TEST(Tape, AStorageOfAnotherSizeIsAnotherTape) {
  Recording r;
  const Storage small = filled(16);
  const Storage large = filled(64);
  const TapeNode* first = &r.record(SmallCall(neg).read(small, four));
  r.tape.reset();
  EXPECT_NE(&r.record(SmallCall(neg).read(large, four)), first);
}

TEST(Tape, LiveIsWhatIsWrittenAndStillHeld) {
  Recording r;
  const Storage read = filled(16);
  const Storage written = filled(16);
  Storage dropped = r.make(SmallCall(neg).read(read, four), four);
  const Storage kept = r.make(SmallCall(add).read(dropped, four).read(read, four), four);
  r.record(SmallCall(add_).write(written, four).read(kept, four));
  EXPECT_EQ(r.tape.live(), (std::vector<bool>{false, true, true, true}));
  dropped.drop();
  EXPECT_EQ(r.tape.live(), (std::vector<bool>{false, false, true, true}));
}

TEST(Tape, HoldsWhatItTouchesUntilReset) {
  Recording r;
  const std::size_t before = Slot::live();
  Storage x = filled(16);
  Storage y = r.make(SmallCall(neg).read(x, four), four);
  x.drop();
  y.drop();
  EXPECT_EQ(Slot::live(), before + 2);
  r.tape.reset();
  EXPECT_EQ(Slot::live(), before);
}

TEST(Tape, ResetForgetsThatStoragesWereTouched) {
  Recording r;
  const Storage x = filled(16);
  r.record(SmallCall(add_).write(x, four));
  EXPECT_TRUE(r.tape.touches(*x));
  EXPECT_TRUE(x->dirty);
  r.tape.reset();
  EXPECT_FALSE(r.tape.touches(*x));
  EXPECT_FALSE(x->dirty);
}

TEST(Tape, CountsBytesOfResultsAndGathersParametersInOrder) {
  Recording r;
  const Storage x = filled(16);
  const auto state = std::make_shared<int>(7);
  const Storage y = r.make(SmallCall(add).read(x, four).number(1).number(2), f32({8}));
  const Storage z = r.make(SmallCall(add).read(y, four).generator(state).number(3), four);
  EXPECT_EQ(r.tape.result_bytes(), 48);
  ASSERT_EQ(r.tape.numbers().size(), 3);
  EXPECT_EQ(r.tape.numbers()[2].real, 3);
  ASSERT_EQ(r.tape.generators().size(), 1);
  EXPECT_EQ(r.tape.generators()[0], state);
}

TEST(Tape, UndefinedResultsHaveNoSlot) {
  Recording r;
  const Storage x = filled(16);
  Results results;
  results.tensors = {FreshResult{four, 16}, std::nullopt, FreshResult{f32({2}), 8}};
  r.record(SmallCall(neg).read(x, four), results);
  const Storage first(r.tape.result(0));
  const Storage second(r.tape.result(1));
  EXPECT_EQ(first->nbytes, 16);
  EXPECT_EQ(second->nbytes, 8);
  EXPECT_EQ(r.tape.slots().size(), 3);
}

TEST(Tape, KnowsWhereItRepeatsItself) {
  Recording r;
  const Storage x = filled(16);
  const auto first = SmallCall(neg).read(x, four);
  EXPECT_FALSE(r.tape.starts_like(first));
  const Storage y = r.make(first, four);
  EXPECT_TRUE(r.tape.starts_like(SmallCall(neg).read(y, four)));
  EXPECT_FALSE(r.tape.starts_like(SmallCall(add).read(y, four)));
}

TEST(Tape, PruneTakesAwayWhatLeadsToNoPlan) {
  Recording r;
  const Storage x = filled(16);
  const auto step = [&](double kind) { return SmallCall(add_).write(x, four).real(kind); };
  r.record(step(0));
  TapeNode& shared = r.tape.leaf();
  r.record(step(1));
  r.record(step(2));
  TapeNode& dead = r.tape.leaf();
  r.tape.reset();
  r.record(step(0));
  r.record(step(3));
  TapeNode& planned = r.tape.leaf();
  planned.plans.emplace_back();
  r.tape.reset();

  ASSERT_EQ(shared.children.size(), 2);
  r.tape.prune(&dead);
  ASSERT_EQ(shared.children.size(), 1);
  EXPECT_EQ(shared.children[0].get(), &planned);
  r.tape.prune(&planned);
  EXPECT_EQ(shared.children.size(), 1) << "a node with a plan stays";

  TapeNode& root = *shared.parent;
  planned.plans.clear();
  r.tape.prune(&planned);
  EXPECT_TRUE(root.children.empty());
  EXPECT_EQ(root.last, nullptr) << "nothing may predict what is gone";
  r.record(step(0));
  EXPECT_FALSE(r.followed);
}

TEST(Tape, PruneIsForBetweenTapes) {
  Recording r;
  const Storage x = filled(16);
  r.record(SmallCall(neg).read(x, four));
  EXPECT_THROW(r.tape.prune(&r.tape.leaf()), Error);
}

TEST(Tape, ALongOneIsFreedWithoutRecursion) {
  Recording r;
  const Storage x = filled(16);
  for (int i = 0; i < 200000; ++i) {
    r.record(SmallCall(add_).write(x, four));
  }
  EXPECT_EQ(r.tape.path().size(), 200000);
}

TEST(Location, SaysWhatIsKnown) {
  EXPECT_EQ(describe(LocationPtr()), "unknown line");
  EXPECT_EQ(describe(std::make_shared<const Location>()), "unknown line");
  EXPECT_EQ(describe(std::make_shared<const Location>(Location{"", 0, "epoch"})), "epoch");
  EXPECT_EQ(describe(std::make_shared<const Location>(Location{"train.py", 3, ""})), "train.py:3");
  EXPECT_EQ(describe(std::make_shared<const Location>(Location{"train.py", 3, "a/b"})), "train.py:3 (a/b)");
}

}  // namespace
}  // namespace spool::test
