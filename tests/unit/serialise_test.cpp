// Graphs as bytes.
#include "src/graph/serialise.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

const Op* find(std::string_view name) {
  for (const Op* op : {&add, &add_, &ops::fused, &ops::empty}) {
    if (op->name == name) {
      return op;
    }
  }
  return nullptr;
}

/// Doubles a vector by a kernel, after adding to it in place.
SmallGraph small() {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  const ValueId sum = g.make(add, {g.read(x), g.read(x), g.number()}, f32({4}));
  const auto kernel = std::make_shared<Kernel>();
  kernel->rank = 1;
  kernel->kept = 1;
  kernel->accesses = {{DType::Float32, false}, {DType::Float32, true}};
  kernel->body = {{.op = KernelOp::Load, .immediate = 0},
                  {.op = KernelOp::Add, .operands = {0, 0, -1}},
                  {.op = KernelOp::Store, .operands = {1, -1, -1}, .immediate = 1}};
  kernel->segments = {{.sizes = {4}, .places = {{.operand = 0, .strides = {1}}, {.result = 0, .strides = {1}}}, .numbers = {}}};
  const ValueId doubled = g.make(ops::fused, {g.read(sum)}, f32({4}));
  g.graph.nodes.back().kernel = kernel;
  g.output(doubled);
  return g;
}

TEST(Serialise, GivesTheSameGraphAgain) {
  const Graph graph = small().graph;
  verify(graph);
  const Graph again = deserialise(serialise(graph), &find);
  EXPECT_EQ(text(again), text(graph));
  EXPECT_EQ(serialise(again), serialise(graph));
  ASSERT_NE(again.nodes[1].kernel, nullptr);
  EXPECT_EQ(again.nodes[0].op, &add);
}

TEST(Serialise, KeepsLocationsByTheirPlaceOnly) {
  const auto at = [](int line) { return std::make_shared<const Location>(Location{"model.py", line, ""}); };
  Graph graph = small().graph;
  const std::vector<LocationPtr> here{at(1), at(2)};
  graph.nodes[0].location = here[1];
  graph.nodes[1].location = at(3);  // not among them
  const std::string bytes = serialise(graph, here);
  const std::vector<LocationPtr> elsewhere{at(11), at(12)};
  const Graph again = deserialise(bytes, &find, elsewhere);
  EXPECT_EQ(again.nodes[0].location, elsewhere[1]);
  EXPECT_EQ(again.nodes[1].location, nullptr);
}

TEST(Serialise, DiffersForGraphsThatDiffer) {
  const std::string bytes = serialise(small().graph);
  Graph other = small().graph;
  other.nodes[0].args[0].geometry.sizes[0] = 3;
  EXPECT_NE(serialise(other), bytes);
  other = small().graph;
  other.outputs[0].input = 0;
  EXPECT_NE(serialise(other), bytes);
}

TEST(Serialise, RefusesTornBytesAndUnknownOps) {
  const std::string bytes = serialise(small().graph);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(deserialise(bytes.substr(0, length), &find), Error) << length;
  }
  EXPECT_THROW(deserialise(bytes + "x", &find), Error);
  try {
    deserialise(bytes, [](std::string_view) { return nullptr; });
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ops that this process knows"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace spool::test
