#include "src/passes/dead_code.h"

#include <gtest/gtest.h>

#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

std::vector<std::string> ops(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    names.push_back(node.op->name);
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(DeadCode, KeepsWhatOutputsNeed) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  g.output(g.make(neg, {g.read(g.make(add, {g.read(x), g.read(x)}, f32({4})))}, f32({4})));
  EXPECT_EQ(text(dead_code(g.graph)), text(g.graph));
}

TEST(DeadCode, DropsChainsThatEndNowhere) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  const ValueId kept = g.make(neg, {g.read(x)}, f32({4}));
  g.make(neg, {g.read(g.make(add, {g.read(kept), g.read(x)}, f32({4})))}, f32({4}));
  g.output(kept);
  EXPECT_EQ(ops(dead_code(g.graph)), Names{"test::neg"});
}

TEST(DeadCode, DropsMutationsThatNobodySees) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  const ValueId made = g.make(neg, {g.read(x)}, f32({4}));
  const ValueId shown = g.make(neg, {g.read(made)}, f32({4}));
  g.mutate(add_, {g.write(g.read(made)), g.read(x), g.number()});
  g.output(shown);
  EXPECT_EQ(ops(dead_code(g.graph)), (Names{"test::neg", "test::neg"}));
}

TEST(DeadCode, KeepsMutationsThatAreSeen) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  g.output(g.mutate(add_, {g.write(g.read(x)), g.read(x), g.number()}), 0);
  EXPECT_EQ(ops(dead_code(g.graph)), Names{"test::add_"});
}

TEST(DeadCode, KeepsNodesOfWhichOneResultIsUsed) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  const ValueId first = g.value(f32({4}));
  const ValueId second = g.value(f32({4}));
  g.graph.nodes.push_back({.op = &add, .args = {g.read(x)}, .results = {first, no_value, second}, .fresh = 3, .location = {}});
  g.output(second);
  EXPECT_EQ(ops(dead_code(g.graph)), Names{"test::add"});
}

TEST(DeadCode, KeepsEffectsAndWhatTheyRead) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  const ValueId made = g.make(neg, {g.read(x)}, f32({4}));
  Arg list;
  list.tag = Tag::TensorList;
  list.elements = {g.read(made)};
  g.graph.nodes.push_back({.op = &check_, .args = {list}, .results = {}, .fresh = 0, .location = {}});
  EXPECT_EQ(ops(dead_code(g.graph)), (Names{"test::neg", "test::check"}));
}

TEST(DeadCode, KeepsIdsInputsAndParameters) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  g.input(f32({4}));
  g.make(add, {g.read(x), g.number()}, f32({4}));
  g.output(g.make(neg, {g.read(x)}, f32({4})));
  const Graph left = dead_code(g.graph);
  EXPECT_EQ(left.inputs.size(), 2);
  EXPECT_EQ(left.numbers, 1);
  EXPECT_EQ(left.values.size(), g.graph.values.size());
  EXPECT_EQ(left.outputs[0].value, g.graph.outputs[0].value);
}

}  // namespace
}  // namespace spool::test
