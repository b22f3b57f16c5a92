#include "src/passes/cse.h"

#include <gtest/gtest.h>

#include "tests/unit/golden.h"
#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

Arg constant(double value) {
  Arg arg;
  arg.tag = Tag::Number;
  arg.real = value;
  return arg;
}

std::size_t left(const Graph& graph) {
  verify(graph);
  const Graph merged = common_subexpressions(graph);
  verify(merged);
  return merged.nodes.size();
}

TEST(CommonSubexpressions, AreComputedOnce) {
  SmallGraph g;
  const ValueId x = g.input(f32({2, 3}));
  const ValueId y = g.input(f32({2, 3}));
  const ValueId first = g.make(add, {g.read(x), g.read(y), constant(0.5)}, f32({2, 3}));
  const ValueId second = g.make(add, {g.read(x), g.read(y), constant(0.5)}, f32({2, 3}));
  const ValueId left_chain = g.make(neg, {g.read(first)}, f32({2, 3}));
  const ValueId right_chain = g.make(neg, {g.read(second)}, f32({2, 3}));
  g.output(g.make(add, {g.read(left_chain), g.read(right_chain), constant(1)}, f32({2, 3})));
  const Graph merged = common_subexpressions(g.graph);
  verify(merged);
  expect_golden("cse.txt", text(g.graph) + "common subexpressions:\n" + text(merged));
}

TEST(CommonSubexpressions, DifferInEveryPartOfTheirArguments) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  Geometry half = f32({2});
  half.offset = 2;
  std::vector<ValueId> made{
      g.make(add, {g.read(x), constant(0.5)}, f32({4})), g.make(add, {g.read(x), constant(0.25)}, f32({4})),
      g.make(add, {g.read(x), g.number()}, f32({4})),    g.make(add, {g.read(x), g.number()}, f32({4})),
      g.make(neg, {g.read(x, f32({2}))}, f32({2})),      g.make(neg, {g.read(x, half)}, f32({2})),
  };
  for (const ValueId id : made) {
    g.output(g.make(neg, {g.read(id)}, g.graph.values[static_cast<std::size_t>(id)].geometry));
  }
  EXPECT_EQ(left(g.graph), g.graph.nodes.size());
}

TEST(CommonSubexpressions, OfCommutativeOpsComeInEitherOrder) {
  const Op mul = make_op("aten::mul.Tensor");
  const Op sub = make_op("aten::sub.Tensor");
  for (const Op* op : {&mul, &sub}) {
    SmallGraph g;
    const ValueId x = g.input(f32({4}));
    const ValueId y = g.input(f32({4}));
    const ValueId a = g.make(*op, {g.read(x), g.read(y)}, f32({4}));
    const ValueId b = g.make(*op, {g.read(y), g.read(x)}, f32({4}));
    g.output(g.make(add, {g.read(a), g.read(b)}, f32({4})));
    EXPECT_EQ(left(g.graph), op == &mul ? 2 : 3);
  }
}

TEST(CommonSubexpressions, StayApartWhereAResultIsWrittenTo) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  const ValueId first = g.make(neg, {g.read(x)}, f32({4}));
  const ValueId second = g.make(neg, {g.read(x)}, f32({4}));
  g.output(g.mutate(add_, {g.write(g.read(second)), g.read(first), g.number()}));
  EXPECT_EQ(left(g.graph), 3);
}

TEST(CommonSubexpressions, SeeWritesToTheirArguments) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  const ValueId before = g.make(neg, {g.read(x)}, f32({4}));
  const ValueId updated = g.mutate(add_, {g.write(g.read(x)), g.read(before), g.number()});
  const ValueId after = g.make(neg, {g.read(updated)}, f32({4}));
  g.output(g.make(add, {g.read(before), g.read(after)}, f32({4})));
  EXPECT_EQ(left(g.graph), 4);
}

TEST(CommonSubexpressions, StayApartWhereBothLeaveTheGraph) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  g.output(g.make(neg, {g.read(x)}, f32({4})));
  g.output(g.make(neg, {g.read(x)}, f32({4})));
  EXPECT_EQ(left(g.graph), 2);
}

TEST(CommonSubexpressions, AreNeitherRandomNorEffectsNorUndefined) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  Arg generator;
  generator.tag = Tag::Generator;
  generator.parameter = g.graph.generators++;
  for (int i = 0; i < 2; ++i) {
    const ValueId drawn = g.make(neg, {g.read(x), generator}, f32({4}));
    const ValueId undefined = g.make(ops::empty, {}, f32({4}));
    g.graph.nodes.push_back({.op = &check_, .args = {g.read(x)}, .results = {}, .fresh = 0, .location = {}});
    g.output(g.make(add, {g.read(drawn), g.read(undefined)}, f32({4})));
  }
  EXPECT_EQ(left(g.graph), g.graph.nodes.size());
}

}  // namespace
}  // namespace spool::test
