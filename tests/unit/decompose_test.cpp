// What composite ops become, against tests/golden: the graph before and after.
#include "src/passes/decompose.h"

#include <gtest/gtest.h>

#include "src/ops/find_op.h"
#include "tests/unit/golden.h"
#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

Arg integer(std::int64_t value) {
  Arg arg;
  arg.tag = Tag::Int;
  arg.integer = value;
  return arg;
}

Arg boolean(bool value) {
  Arg arg = integer(value ? 1 : 0);
  arg.tag = Tag::Bool;
  return arg;
}

Arg list(Tag tag, std::vector<std::int64_t> values) {
  Arg arg;
  arg.tag = tag;
  arg.list = std::move(values);
  return arg;
}

Geometry typed(DType dtype, std::uint8_t itemsize, std::vector<std::int64_t> sizes) {
  Geometry geometry = f32(std::move(sizes));
  geometry.dtype = dtype;
  geometry.itemsize = itemsize;
  return geometry;
}

struct AtenGraph : SmallGraph {
  /// A node with those fresh results, then the next values of what its arguments write.
  std::vector<ValueId> call(const char* op, std::vector<Arg> args, const std::vector<Geometry>& results) {
    Node node{.op = find_op(op), .args = std::move(args), .results = {}, .fresh = static_cast<std::int32_t>(results.size())};
    for (const Geometry& geometry : results) {
      node.results.push_back(value(geometry));
    }
    for (const ValueId old : mutated(node)) {
      node.results.push_back(value(graph.values[static_cast<std::size_t>(old)].geometry));
    }
    graph.nodes.push_back(node);
    return node.results;
  }
};

void expect_decomposed(const std::string& file, const Graph& graph) {
  verify(graph);
  const Graph apart = decompose(graph);
  verify(apart);
  expect_golden(file, text(graph) + "decomposed:\n" + text(apart));
}

TEST(Decompose, LayerNormAndItsGradients) {
  AtenGraph g;
  const ValueId x = g.input(f32({4, 6}));
  const ValueId weight = g.input(f32({6}));
  const ValueId bias = g.input(f32({6}));
  const auto y = g.call("aten::native_layer_norm", {g.read(x), list(Tag::IntList, {6}), g.read(weight), g.read(bias), g.number()},
                        {f32({4, 6}), f32({4, 1}), f32({4, 1})});
  const auto gradients = g.call("aten::native_layer_norm_backward",
                                {g.read(y[0]), g.read(x), list(Tag::IntList, {6}), g.read(y[1]), g.read(y[2]), g.read(weight),
                                 g.read(bias), list(Tag::BoolList, {1, 1, 1})},
                                {f32({4, 6}), f32({6}), f32({6})});
  for (const ValueId id : gradients) {
    g.output(id);
  }
  expect_decomposed("decompose_layer_norm.txt", g.graph);
}

TEST(Decompose, BatchNormUpdatesItsStatisticsInPlace) {
  AtenGraph g;
  Geometry image = typed(DType::BFloat16, 2, {2, 3, 4, 5});
  image.strides = {60, 1, 15, 3};
  const ValueId x = g.input(image);
  const ValueId weight = g.input(f32({3}));
  const ValueId mean = g.input(f32({3}));
  const ValueId variance = g.input(f32({3}));
  const auto y = g.call(
      "aten::native_batch_norm",
      {g.read(x), g.read(weight), Arg{}, g.write(g.read(mean)), g.write(g.read(variance)), boolean(true), g.number(), g.number()},
      {image, f32({3}), f32({3})});
  g.output(y[0]);
  g.output(y[1]);
  g.output(y[3], 2);
  g.output(y[4], 3);
  expect_decomposed("decompose_batch_norm.txt", g.graph);
}

TEST(Decompose, CrossEntropyComparesClassesAndSumsNoGradient) {
  AtenGraph g;
  const ValueId x = g.input(f32({4, 10}));
  const ValueId target = g.input(typed(DType::Int64, 8, {4}));
  const ValueId scale = g.input(f32({}));
  const ValueId logp = g.make(*find_op("aten::_log_softmax"), {g.read(x), integer(-1), boolean(false)}, f32({4, 10}));
  const auto loss =
      g.call("aten::nll_loss_forward", {g.read(logp), g.read(target), Arg{}, integer(1), integer(-100)}, {f32({}), f32({})});
  const auto dlogp =
      g.call("aten::nll_loss_backward",
             {g.read(scale), g.read(logp), g.read(target), Arg{}, integer(1), integer(-100), g.read(loss[1])}, {f32({4, 10})});
  g.output(loss[0]);
  g.output(g.make(*find_op("aten::_log_softmax_backward_data"), {g.read(dlogp[0]), g.read(logp), integer(-1), integer(6)},
                  f32({4, 10})));
  expect_decomposed("decompose_cross_entropy.txt", g.graph);
}

TEST(Decompose, OpsOnListsGoTensorByTensor) {
  AtenGraph g;
  const ValueId flat = g.input(f32({8}));
  const ValueId other = g.input(f32({2, 2}));
  Geometry second = f32({2, 2});
  second.offset = 4;
  const auto list_of = [](Tag tag, std::vector<Arg> elements) {
    Arg arg;
    arg.tag = tag;
    arg.elements = std::move(elements);
    return arg;
  };
  const auto half = g.call("aten::_foreach_mul.Scalar", {list_of(Tag::TensorList, {g.read(other), g.read(flat)}), g.number()},
                           {f32({2, 2}), f32({8})});
  // Two views of one storage: the second update reads what the first has written.
  const auto updated = g.call("aten::_foreach_addcdiv_.ScalarList",
                              {list_of(Tag::TensorList, {g.write(g.read(flat, f32({4}))), g.write(g.read(flat, second))}),
                               list_of(Tag::TensorList, {g.read(half[1], f32({4})), g.read(half[0])}),
                               list_of(Tag::TensorList, {g.read(flat, f32({4})), g.read(flat, f32({2, 2}))}),
                               list_of(Tag::NumberList, {g.number(), g.number()})},
                              {});
  g.output(updated[0], 0);
  expect_decomposed("decompose_foreach.txt", g.graph);
}

TEST(Decompose, LeavesWholeWhatWouldNotFuse) {
  AtenGraph g;
  const ValueId logp = g.input(f32({4, 10}));
  const ValueId target = g.input(typed(DType::Int64, 8, {4}));
  g.output(
      g.call("aten::nll_loss_forward", {g.read(logp), g.read(target), Arg{}, integer(1), integer(-100)}, {f32({}), f32({})})[0]);
  const ValueId empty = g.input(f32({0, 10}));
  g.output(g.make(*find_op("aten::_softmax"), {g.read(empty), integer(1), boolean(false)}, f32({0, 10})));
  EXPECT_EQ(text(decompose(g.graph)), text(g.graph));
}

}  // namespace
}  // namespace spool::test
