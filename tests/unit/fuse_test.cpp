// What becomes one kernel and what must not. Graphs before and after stand in tests/golden.
#include "src/passes/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/ops/find_op.h"
#include "src/passes/dead_code.h"
#include "tests/unit/golden.h"
#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

Arg list(std::vector<std::int64_t> values) {
  Arg arg;
  arg.tag = Tag::IntList;
  arg.list = std::move(values);
  return arg;
}

Arg boolean(bool value) {
  Arg arg;
  arg.tag = Tag::Bool;
  arg.integer = value ? 1 : 0;
  return arg;
}

Geometry strided(std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides) {
  Geometry geometry = f32(std::move(sizes));
  geometry.strides = std::move(strides);
  return geometry;
}

struct AtenGraph : SmallGraph {
  const Geometry& geometry(ValueId id) const { return graph.values[static_cast<std::size_t>(id)].geometry; }
  ValueId exp(const Arg& a) { return make(*find_op("aten::exp"), {a}, f32(a.geometry.sizes)); }
  ValueId mul(const Arg& a, const Arg& b) { return make(*find_op("aten::mul.Tensor"), {a, b}, f32(a.geometry.sizes)); }
  ValueId add(const Arg& a, const Arg& b) { return make(*find_op("aten::add.Tensor"), {a, b, number()}, f32(a.geometry.sizes)); }
  ValueId sub(const Arg& a, const Arg& b) { return make(*find_op("aten::sub.Tensor"), {a, b, number()}, f32(a.geometry.sizes)); }
  ValueId mm(const Arg& a, const Arg& b) {
    return make(*find_op("aten::mm"), {a, b}, f32({a.geometry.sizes[0], b.geometry.sizes[1]}));
  }
  ValueId add_(const Arg& a, const Arg& b) { return mutate(*find_op("aten::add_.Tensor"), {write(a), b, number()}); }
  ValueId sum(const Arg& a, std::int64_t dim, std::vector<std::int64_t> result) {
    return make(*find_op("aten::sum.dim_IntList"), {a, list({dim}), boolean(true), Arg()}, f32(std::move(result)));
  }
  ValueId amax(const Arg& a, std::int64_t dim, std::vector<std::int64_t> result) {
    return make(*find_op("aten::amax"), {a, list({dim}), boolean(true)}, f32(std::move(result)));
  }
};

Graph fused(const AtenGraph& g, FuseMode mode = FuseMode::Auto) {
  verify(g.graph);
  Graph result = dead_code(fuse(g.graph, mode));
  verify(result);
  return result;
}

std::size_t kernels(const Graph& graph) {
  return static_cast<std::size_t>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.kernel != nullptr; }));
}

void expect_fused(const std::string& file, const AtenGraph& g) {
  expect_golden(file, text(g.graph) + "fused:\n" + text(fused(g)));
}

TEST(Fuse, AChainBecomesOneKernelThatStoresItsEndOnly) {
  AtenGraph g;
  const ValueId x = g.input(f32({4, 6}));
  const ValueId bias = g.input(f32({6}));
  g.output(g.mul(g.read(g.exp(g.read(g.add(g.read(x), g.read(bias))))), g.number()));
  expect_fused("fuse_chain.txt", g);
}

TEST(Fuse, ReductionsOfRowsAreFusedWithWhatMakesAndUsesThem) {
  AtenGraph g;
  const ValueId x = g.input(f32({4, 6}));
  const ValueId shifted = g.sub(g.read(x), g.read(g.amax(g.read(x), 1, {4, 1})));
  const ValueId e = g.exp(g.read(shifted));
  const ValueId total = g.sum(g.read(e), 1, {4, 1});
  const ValueId soft = g.make(*find_op("aten::div.Tensor"), {g.read(e), g.read(total)}, f32({4, 6}));
  g.output(soft);
  g.output(g.sum(g.read(soft), 0, {1, 6}));
  expect_fused("fuse_rows.txt", g);
}

TEST(Fuse, EqualUpdatesOfParametersBecomeSegmentsOfOneNode) {
  AtenGraph g;
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{2, 3}, {5}}) {
    const ValueId parameter = g.input(f32(sizes));
    const ValueId momentum = g.input(f32(sizes));
    const ValueId gradient = g.input(f32(sizes));
    const ValueId moved = g.add_(g.read(momentum), g.read(gradient));
    const auto place = static_cast<std::int32_t>(g.graph.inputs.size());
    g.output(g.add_(g.read(parameter), g.read(moved)), place - 3);
    g.output(moved, place - 2);
  }
  expect_fused("fuse_updates.txt", g);
}

TEST(Fuse, ALoneOpIsLeftToTheLibraryUnlessAskedFor) {
  AtenGraph g;
  const ValueId x = g.input(f32({4}));
  g.output(g.exp(g.read(x)));
  EXPECT_EQ(kernels(fused(g)), 0);
  EXPECT_EQ(kernels(fused(g, FuseMode::Always)), 1);
}

