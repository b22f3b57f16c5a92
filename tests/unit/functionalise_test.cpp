// From the tape to the functional form: storages become values, writes become new values.
#include "src/graph/functionalise.h"

#include <gtest/gtest.h>

#include "tests/unit/small_call.h"
#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

const Geometry four = f32({4});

Graph graph_of(const Recording& r) {
  Graph graph = functionalise(r.tape.path(), r.tape.live());
  verify(graph);
  return graph;
}

const Arg& tensor(const Graph& graph, std::size_t node, std::size_t arg) { return graph.nodes.at(node).args.at(arg); }

TEST(Functionalise, AnEmptyTapeIsAnEmptyGraph) {
  const Recording r;
  EXPECT_EQ(text(graph_of(r)), text(Graph{}));
}

TEST(Functionalise, AReadStorageIsAnInputAndAHeldResultAnOutput) {
  Recording r;
  const Storage x = filled(16);
  Storage y = r.make(SmallCall(neg).read(x, four), four);
  const Storage z = r.make(SmallCall(add).read(y, four).read(x, four).number(1), four);
  y.drop();
  const Graph graph = graph_of(r);
  ASSERT_EQ(graph.inputs.size(), 1);
  ASSERT_EQ(graph.nodes.size(), 2);
  EXPECT_EQ(tensor(graph, 1, 0).value, graph.nodes[0].results[0]);
  EXPECT_EQ(tensor(graph, 1, 1).value, graph.inputs[0].value);
  EXPECT_EQ(tensor(graph, 1, 2).parameter, 0);
  EXPECT_EQ(graph.numbers, 1);
  ASSERT_EQ(graph.outputs.size(), 1);
  EXPECT_EQ(graph.outputs[0].value, graph.nodes[1].results[0]);
  EXPECT_EQ(graph.outputs[0].slot, 2);
  EXPECT_EQ(graph.outputs[0].input, -1);
}

TEST(Functionalise, AViewIsTheGeometryOfAnOperand) {
  Recording r;
  const Storage x = filled(24);
  Geometry column = f32({2});
  column.strides = {3};
  column.offset = 1;
  const Storage whole = r.make(SmallCall(neg).read(x, f32({2, 3})), f32({2, 3}));
  const Storage part = r.make(SmallCall(neg).read(whole, column), f32({2}));
  const Graph graph = graph_of(r);
  EXPECT_EQ(graph.nodes.size(), 2) << "views need no nodes";
  EXPECT_EQ(tensor(graph, 1, 0).value, graph.nodes[0].results[0]);
  EXPECT_EQ(tensor(graph, 1, 0).geometry, column);
}

TEST(Functionalise, AWriteIsANewValueThatLaterReadsSee) {
  Recording r;
  const Storage x = filled(16);
  const Storage before = r.make(SmallCall(neg).read(x, four), four);
  r.record(SmallCall(add_).write(x, four).read(before, four));
  const Storage after = r.make(SmallCall(neg).read(x, four), four);
  const Graph graph = graph_of(r);
  const ValueId old = graph.inputs.at(0).value;
  EXPECT_EQ(tensor(graph, 0, 0).value, old);
  EXPECT_EQ(tensor(graph, 1, 0).value, old);
  EXPECT_TRUE(tensor(graph, 1, 0).writes);
  EXPECT_EQ(graph.nodes[1].fresh, 0);
  const ValueId updated = graph.nodes[1].results.at(0);
  EXPECT_NE(updated, old);
  EXPECT_EQ(tensor(graph, 2, 0).value, updated);
  ASSERT_EQ(graph.outputs.size(), 3);
  EXPECT_EQ(graph.outputs[0].value, updated);
  EXPECT_EQ(graph.outputs[0].input, 0) << "the input is updated in place";
}

TEST(Functionalise, AWriteThroughAViewIsANewValueOfTheWhole) {
  Recording r;
  const Storage x = filled(24);
  Geometry column = f32({2});
  column.strides = {3};
  column.offset = 1;
  const Storage whole = r.make(SmallCall(neg).read(x, f32({2, 3})), f32({2, 3}));
  r.record(SmallCall(add_).write(whole, column));
  const Graph graph = graph_of(r);
  const ValueId updated = graph.nodes.at(1).results.at(0);
  const Value& value = graph.values.at(static_cast<std::size_t>(updated));
  EXPECT_EQ(value.geometry, f32({2, 3}));
  EXPECT_EQ(value.nbytes, 24);
  EXPECT_EQ(graph.outputs.at(0).value, updated);
}

TEST(Functionalise, AnInputSeenThroughAPartIsFlat) {
  Recording r;
  const Storage x = filled(24);
  const Storage y = r.make(SmallCall(neg).read(x, f32({2})), f32({2}));
  const Graph graph = graph_of(r);
  const Value& value = graph.values.at(static_cast<std::size_t>(graph.inputs.at(0).value));
  EXPECT_EQ(value.geometry, f32({6}));
  EXPECT_EQ(tensor(graph, 0, 0).geometry, f32({2}));
}

