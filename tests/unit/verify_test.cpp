// One test for each invariant that the verifier checks, named after it.
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

void expect_failure(const Graph& graph, const std::string& part) {
  try {
    verify(graph);
    FAIL() << "expected a message with '" << part << "' for\n" << graph;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Internal);
    const std::string message = error.what();
    EXPECT_EQ(message.rfind("[verify] ", 0), 0) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

/// x, y → sum = x + y; sum is updated; it replaces x.
struct Good : SmallGraph {
  ValueId x = input(f32({2, 3}));
  ValueId y = input(f32({2, 3}));
  ValueId sum = make(add, {read(x), read(y), number()}, f32({2, 3}));
  ValueId updated = mutate(add_, {write(read(sum)), read(y), number()});
  Good() { output(updated, 0); }
};

TEST(Verify, AcceptsAGoodGraph) {
  EXPECT_NO_THROW(verify(Good().graph));
  EXPECT_NO_THROW(verify(Graph{}));
}

TEST(Verify, IdsAreInRange) {
  Good g;
  g.graph.nodes[0].args[0].value = 99;
  expect_failure(g.graph, "a value id below 4, got 99");
  g.graph.nodes[0].args[0].value = -1;
  expect_failure(g.graph, "a value id below 4, got -1");
}

TEST(Verify, NodesHaveAnOp) {
  Good g;
  g.graph.nodes[1].op = nullptr;
  expect_failure(g.graph, "node 1: expected a node needs an op");
}

TEST(Verify, ValuesAreDefinedOnce) {
  Good g;
  g.graph.nodes[0].results[0] = g.x;
  expect_failure(g.graph, "%0 to be defined once");
}

TEST(Verify, ValuesAreDefinedBeforeTheirUse) {
  Good g;
  g.graph.nodes[0].args[1].value = g.updated;
  expect_failure(g.graph, "%3 to be defined before its use");
}

TEST(Verify, ValuesStartAtOffsetZero) {
  Good g;
  g.graph.values[0].geometry.offset = 1;
  expect_failure(g.graph, "a value to start at offset 0");
}

TEST(Verify, ValuesLieInsideTheirStorage) {
  Good g;
  g.graph.values[0].nbytes = 20;
  expect_failure(g.graph, "a geometry inside 20 bytes");
}

TEST(Verify, OperandsLieInsideTheirValue) {
  Good g;
  g.graph.nodes[0].args[0].geometry.offset = 1;
  expect_failure(g.graph, "an operand inside the 24 bytes of %0");
  g.graph.nodes[0].args[0].geometry.offset = -1;
  expect_failure(g.graph, "an operand inside the 24 bytes of %0");
}

TEST(Verify, MutatedValuesAreUsedByNoLaterNode) {
  Good g;
  g.make(neg, {g.read(g.sum)}, f32({2, 3}));
  expect_failure(g.graph, "no use of %2 after it was mutated");
}

TEST(Verify, MutatedValuesAreNoOutputs) {
  Good g;
  g.output(g.sum);
  expect_failure(g.graph, "outputs: expected no use of %2 after it was mutated");
}

TEST(Verify, OutputsCoverTheirStorage) {
  Good g;
  g.graph.outputs[0].input = -1;
  g.graph.values[static_cast<std::size_t>(g.updated)].geometry = f32({2, 2});
  expect_failure(g.graph, "%3 to cover its 24 bytes");
}

TEST(Verify, ParametersAreInRange) {
  Good g;
  g.graph.numbers = 1;
  expect_failure(g.graph, "a number below 1, got 1");
  Good h;
  Arg generator;
  generator.tag = Tag::Generator;
  generator.parameter = 0;
  h.graph.nodes[0].args.push_back(generator);
  expect_failure(h.graph, "a generator below 0, got 0");
}

TEST(Verify, ConstantsAreNotComplex) {
  Good g;
  g.graph.nodes[0].args.push_back(g.number());
  g.graph.nodes[0].args.back().parameter = -1;
  EXPECT_NO_THROW(verify(g.graph));
  g.graph.nodes[0].args.back().number.kind = NumberKind::Complex;
  expect_failure(g.graph, "a parameter or a constant that isn't complex");
}

TEST(Verify, ResultsMatchFreshAndMutated) {
  Good g;
  g.graph.nodes[1].fresh = 1;
  expect_failure(g.graph, "1 fresh results and 1 new values of mutated ones, got 1 results");
}

TEST(Verify, UndefinedResultsAreFreshOnes) {
  Good g;
  g.graph.nodes[0].results.push_back(no_value);
  g.graph.nodes[0].fresh = 2;
  EXPECT_NO_THROW(verify(g.graph));
  g.graph.nodes[1].results[0] = no_value;
  expect_failure(g.graph, "a value id below");
}

TEST(Verify, NextValuesAreAsLargeAsTheirOldOnes) {
  Good g;
  g.graph.values[static_cast<std::size_t>(g.updated)].nbytes = 28;
  expect_failure(g.graph, "%3 to be as large as %2");
}

TEST(Verify, ReplacedInputsExist) {
  Good g;
  g.graph.outputs[0].input = 2;
  expect_failure(g.graph, "an input below 2 to replace, got 2");
}

TEST(Verify, InputsAreReplacedOnce) {
  Good g;
  g.output(g.updated, 0);
  expect_failure(g.graph, "one output to replace input 0");
}

TEST(Verify, ReplacedInputsAreAsLarge) {
  Good g;
  const ValueId small = g.input(f32({2}));
  g.graph.outputs[0].input = 2;
  expect_failure(g.graph, "%3 to be as large as input 2");
  EXPECT_EQ(small, 4);
}

}  // namespace
}  // namespace spool::test
