#include "src/passes/layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/error.h"
#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

// --- places: a rewritten kernel touches, together, what it touched before ---

/// The kernel `rank kept` that adds access 0 and 1 into 2, over one segment.
Kernel add_kernel(std::vector<std::int64_t> sizes, std::int32_t kept, std::vector<KernelPlace> places) {
  Kernel kernel;
  kernel.rank = static_cast<std::int32_t>(sizes.size());
  kernel.kept = kept;
  for (std::size_t p = 0; p < places.size(); ++p) {
    kernel.accesses.push_back({DType::Float32, p + 1 == places.size()});
    if (p + 1 != places.size()) {
      kernel.body.push_back({.op = KernelOp::Load, .immediate = static_cast<std::int64_t>(p)});
    }
  }
  const auto last = static_cast<std::int32_t>(kernel.body.size()) - 1;
  kernel.body.push_back({.op = KernelOp::Add, .operands = {0, last, -1}});
  kernel.body.push_back({.op = KernelOp::Store, .operands = {last + 1, -1, -1}, .immediate = last + 1});
  kernel.segments.push_back({std::move(sizes), std::move(places), {}});
  return kernel;
}

using Point = std::vector<std::int64_t>;  ///< the address of each place

/// The points of a kernel's only segment, one list for each point of its kept dimensions; sorted, as their order is free.
std::vector<std::vector<Point>> points(const Kernel& kernel) {
  const KernelSegment& segment = kernel.segments.front();
  std::vector<std::vector<Point>> rows;
  std::vector<std::int64_t> at(segment.sizes.size(), 0);
  const auto walk = [&](auto&& self, std::size_t d) -> void {
    if (d == static_cast<std::size_t>(kernel.kept)) {
      rows.emplace_back();
    }
    if (d == at.size()) {
      Point point;
      for (const KernelPlace& place : segment.places) {
        point.push_back(place.offset);
        for (std::size_t i = 0; i < at.size(); ++i) {
          point.back() += at[i] * place.strides[i];
        }
      }
      rows.back().push_back(point);
      return;
    }
    for (at[d] = 0; at[d] < segment.sizes[d]; ++at[d]) {
      self(self, d + 1);
    }
  };
  walk(walk, 0);
  for (auto& row : rows) {
    std::sort(row.begin(), row.end());
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

/// Where an element of a dense value lies after it was put in blocks.
std::int64_t moved(const Geometry& from, std::int64_t block, std::int64_t address) {
  const Geometry to = blocked(from, block);
  std::vector<std::size_t> order(from.sizes.size());
  for (std::size_t d = 0; d < order.size(); ++d) {
    order[d] = d;
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return from.strides[a] > from.strides[b]; });
  std::int64_t result = 0;
  for (const std::size_t d : order) {
    const std::int64_t coordinate = from.sizes[d] == 1 ? 0 : address / from.strides[d];
    address -= coordinate * from.strides[d];
    result += d == 1 ? coordinate / block * to.strides[1] + coordinate % block : coordinate * to.strides[d];
  }
  return result;
}

void expect_same_points(const Kernel& kernel, const std::vector<const Geometry*>& from, std::int64_t block) {
  const auto result = reblocked(kernel, from, block);
  ASSERT_TRUE(result.has_value());
  auto expected = points(kernel);
  for (auto& row : expected) {
    for (Point& point : row) {
      for (std::size_t p = 0; p < point.size(); ++p) {
        point[p] = from[p] == nullptr ? point[p] : moved(*from[p], block, point[p]);
      }
    }
    std::sort(row.begin(), row.end());
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(points(*result), expected);
  EXPECT_EQ(static_cast<std::size_t>(result->rank), result->segments.front().sizes.size());
}

const Geometry image = f32({2, 32, 3, 5});
const Geometry image_last{DType::Float32, 4, 0, {2, 32, 3, 5}, {480, 1, 160, 32}};

TEST(ReblockedKernel, StaysFlatWhereAllFollow) {
  const Kernel kernel = add_kernel({960}, 1, {{0, -1, 0, {1}}, {1, -1, 0, {1}}, {-1, 0, 0, {1}}});
  expect_same_points(kernel, {&image, &image, &image}, 16);
  EXPECT_EQ(reblocked(kernel, {&image, &image, &image}, 16)->segments.front().sizes, std::vector<std::int64_t>{960});
}

TEST(ReblockedKernel, SplitsChannelsForWhatStays) {
  // a number for each channel; vectors of channels are innermost
  const Kernel kernel = add_kernel({2, 32, 15}, 3, {{0, -1, 0, {480, 15, 1}}, {1, -1, 0, {0, 1, 0}}, {-1, 0, 0, {480, 15, 1}}});
  expect_same_points(kernel, {&image, nullptr, &image}, 16);
  const auto result = reblocked(kernel, {&image, nullptr, &image}, 16);
  EXPECT_EQ(result->segments.front().sizes, (std::vector<std::int64_t>{2, 2, 15, 16}));
  EXPECT_EQ(result->segments.front().places[0].strides, (std::vector<std::int64_t>{480, 240, 16, 1}));
  EXPECT_EQ(result->segments.front().places[1].strides, (std::vector<std::int64_t>{0, 16, 0, 1}));
}

TEST(ReblockedKernel, KeepsChannelsThatReductionsKeep) {
  const Kernel kernel =
      add_kernel({32, 2, 3, 5}, 1, {{0, -1, 0, {15, 480, 5, 1}}, {1, -1, 0, {1, 0, 0, 0}}, {-1, 0, 0, {1, 0, 0, 0}}});
  expect_same_points(kernel, {&image, nullptr, nullptr}, 16);
  const auto result = reblocked(kernel, {&image, nullptr, nullptr}, 16);
  EXPECT_EQ(result->kept, 2);
  EXPECT_EQ(result->segments.front().sizes, (std::vector<std::int64_t>{2, 16, 2, 15}));
}

TEST(ReblockedKernel, ReadsWhatLayOtherwiseBefore) {
  const Kernel kernel =
      add_kernel({2, 32, 3, 5}, 4, {{0, -1, 0, {480, 1, 160, 32}}, {1, -1, 0, {480, 15, 5, 1}}, {-1, 0, 0, {480, 15, 5, 1}}});
  expect_same_points(kernel, {&image_last, &image, nullptr}, 8);
  expect_same_points(kernel, {&image_last, nullptr, nullptr}, 8);
}

TEST(ReblockedKernel, BeginsAtWholeBlocks) {
  const Kernel second_half =
      add_kernel({2, 16, 15}, 3, {{0, -1, 240, {480, 15, 1}}, {1, -1, 0, {0, 1, 0}}, {-1, 0, 0, {240, 15, 1}}});
  const Geometry half = f32({2, 16, 3, 5});
  expect_same_points(second_half, {&image, nullptr, &half}, 16);
  const Kernel off_by_one =
      add_kernel({2, 16, 15}, 3, {{0, -1, 15, {480, 15, 1}}, {1, -1, 0, {0, 1, 0}}, {-1, 0, 0, {240, 15, 1}}});
  EXPECT_FALSE(reblocked(off_by_one, {&image, nullptr, &half}, 16).has_value());
}

TEST(ReblockedKernel, LeavesAloneWhatIsNoWalkOverChannels) {
  const Kernel every_second =
      add_kernel({2, 16, 15}, 3, {{0, -1, 0, {480, 30, 1}}, {1, -1, 0, {0, 1, 0}}, {-1, 0, 0, {240, 15, 1}}});
  EXPECT_FALSE(reblocked(every_second, {&image, nullptr, nullptr}, 16).has_value());
  Kernel indexed = add_kernel({960}, 1, {{0, -1, 0, {1}}, {1, -1, 0, {1}}, {-1, 0, 0, {1}}});
  indexed.body.push_back({.op = KernelOp::Index, .dtype = DType::Int64, .immediate = 0});
  EXPECT_FALSE(reblocked(indexed, {&image, &image, &image}, 16).has_value());
}

// --- graphs ---

std::optional<ConvolutionLayout> by_16(const ConvolutionUse& use) {
  return ConvolutionLayout{use.input[1] % 16 == 0 ? 16 : 1, 16, 64};
}

struct LayoutGraph : SmallGraph {
  const Op forward = make_op("aten::convolution");
  const Op backward = make_op("aten::convolution_backward");

  static Arg list(std::vector<std::int64_t> values) {
    Arg arg;
    arg.tag = Tag::IntList;
    arg.list = std::move(values);
    return arg;
  }
  static Arg integer(std::int64_t value, Tag tag = Tag::Int) {
    Arg arg;
    arg.tag = tag;
    arg.integer = value;
    return arg;
  }

  ValueId convolve(ValueId input, std::int64_t channels) {
    const Geometry from = graph.values[static_cast<std::size_t>(input)].geometry;
    const ValueId weight = this->input(f32({channels, from.sizes[1], 3, 3}));
    return make(forward,
                {read(input), read(weight), Arg{}, list({1, 1}), list({1, 1}), list({1, 1}), integer(0, Tag::Bool), list({0, 0}),
                 integer(1)},
                f32({from.sizes[0], channels, from.sizes[2], from.sizes[3]}));
  }

  /// A fused addition of two values of one shape.
  ValueId add(ValueId a, ValueId b) {
    const Geometry like = graph.values[static_cast<std::size_t>(a)].geometry;
    const ValueId result = make(ops::fused, {read(a), read(b)}, like);
    graph.nodes.back().kernel =
        std::make_shared<Kernel>(add_kernel({like.numel()}, 1, {{0, -1, 0, {1}}, {1, -1, 0, {1}}, {-1, 0, 0, {1}}}));
    return result;
  }
};

std::vector<std::string> lines(const Graph& graph) {
  std::vector<std::string> found;
  for (const Node& node : graph.nodes) {
    std::string line = node.op->name;
    for (const Arg& arg : node.args) {
      line += arg.tag == Tag::Tensor ? str(" %", arg.value) : "";
    }
    found.push_back(
        line + str(" -> %", node.results.front(), ": ", graph.values[static_cast<std::size_t>(node.results.front())].geometry));
  }
  return found;
}

using Lines = std::vector<std::string>;

TEST(Layout, StaysBlockedBetweenConvolutionsAndThroughKernels) {
  LayoutGraph g;
  const ValueId x = g.input(f32({2, 3, 8, 8}));
  const ValueId first = g.convolve(x, 16);
  const ValueId second = g.convolve(first, 16);
  const ValueId sum = g.add(first, second);
  g.output(g.convolve(sum, 32));
  const Graph result = assign_layouts(g.graph, by_16);
  verify(result);
  EXPECT_EQ(lines(result), (Lines{"spool::convolution %0 %1 -> %2: f32[2,1,8,8,16]",
                                  "spool::convolution %2 %3 -> %4: f32[2,1,8,8,16]", "spool::fused %2 %4 -> %5: f32[2,1,8,8,16]",
                                  "spool::convolution %5 %6 -> %7: f32[2,2,8,8,16]", "spool::reorder %7 -> %11: f32[2,32,8,8]"}));
  EXPECT_EQ(result.outputs.front().value, 11);
}

TEST(Layout, ReordersOnceForAllThatReadPlain) {
  LayoutGraph g;
  const ValueId x = g.input(f32({2, 16, 8, 8}));
  const ValueId made = g.convolve(x, 16);
  const ValueId once = g.make(neg, {g.read(made)}, f32({2, 16, 8, 8}));
  const ValueId view = g.make(neg, {g.read(made, f32({16, 128}))}, f32({16, 128}));
  g.output(once);
  g.output(view);
  g.output(made);
  const Graph result = assign_layouts(g.graph, by_16);
  verify(result);
  EXPECT_EQ(lines(result), (Lines{"spool::reorder %0 -> %5: f32[2,1,8,8,16]", "spool::convolution %5 %1 -> %2: f32[2,1,8,8,16]",
                                  "spool::reorder %2 -> %7: f32[2,16,8,8]", "test::neg %7 -> %3: f32[2,16,8,8]",
                                  "test::neg %7 -> %4: f32[16,128]"}));
  EXPECT_EQ(result.outputs.back().value, 7);
}

struct PoolGraph : LayoutGraph {
  const Op pool = make_op("aten::max_pool2d_with_indices");
  const Op pool_backward = make_op("aten::max_pool2d_with_indices_backward");
  ValueId image, pooled, indices;

  PoolGraph() {
    image = convolve(input(f32({2, 3, 8, 8})), 16);
    pooled =
        make(pool, {read(image), list({2, 2}), list({}), list({0, 0}), list({1, 1}), integer(0, Tag::Bool)}, f32({2, 16, 4, 4}));
    Geometry counts = f32({2, 16, 4, 4});
    counts.dtype = DType::Int64;
    counts.itemsize = 8;
    indices = value(counts);
    graph.nodes.back().results.push_back(indices);
    graph.nodes.back().fresh = 2;
  }

  ValueId gradient() {
    return make(
        pool_backward,
        {read(pooled), read(image), list({2, 2}), list({}), list({0, 0}), list({1, 1}), integer(0, Tag::Bool), read(indices)},
        f32({2, 16, 8, 8}));
  }
};

TEST(Layout, PoolsInBlocksAndForgetsTheImage) {
  PoolGraph g;
  g.output(g.convolve(g.gradient(), 16));
  const Graph result = assign_layouts(g.graph, by_16);
  verify(result);
  EXPECT_EQ(lines(result), (Lines{"spool::convolution %0 %1 -> %2: f32[2,1,8,8,16]", "spool::max_pool %2 -> %3: f32[2,1,4,4,16]",
                                  "spool::max_pool_backward %3 %4 -> %5: f32[2,1,8,8,16]",
                                  "spool::convolution %5 %6 -> %7: f32[2,1,8,8,16]", "spool::reorder %7 -> %10: f32[2,16,8,8]"}));
  EXPECT_EQ(str(result.values[4].geometry), "u8[2,1,4,4,16]");
}

TEST(Layout, PoolsPlainWhereIndicesAreSeen) {
  PoolGraph g;
  g.output(g.gradient());
  g.output(g.indices);
  const Graph result = assign_layouts(g.graph, by_16);
  verify(result);
  EXPECT_EQ(lines(result)[2].rfind("aten::max_pool2d_with_indices %", 0), 0) << result;
  EXPECT_EQ(lines(result)[3].rfind("aten::max_pool2d_with_indices_backward %", 0), 0) << result;
}

TEST(Layout, LeavesWhatTheEngineHasNoKernelFor) {
  LayoutGraph g;
  g.output(g.convolve(g.input(f32({2, 16, 8, 8})), 16));
  EXPECT_EQ(text(assign_layouts(g.graph, [](const ConvolutionUse&) { return std::nullopt; })), text(g.graph));
}

}  // namespace
}  // namespace spool::test