TEST(Functionalise, UninitialisedStorageIsANodeNotAnInput) {
  Recording r;
  const LocationPtr line = std::make_shared<const Location>(Location{"train.py", 1, ""});
  const Storage y = uninitialised(16);
  r.record(SmallCall(add_).write(y, four).number(1), {}, line);
  const Graph graph = graph_of(r);
  EXPECT_TRUE(graph.inputs.empty());
  ASSERT_EQ(graph.nodes.size(), 2);
  EXPECT_EQ(graph.nodes[0].op, &ops::empty);
  EXPECT_EQ(graph.nodes[0].location, line);
  EXPECT_EQ(tensor(graph, 1, 0).value, graph.nodes[0].results.at(0));
  ASSERT_EQ(graph.outputs.size(), 1);
  EXPECT_EQ(graph.outputs[0].input, -1);
}

TEST(Functionalise, ReadUninitialisedStorageIsNoOutput) {
  Recording r;
  const Storage x = uninitialised(16);
  const Storage y = r.make(SmallCall(neg).read(x, four), four);
  const Graph graph = graph_of(r);
  ASSERT_EQ(graph.outputs.size(), 1);
  EXPECT_EQ(graph.outputs[0].slot, 1);
}

TEST(Functionalise, OneStorageWrittenThroughTwoOperandsHasOneNewValue) {
  Recording r;
  const Storage x = filled(32);
  Geometry second = four;
  second.offset = 4;
  r.record(SmallCall(add_).write(x, four).write(x, second));
  const Graph graph = graph_of(r);
  EXPECT_EQ(graph.nodes.at(0).results.size(), 1);
  EXPECT_EQ(tensor(graph, 0, 0).value, tensor(graph, 0, 1).value);
}

TEST(Functionalise, ListsAreReadAndWrittenElementByElement) {
  Recording r;
  const Storage x = filled(16);
  const Storage y = filled(16);
  r.record(SmallCall(add_).list_of(Tag::TensorList, 3).write(x, four).none().write(y, four).number(1));
  r.record(SmallCall(add_).list_of(Tag::TensorList, 2).write(y, four).write(x, four).number(2));
  const Graph graph = graph_of(r);
  ASSERT_EQ(graph.inputs.size(), 2);
  const auto& first = graph.nodes.at(0);
  const auto& second = graph.nodes.at(1);
  ASSERT_EQ(first.results.size(), 2);
  EXPECT_EQ(second.args[0].elements[0].value, first.results[1]);
  EXPECT_EQ(second.args[0].elements[1].value, first.results[0]);
  EXPECT_EQ(graph.outputs[0].value, second.results[1]);
  EXPECT_EQ(graph.outputs[1].value, second.results[0]);
  EXPECT_EQ(graph.outputs[0].input, 0);
  EXPECT_EQ(graph.outputs[1].input, 1);
  EXPECT_EQ(graph.numbers, 2);
}

TEST(Functionalise, FreshAndUndefinedResultsComeBeforeNewValues) {
  Recording r;
  const Storage x = filled(16);
  Results results;
  results.tensors = {FreshResult{four, 16}, std::nullopt, FreshResult{f32({2}), 64}};
  results.list_lengths = {2};
  r.record(SmallCall(add_).write(x, four), results);
  const Storage a(r.tape.result(0));
  const Storage b(r.tape.result(1));
  const Storage c = r.make(SmallCall(add).read(b, f32({2})), f32({2}));
  const Graph graph = functionalise(r.tape.path(), r.tape.live());  // (a value of 8 bytes in a storage of 64 is no output's)
  const Node& node = graph.nodes.at(0);
  ASSERT_EQ(node.results.size(), 4);
  EXPECT_EQ(node.fresh, 3);
  EXPECT_EQ(node.results[1], no_value);
  EXPECT_EQ(graph.values[static_cast<std::size_t>(node.results[2])].nbytes, 64);
  EXPECT_EQ(tensor(graph, 1, 0).value, node.results[2]);
  EXPECT_EQ(graph.outputs.at(0).value, node.results[3]);
  EXPECT_EQ(graph.outputs.at(0).input, 0);
}

TEST(Functionalise, NumbersAndGeneratorsAreCountedInOrderAlsoInLists) {
  Recording r;
  const Storage x = filled(16);
  r.record(SmallCall(add_).write(x, four).number(1).generator());
  r.record(SmallCall(add_).write(x, four).list_of(Tag::NumberList, 2).number(2).number(3).generator().number(4));
  const Graph graph = graph_of(r);
  EXPECT_EQ(graph.numbers, 4);
  EXPECT_EQ(graph.generators, 2);
  EXPECT_EQ(tensor(graph, 0, 1).parameter, 0);
  EXPECT_EQ(tensor(graph, 0, 2).parameter, 0);
  EXPECT_EQ(tensor(graph, 1, 1).elements[1].parameter, 2);
  EXPECT_EQ(tensor(graph, 1, 2).parameter, 1);
  EXPECT_EQ(tensor(graph, 1, 3).parameter, 3);
}

TEST(Functionalise, EqualTapesGiveEqualText) {
  Recording r;
  const Storage x = filled(16);
  std::string first;
  for (int round = 0; round < 2; ++round) {
    const Storage y = r.make(SmallCall(neg).read(x, four), four);
    r.record(SmallCall(add_).write(x, four).read(y, four).number(round));
    const std::string now = text(graph_of(r));
    EXPECT_TRUE(first.empty() || now == first) << first << now;
    first = now;
    r.tape.reset();
  }
}

}  // namespace
}  // namespace spool::test
