#include "src/passes/plan_memory.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

using Kind = PlannedBuffer::Kind;

const PlannedBuffer& buffer_of(const MemoryPlan& plan, ValueId value) {
  return plan.buffers.at(static_cast<std::size_t>(plan.buffer_of.at(static_cast<std::size_t>(value))));
}

/// What must hold of every plan.
void expect_sound(const MemoryPlan& plan) {
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlannedBuffer& a = plan.buffers[i];
    if (a.kind != Kind::Arena) {
      continue;
    }
    EXPECT_EQ(a.offset % 64, 0U);
    EXPECT_LE(a.offset + a.nbytes, plan.arena_bytes);
    for (std::size_t j = i + 1; j < plan.buffers.size(); ++j) {
      const PlannedBuffer& b = plan.buffers[j];
      const bool together = b.kind == Kind::Arena && a.first <= b.last && b.first <= a.last;
      const bool overlap = a.offset < b.offset + b.nbytes && b.offset < a.offset + a.nbytes;
      EXPECT_FALSE(together && overlap) << "buffers " << i << " and " << j;
    }
  }
}

TEST(PlanMemory, EmptyGraph) {
  const MemoryPlan plan = plan_memory(Graph{});
  EXPECT_TRUE(plan.buffers.empty());
  EXPECT_EQ(plan.arena_bytes, 0U);
}

TEST(PlanMemory, ChainNeedsTwoBuffersWorth) {
  SmallGraph g;
  ValueId value = g.input(f32({100}));
  for (int i = 0; i < 10; ++i) {
    value = g.make(neg, {g.read(value)}, f32({100}));
  }
  g.output(value);
  const MemoryPlan plan = plan_memory(g.graph);
  expect_sound(plan);
  EXPECT_EQ(plan.arena_bytes, 2 * 448U);
  EXPECT_EQ(buffer_of(plan, value).kind, Kind::Output);
  EXPECT_EQ(buffer_of(plan, value).first, 9);
  EXPECT_EQ(buffer_of(plan, value).last, 10);
}

TEST(PlanMemory, InputsAndOutputsAreNotInTheArena) {
  SmallGraph g;
  const ValueId x = g.input(f32({16}));
  const ValueId y = g.make(neg, {g.read(x)}, f32({16}));
  g.output(y);
  const MemoryPlan plan = plan_memory(g.graph);
  EXPECT_EQ(plan.arena_bytes, 0U);
  EXPECT_EQ(buffer_of(plan, x).kind, Kind::Input);
  EXPECT_EQ(buffer_of(plan, x).index, 0);
  EXPECT_EQ(buffer_of(plan, x).first, -1);
  EXPECT_EQ(plan.input_written, std::vector<std::uint8_t>{0});
  EXPECT_EQ(plan.output_donated, std::vector<std::uint8_t>{0});
}

TEST(PlanMemory, MutationsStayInTheirBuffer) {
  SmallGraph g;
  const ValueId x = g.input(f32({16}));
  const ValueId made = g.make(neg, {g.read(x)}, f32({16}));
  const ValueId next = g.mutate(add_, {g.write(g.read(made)), g.read(x), g.number()});
  g.output(next);
  const MemoryPlan plan = plan_memory(g.graph);
  EXPECT_EQ(&buffer_of(plan, made), &buffer_of(plan, next));
  EXPECT_EQ(buffer_of(plan, made).first, 0);
  EXPECT_TRUE(plan.copies.empty());
}

TEST(PlanMemory, MutatedInputsAreDonatedToTheOutputsThatReplaceThem) {
  SmallGraph g;
  const ValueId x = g.input(f32({16}));
  const ValueId y = g.input(f32({16}));
  const ValueId next = g.mutate(add_, {g.write(g.read(y)), g.read(x), g.number()});
  g.output(g.mutate(add_, {g.write(g.read(next)), g.read(x), g.number()}), 1);
  const MemoryPlan plan = plan_memory(g.graph);
  EXPECT_EQ(plan.output_donated, std::vector<std::uint8_t>{1});
  EXPECT_EQ(plan.input_written, (std::vector<std::uint8_t>{0, 1}));
  EXPECT_EQ(buffer_of(plan, next).kind, Kind::Input);
}

