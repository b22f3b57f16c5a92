// The text of graphs, against tests/golden. SPOOL_UPDATE_GOLDEN=1 writes the files anew.
#include <gtest/gtest.h>

#include "tests/unit/golden.h"
#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

/// A little of everything that a graph can hold.
SmallGraph everything() {
  SmallGraph g;
  const ValueId x = g.input(f32({2, 3}));
  const ValueId y = g.input(f32({3}));
  Geometry row = f32({2, 3});
  row.strides = {0, 1};
  const ValueId sum = g.make(add, {g.read(x), g.read(y, row), g.number()}, f32({2, 3}));
  Geometry column = f32({2});
  column.strides = {3};
  column.offset = 1;
  const ValueId updated = g.mutate(add_, {g.write(g.read(sum, column)), g.read(x, column), g.number()});
  const ValueId moved = g.mutate(add_, {g.write(g.read(x)), g.read(updated), g.number()});

  static const Op many = make_op("test::many.overload");
  Node node{.op = &many, .args = {}, .results = {}, .fresh = 3, .location = {}};
  Arg arg;
  arg.tag = Tag::TensorList;
  arg.elements = {g.read(moved), Arg{}, g.read(y)};
  node.args.push_back(arg);
  arg = {};
  node.args.push_back(arg);
  arg.tag = Tag::Int;
  arg.integer = -7;
  node.args.push_back(arg);
  arg.tag = Tag::Bool;
  node.args.push_back(arg);
  arg.tag = Tag::Double;
  arg.real = 0.5;
  node.args.push_back(arg);
  arg.tag = Tag::IntList;
  arg.list = {1, 2, 3};
  node.args.push_back(arg);
  arg.tag = Tag::BoolList;
  arg.list = {1, 0};
  node.args.push_back(arg);
  arg.tag = Tag::DoubleList;
  arg.reals = {1.5, -2};
  node.args.push_back(arg);
  arg.tag = Tag::String;
  arg.text = "mean";
  node.args.push_back(arg);
  arg.tag = Tag::Device;
  node.args.push_back(arg);
  arg.tag = Tag::Generator;
  arg.parameter = g.graph.generators++;
  node.args.push_back(arg);
  arg = g.number();
  arg.number = {NumberKind::Double, true, false, DType::Float32};
  node.args.push_back(arg);
  Arg numbers;
  numbers.tag = Tag::NumberList;
  numbers.elements = {g.number(), g.number()};
  node.args.push_back(numbers);
  Geometry half = f32({4, 2});
  half.dtype = DType::Float16;
  half.itemsize = 2;
  const ValueId made = g.value(half);
  g.graph.values.back().nbytes = 64;
  node.results = {made, no_value, g.value(f32({}))};
  node.location = std::make_shared<const Location>(Location{"train.py", 12, "epoch/step"});
  g.graph.nodes.push_back(node);

  g.output(moved, 0);
  g.output(updated);
  return g;
}

TEST(GraphText, ShowsEveryPartOfAGraph) { expect_golden("graph_text.txt", text(everything().graph)); }

TEST(GraphText, EndsLinesInTheUsersLine) { expect_golden("graph_text_locations.txt", text(everything().graph, true)); }

TEST(GraphText, EmptyGraph) { EXPECT_EQ(text(Graph{}), "graph()\n  return\n"); }

TEST(GraphText, StreamsTheSameText) {
  std::ostringstream out;
  out << everything().graph;
  EXPECT_EQ(out.str(), text(everything().graph));
}

TEST(GraphText, SaysMoreThanItHides) {
  // Graphs that are not well-formed must print too: the verifier's message shows them.
  Graph graph;
  graph.nodes.push_back({.op = nullptr, .args = {}, .results = {41}, .fresh = 1, .location = {}});
  EXPECT_NE(text(graph).find("%41 = <no op>()"), std::string::npos) << text(graph);
}

TEST(Mutated, NamesEachValueOnceInArgumentOrder) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  const ValueId y = g.input(f32({4}));
  Arg list;
  list.tag = Tag::TensorList;
  list.elements = {g.write(g.read(x)), g.write(g.read(y))};
  const Node node{.op = &add_, .args = {g.read(x), g.write(g.read(y)), list}, .results = {}, .fresh = 0, .location = {}};
  EXPECT_EQ(mutated(node), (std::vector<ValueId>{y, x}));
}

TEST(GraphText, WritesConstantsAsTheShortestTextThatIsOnlyThem) {
  SmallGraph g;
  const ValueId x = g.input(f32({2}));
  const auto constant = [](NumberKind kind, std::int64_t integer, double real) {
    Arg arg;
    arg.tag = Tag::Number;
    arg.number.kind = kind;
    arg.integer = integer;
    arg.real = real;
    return arg;
  };
  g.output(g.make(add,
                  {g.read(x), constant(NumberKind::Double, 0, 0.1), constant(NumberKind::Double, 0, 2),
                   constant(NumberKind::Int, 2, 0), constant(NumberKind::Bool, 1, 0), constant(NumberKind::Double, 0, 1e300)},
                  f32({2})));
  EXPECT_NE(text(g.graph).find("test::add(%0, #0.1, #2.0, #2, #true, #1e+300)"), std::string::npos) << text(g.graph);
}

}  // namespace
}  // namespace spool::test
