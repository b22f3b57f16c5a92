#include "src/passes/fold.h"

#include <gtest/gtest.h>

#include "src/ops/builder.h"
#include "src/ops/find_op.h"
#include "tests/unit/golden.h"
#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

Arg sizes(std::vector<std::int64_t> list) {
  Arg arg;
  arg.tag = Tag::IntList;
  arg.list = std::move(list);
  return arg;
}

const Op& op(const char* name) { return *find_op(name); }

Graph folded(const Graph& graph) {
  verify(graph);
  Graph result = fold(graph);
  verify(result);
  return result;
}

TEST(Fold, FilledOperandsAreNumbers) {
  SmallGraph g;
  const ValueId x = g.input(f32({2, 3}));
  const ValueId seed = g.make(ops::empty, {}, f32({}));
  const ValueId one = g.mutate(op("aten::fill_.Scalar"), {g.write(g.read(seed)), g.number()});
  const ValueId zeros = g.make(op("aten::zeros"), {sizes({3}), Arg{}, Arg{}, Arg{}, Arg{}}, f32({3}));
  const ValueId scaled = g.make(op("aten::mul.Tensor"), {g.read(one), g.read(x)}, f32({2, 3}));
  const ValueId moved = g.make(op("aten::add.Tensor"), {g.read(scaled), g.read(zeros), Builder::integer(1)}, f32({2, 3}));
  g.output(g.make(op("aten::div.Tensor"), {g.read(moved), g.read(one)}, f32({2, 3})));
  expect_golden("fold_numbers.txt", text(g.graph) + "folded:\n" + text(folded(g.graph)));
}

TEST(Fold, FilledOperandsThatGiveSizesStay) {
  SmallGraph g;
  const ValueId x = g.input(f32({3}));
  const ValueId ones = g.make(op("aten::ones"), {sizes({2, 3}), Arg{}, Arg{}, Arg{}, Arg{}}, f32({2, 3}));
  g.output(g.make(op("aten::mul.Tensor"), {g.read(x), g.read(ones)}, f32({2, 3})));
  EXPECT_EQ(text(folded(g.graph)), text(g.graph));
}

TEST(Fold, PartlyFilledOperandsStay) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  const ValueId made = g.make(op("aten::exp"), {g.read(x)}, f32({4}));
  const ValueId part = g.mutate(op("aten::zero_"), {g.write(g.read(made, f32({2})))});
  g.output(g.make(op("aten::add.Tensor"), {g.read(x), g.read(part), Builder::integer(1)}, f32({4})));
  EXPECT_EQ(text(folded(g.graph)), text(g.graph));
}

TEST(Fold, RepeatsAreTheirOperands) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  const ValueId made = g.make(op("aten::exp"), {g.read(x)}, f32({4}));
  const ValueId same = g.make(op("aten::mul.Tensor"), {g.read(made), Builder::wrapped(Builder::real(1))}, f32({4}));
  const ValueId copy = g.make(op("aten::clone"), {g.read(same), Arg{}}, f32({4}));
  g.output(g.make(op("aten::neg"), {g.read(copy)}, f32({4})));
  expect_golden("fold_repeats.txt", text(g.graph) + "folded:\n" + text(folded(g.graph)));
}

TEST(Fold, CopiesThatAreWrittenToOrLeaveTheGraphStay) {
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  const ValueId made = g.make(op("aten::exp"), {g.read(x)}, f32({4}));
  const ValueId written = g.make(op("aten::clone"), {g.read(made), Arg{}}, f32({4}));
  const ValueId next = g.mutate(op("aten::zero_"), {g.write(g.read(written))});
  g.output(next);
  g.output(g.make(op("aten::clone"), {g.read(made), Arg{}}, f32({4})));
  g.output(g.make(op("aten::neg"), {g.read(g.make(op("aten::clone"), {g.read(x), Arg{}}, f32({4})))}, f32({4})));
  EXPECT_EQ(text(folded(g.graph)), text(g.graph));
}

TEST(Fold, RowsPutAnotherWayAreNotTheirOperands) {
  SmallGraph g;
  const ValueId x = g.input(f32({2, 3}));
  const ValueId made = g.make(op("aten::exp"), {g.read(x)}, f32({2, 3}));
  Geometry turned = f32({3, 2});
  turned.strides = {1, 3};
  const ValueId copy = g.make(op("aten::clone"), {g.read(made, turned), Arg{}}, f32({3, 2}));
  g.output(g.make(op("aten::neg"), {g.read(copy)}, f32({3, 2})));
  EXPECT_EQ(text(folded(g.graph)), text(g.graph));
}

}  // namespace
}  // namespace spool::test