TEST(Fuse, WhatHasReadAnotherPlaceOfAStorageIsNotFusedWithAWriteToIt) {
  AtenGraph g;
  const ValueId x = g.input(f32({4, 4}));
  const ValueId turned = g.make(*find_op("aten::exp"), {g.read(x, strided({4, 4}, {1, 4}))}, f32({4, 4}));
  g.output(g.add_(g.read(x), g.read(g.mul(g.read(turned), g.number()))), 0);
  const Graph result = fused(g);
  for (const Node& node : result.nodes) {
    const bool writes = std::any_of(node.args.begin(), node.args.end(), [](const Arg& arg) { return arg.writes; });
    EXPECT_FALSE(writes && node.kernel != nullptr) << result;
  }
}

TEST(Fuse, AValueThatGoesThroughAProductAndBackIsNotInOneKernelWithItsUser) {
  AtenGraph g;
  const ValueId x = g.input(f32({4, 4}));
  const ValueId a = g.exp(g.read(g.mul(g.read(x), g.read(x))));
  const ValueId product = g.mm(g.read(a), g.read(a));
  g.output(g.exp(g.read(g.add(g.read(a), g.read(product)))));
  EXPECT_EQ(kernels(fused(g)), 2);
}

TEST(Fuse, ReadersOfAnOldValueComeBeforeTheKernelThatOverwritesIt) {
  AtenGraph g;
  const ValueId x = g.input(f32({4, 4}));
  const ValueId y = g.input(f32({4, 4}));
  const ValueId scaled = g.mul(g.read(y), g.number());
  g.output(g.mm(g.read(x), g.read(x)));
  g.output(g.add_(g.read(x), g.read(scaled)), 0);
  const Graph result = fused(g);  // verified: no use after the mutation
  EXPECT_EQ(kernels(result), 1);
  EXPECT_EQ(result.nodes.front().op->name, "aten::mm");
}

TEST(Fuse, SumsOverRowsAreCompleteBeforeAnyRowUsesThem) {
  AtenGraph g;
  const ValueId x = g.input(f32({8, 6}));
  const ValueId total = g.sum(g.read(g.mul(g.read(x), g.number())), 0, {1, 6});
  g.output(g.exp(g.read(g.sub(g.read(x), g.read(total)))));
  EXPECT_EQ(kernels(fused(g)), 2);
}

TEST(Fuse, AnotherShapeOfTheSameElementsIsTheSameSpace) {
  AtenGraph g;
  const ValueId x = g.input(f32({8, 6}));
  const ValueId y = g.input(f32({4, 1, 6}));
  const ValueId e = g.exp(g.read(x));
  g.output(g.mul(g.read(e, f32({4, 2, 6})), g.read(y)));
  EXPECT_EQ(kernels(fused(g)), 1);
}

TEST(Fuse, ATransposedReadOfAValueOfTheKernelIsTheSameElement) {
  AtenGraph g;
  const ValueId x = g.input(f32({4, 8}));
  const ValueId y = g.input(f32({8, 4}));
  const ValueId e = g.exp(g.read(x));
  const ValueId turned = g.mul(g.read(e, strided({8, 4}, {1, 8})), g.read(y));
  g.output(turned);
  const Graph result = fused(g);
  EXPECT_EQ(kernels(result), 1) << result;
}

TEST(Fuse, WritesOfPartsStayUpdatesOfTheWhole) {
  AtenGraph g;
  const ValueId x = g.input(f32({4, 6}));
  const ValueId y = g.input(f32({4, 3}));
  const ValueId scaled = g.mul(g.read(y), g.number());
  Geometry half = strided({4, 3}, {6, 1});
  half.offset = 3;
  g.output(g.add_(g.read(x, half), g.read(scaled)), 0);
  const Graph result = fused(g);
  ASSERT_EQ(kernels(result), 1);
  EXPECT_TRUE(result.nodes.front().args[0].writes || result.nodes.front().args[1].writes) << result;
  EXPECT_EQ(result.nodes.front().fresh, 0);
}

TEST(Fuse, EmptyStorageThatIsOverwrittenWholeIsAFreshResult) {
  AtenGraph g;
  const ValueId x = g.input(f32({4}));
  const ValueId out = g.make(ops::empty, {}, f32({4}));
  const ValueId e = g.exp(g.read(x));
  g.output(g.mutate(*find_op("aten::mul.out"), {g.read(e), g.read(x), g.write(g.read(out))}));
  const Graph result = fused(g);
  ASSERT_EQ(result.nodes.size(), 1) << result;
  EXPECT_EQ(result.nodes[0].fresh, 1);
}

TEST(Fuse, WhatNothingNeedsIsNotMade) {
  AtenGraph g;
  const ValueId x = g.input(f32({4}));
  const ValueId e = g.exp(g.read(x));
  g.mul(g.read(e), g.read(x));
  g.output(g.add(g.read(e), g.read(x)));
  const Graph result = fused(g);
  ASSERT_EQ(kernels(result), 1);
  EXPECT_EQ(result.nodes[0].results.size(), 1);
}

}  // namespace
}  // namespace spool::test