TEST(PlanMemory, OldValuesThatAreStillNeededAreCopied) {
  SmallGraph g;
  const ValueId x = g.input(f32({16}));
  const ValueId next = g.mutate(add_, {g.write(g.read(x)), g.read(x), g.number()});
  const ValueId both = g.make(add, {g.read(x), g.read(next)}, f32({16}));
  g.output(both);
  const MemoryPlan plan = plan_memory(g.graph);
  ASSERT_EQ(plan.copies.size(), 1);
  EXPECT_EQ(plan.copies[0].node, 0);
  EXPECT_EQ(plan.copies[0].from, x);
  EXPECT_EQ(plan.copies[0].to, next);
  EXPECT_EQ(plan.input_written, std::vector<std::uint8_t>{0});
  EXPECT_EQ(buffer_of(plan, next).kind, Kind::Arena);
  EXPECT_EQ(buffer_of(plan, next).first, 0);
}

TEST(PlanMemory, InputThatIsAnOutputOfAnotherSlotIsNotDonated) {
  SmallGraph g;
  const ValueId x = g.input(f32({16}));
  g.output(x);
  const MemoryPlan plan = plan_memory(g.graph);
  EXPECT_EQ(buffer_of(plan, x).kind, Kind::Input);
  EXPECT_EQ(plan.output_donated, std::vector<std::uint8_t>{0});
}

TEST(PlanMemory, UnusedResultsHaveAPlaceWhileTheirNodeRuns) {
  SmallGraph g;
  const ValueId x = g.input(f32({16}));
  const ValueId used = g.value(f32({16}));
  const ValueId unused = g.value(f32({16}));
  g.graph.nodes.push_back({.op = &add, .args = {g.read(x)}, .results = {used, no_value, unused}, .fresh = 3, .location = {}});
  const ValueId later = g.make(neg, {g.read(used)}, f32({16}));
  g.output(g.make(neg, {g.read(later)}, f32({16})));
  const MemoryPlan plan = plan_memory(g.graph);
  expect_sound(plan);
  EXPECT_EQ(buffer_of(plan, unused).first, 0);
  EXPECT_EQ(buffer_of(plan, unused).last, 0);
  EXPECT_EQ(plan.arena_bytes, 128U);
}

TEST(PlanMemory, ValuesThatAreNeverMadeHaveNoBuffer) {
  SmallGraph g;
  const ValueId ghost = g.value(f32({16}));
  EXPECT_EQ(plan_memory(g.graph).buffer_of[static_cast<std::size_t>(ghost)], -1);
}

TEST(PlanMemory, EmptyValuesTakeNoRoom) {
  SmallGraph g;
  const ValueId x = g.input(f32({0}));
  g.output(g.make(neg, {g.read(g.make(neg, {g.read(x)}, f32({0})))}, f32({0})));
  EXPECT_EQ(plan_memory(g.graph).arena_bytes, 0U);
}

TEST(PlanMemory, NeverOverlapsAndStaysNearTheLeastPossible) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    SmallGraph g;
    std::vector<ValueId> values{g.input(f32({64}))};
    for (int i = 0; i < 200; ++i) {
      const auto near = [&] { return values[values.size() - 1 - random() % std::min<std::size_t>(values.size(), 12)]; };
      const auto size = static_cast<std::int64_t>(1 + random() % 1000);
      values.push_back(g.make(add, {g.read(near()), g.read(near())}, f32({size})));
    }
    g.output(values.back());
    const MemoryPlan plan = plan_memory(g.graph);
    expect_sound(plan);
    std::size_t most = 0;  // live at once: no plan can need less
    for (std::int32_t i = 0; i < 200; ++i) {
      std::size_t live = 0;
      for (const PlannedBuffer& buffer : plan.buffers) {
        live += buffer.kind == Kind::Arena && buffer.first <= i && i <= buffer.last ? (buffer.nbytes + 63) / 64 * 64 : 0;
      }
      most = std::max(most, live);
    }
    EXPECT_GE(plan.arena_bytes, most);
    EXPECT_LE(plan.arena_bytes, most + most / 4);
  }
}

}  // namespace
}  // namespace spool::test
