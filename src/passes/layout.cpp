#include "src/passes/layout.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "src/base/error.h"

namespace spool {

namespace ops {
const Op convolution{.name = "spool::convolution", .handle = nullptr, .mutates = {}, .has_mutation = false, .effect = false};
const Op convolution_backward{
    .name = "spool::convolution_backward", .handle = nullptr, .mutates = {}, .has_mutation = false, .effect = false};
const Op reorder{.name = "spool::reorder", .handle = nullptr, .mutates = {}, .has_mutation = false, .effect = false};
const Op max_pool{.name = "spool::max_pool", .handle = nullptr, .mutates = {}, .has_mutation = false, .effect = false};
const Op max_pool_backward{
    .name = "spool::max_pool_backward", .handle = nullptr, .mutates = {}, .has_mutation = false, .effect = false};
}  // namespace ops

Geometry blocked(const Geometry& plain, std::int64_t block) {
  if (block == 1) {
    return plain;
  }
  Geometry result{plain.dtype, plain.itemsize, 0, plain.sizes, {}};
  result.sizes[1] /= block;
  result.sizes.push_back(block);
  result.strides.assign(result.sizes.size(), 1);
  for (std::size_t d = result.sizes.size() - 1; d-- > 0;) {
    result.strides[d] = result.strides[d + 1] * result.sizes[d + 1];
  }
  return result;
}

namespace {

constexpr std::int64_t plain = 1;

/// Where arguments stand in the two operators.
struct Positions {
  std::size_t input, weight, bias, stride, padding, dilation, transposed, groups;
};
constexpr Positions forward_positions{0, 1, 2, 3, 4, 5, 6, 8};
constexpr Positions backward_positions{1, 2, 3, 4, 5, 6, 7, 9};

Arg integer(std::int64_t value) {
  Arg arg;
  arg.tag = Tag::Int;
  arg.integer = value;
  return arg;
}

std::vector<std::int64_t> per_dimension(const Arg& arg, std::size_t dimensions) {
  return arg.list.size() == 1 ? std::vector<std::int64_t>(dimensions, arg.list.front()) : arg.list;
}

/// Sizes as the operator sees them.
std::vector<std::int64_t> unblocked(std::vector<std::int64_t> sizes, std::int64_t block) {
  if (block != plain) {
    sizes[1] *= block;
    sizes.pop_back();
  }
  return sizes;
}

bool is_backward(const Op& op) { return &op == &ops::convolution_backward || op.name == "aten::convolution_backward"; }

class Assigner {
 public:
  Assigner(Graph graph, const ChooseConvolution& choose)
      : graph_(std::move(graph)), choose_(choose), original_(graph_.values), versions_(graph_.values.size()) {
    for (std::size_t i = 0; i < versions_.size(); ++i) {
      versions_[i][plain] = static_cast<ValueId>(i);
    }
  }

  Graph run() {
    find_indices();
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (Node& node : nodes) {
      location_ = node.location;
      if (!convolution(node) && !fused(node) && !pool(node) && !pool_backward(node)) {
        read_plain(node);
      }
      graph_.nodes.push_back(std::move(node));
    }
    for (GraphOutput& output : graph_.outputs) {
      output.value = version(output.value, plain);
    }
    return std::move(graph_);
  }

 private:
  Value& value(ValueId id) { return graph_.values[static_cast<std::size_t>(id)]; }
  const Geometry& original(ValueId id) const { return original_[static_cast<std::size_t>(id)].geometry; }

  ValueId new_value(Geometry geometry) {
    const std::size_t nbytes = geometry.storage_bytes();
    graph_.values.push_back({std::move(geometry), nbytes});
    return static_cast<ValueId>(graph_.values.size()) - 1;
  }

  /// The block in which a value of the given graph was made.
  std::int64_t home(ValueId id) const {
    for (const auto& [block, made] : versions_[static_cast<std::size_t>(id)]) {
      if (made == id) {
        return block;
      }
    }
    return plain;
  }

  void make_blocked(ValueId id, std::int64_t block) {
    if (block != plain) {
      value(id).geometry = blocked(original(id), block);
      versions_[static_cast<std::size_t>(id)] = {{block, id}};
    }
  }

  ValueId reorder(const Arg& from, std::int64_t from_block, const Geometry& to, std::int64_t to_block) {
    const ValueId result = new_value(blocked(to, to_block));
    graph_.nodes.push_back({.op = &ops::reorder,
                            .args = {from, integer(from_block), integer(to_block)},
                            .results = {result},
                            .fresh = 1,
                            .location = location_});
    return result;
  }

  Arg whole(ValueId id) {
    Arg arg;
    arg.tag = Tag::Tensor;
    arg.value = id;
    arg.geometry = value(id).geometry;
    return arg;
  }

  /// A given value in that block; made by a reorder if nothing has needed it yet.
  ValueId version(ValueId id, std::int64_t block) {
    auto& known = versions_[static_cast<std::size_t>(id)];
    if (const auto found = known.find(block); found != known.end()) {
      return found->second;
    }
    const ValueId made = reorder(whole(id), home(id), original(id), block);
    versions_[static_cast<std::size_t>(id)][block] = made;
    return made;
  }

  void read_plain(Arg& arg) { arg.value = version(arg.value, plain); }
  void read_plain(Node& node) {
    for_each_tensor(node.args, [&](Arg& arg) { read_plain(arg); });
  }

  /// Makes `arg` a read of what it reads now, in blocks or row-major.
  void read_in(Arg& arg, std::int64_t block) {
    if (block != plain && arg.geometry == original(arg.value)) {
      arg = whole(version(arg.value, block));
      return;
    }
    read_plain(arg);
    if (block != plain || !arg.geometry.contiguous() || arg.geometry.offset != 0) {
      Geometry rows{arg.geometry.dtype, arg.geometry.itemsize, 0, arg.geometry.sizes, {}};
      rows.strides.assign(rows.sizes.size(), 1);
      for (std::size_t d = rows.sizes.size(); d-- > 1;) {
        rows.strides[d - 1] = rows.strides[d] * rows.sizes[d];
      }
      arg = whole(reorder(arg, plain, rows, block));
    }
  }

  // --- convolutions ---

  bool convolution(Node& node) {
    const auto wanted = convolution_use(graph_, node);
    const bool backward = wanted && wanted->backward;
    const Positions& at = backward ? backward_positions : forward_positions;
    const auto layout = wanted ? choose_(*wanted) : std::nullopt;
    if (!layout) {
      return false;
    }
    const std::int64_t result_block = backward ? layout->input_block : layout->output_block;
    if (node.results[0] != no_value && result_block == plain && !original(node.results[0]).contiguous()) {
      return false;
    }
    read_in(node.args[at.input], layout->input_block);
    read_plain(node.args[at.weight]);
    if (backward) {
      read_in(node.args[0], layout->output_block);
    } else if (wanted->bias) {
      read_plain(node.args[at.bias]);
    }
    node.args.push_back(integer(layout->input_block));
    node.args.push_back(integer(layout->output_block));
    node.op = backward ? &ops::convolution_backward : &ops::convolution;
    if (node.results[0] != no_value) {
      make_blocked(node.results[0], result_block);
    }
    Geometry bytes{DType::UInt8, 1, 0, {static_cast<std::int64_t>(layout->workspace)}, {1}};
    node.results.push_back(layout->workspace == 0 ? no_value : new_value(std::move(bytes)));
    ++node.fresh;
    return true;
  }

  // --- max pooling ---

  static constexpr std::size_t pool_indices = 7;  ///< the backward operator's argument

  static bool is_pool(const Node& node) { return node.op->name == "aten::max_pool2d_with_indices"; }
  static bool is_pool_backward(const Node& node) { return node.op->name == "aten::max_pool2d_with_indices_backward"; }

  /// Notes which results of max pooling nothing but its own backward operator sees: they may have another form.
  void find_indices() {
    std::map<ValueId, const Node*> made;
    const auto seen = [&](const Arg& arg) { made.erase(arg.value); };
    for (const Node& node : graph_.nodes) {
      if (is_pool(node) && node.results[1] != no_value) {
        made[node.results[1]] = &node;
      }
      if (is_pool_backward(node) && made.contains(node.args[pool_indices].value)) {
        const Node& pool = *made[node.args[pool_indices].value];
        const bool same = std::equal(pool.args.begin() + 1, pool.args.begin() + 6, node.args.begin() + 2,
                                     [](const Arg& a, const Arg& b) { return a.list == b.list && a.integer == b.integer; });
        if (!same) {
          seen(node.args[pool_indices]);
        }
        const std::span<const Arg> others(node.args.data(), pool_indices);
        for_each_tensor(others, seen);
      } else {
        for_each_tensor(node.args, seen);
      }
    }
    for (const GraphOutput& output : graph_.outputs) {
      made.erase(output.value);
    }
    for (const auto& [indices, node] : made) {
      hidden_.insert(indices);
    }
  }

  /// Kernel, stride and padding, which begin at argument `first`; none if the window is one that ops::max_pool has no form for.
  static std::optional<std::vector<Arg>> window(const Node& node, std::size_t first) {
    const auto pair = [&](std::size_t i) { return per_dimension(node.args[i], 2); };
    std::vector<std::vector<std::int64_t>> lists{pair(first), pair(first + 1), pair(first + 2)};
    lists[1] = lists[1].empty() ? lists[0] : lists[1];
    const bool dilated = pair(first + 3) != std::vector<std::int64_t>{1, 1};
    const bool ceil = node.args[first + 4].integer != 0;  // its last windows may lie outside the image
    if (dilated || ceil || lists[0][0] * lists[0][1] > 256) {
      return std::nullopt;
    }
    std::vector<Arg> args(3);
    for (std::size_t i = 0; i < 3; ++i) {
      args[i].tag = Tag::IntList;
      args[i].list = std::move(lists[i]);
    }
    return args;
  }

  bool pool(Node& node) {
    if (!is_pool(node) || node.results[0] == no_value || node.results[1] == no_value) {
      return false;
    }
    const Arg& image = node.args[0];
    const std::int64_t block = home(image.value);
    const ValueId indices = node.results[1];
    auto args = window(node, 1);
    if (!hidden_.contains(indices) || block == plain || image.geometry != original(image.value) ||
        image.geometry.sizes.size() != 4 || image.geometry.dtype != DType::Float32 || !args) {
      return false;
    }
    args->insert(args->begin(), whole(image.value));
    node.args = std::move(*args);
    node.op = &ops::max_pool;
    make_blocked(node.results[0], block);
    Geometry taps = blocked(original(indices), block);
    taps.dtype = DType::UInt8;
    taps.itemsize = 1;
    const std::size_t nbytes = taps.storage_bytes();
    value(indices) = {std::move(taps), nbytes};
    pooled_[indices] = block;
    return true;
  }

  bool pool_backward(Node& node) {
    const auto found = is_pool_backward(node) ? pooled_.find(node.args[pool_indices].value) : pooled_.end();
    if (found == pooled_.end()) {
      return false;
    }
    auto args = window(node, 2);
    SPOOL_ASSERT(args.has_value() && node.results[0] != no_value, "Max pooling's backward differs from its forward.");
    Arg gradient = node.args[0];
    read_in(gradient, found->second);
    args->insert(args->begin(), gradient);
    args->push_back(whole(found->first));
    node.args = std::move(*args);
    node.op = &ops::max_pool_backward;
    make_blocked(node.results[0], found->second);
    return true;
  }

  // --- fused kernels ---

  /// A kernel reads blocked values as they are if there is one among them, and if it can be rewritten for it.
  bool fused(Node& node) {
    if (node.kernel == nullptr || node.kernel->segments.size() != 1) {
      return false;
    }
    const std::vector<KernelPlace>& places = node.kernel->segments.front().places;
    const auto touched = [&](const KernelPlace& place) {
      return place.operand >= 0 ? node.args[static_cast<std::size_t>(place.operand)].value
                                : node.results[static_cast<std::size_t>(place.result)];
    };
    const Geometry* image = nullptr;  // the largest that lies in blocks
    std::int64_t block = plain;
    for (const KernelPlace& place : places) {
      if (place.operand < 0) {
        continue;
      }
      const ValueId id = touched(place);
      const auto& known = versions_[static_cast<std::size_t>(id)];
      if (known.rbegin()->first != plain && (image == nullptr || image->numel() < original(id).numel())) {
        image = &original(id);
        block = known.rbegin()->first;
      }
    }
    if (image == nullptr) {
      return false;
    }
    std::vector<const Geometry*> from;
    for (const KernelPlace& place : places) {
      const ValueId id = touched(place);
      const Value& before = original_[static_cast<std::size_t>(id)];
      const bool follows = before.geometry.sizes == image->sizes && before.geometry.covers(before.nbytes);
      from.push_back(follows ? &before.geometry : nullptr);
      if (follows && place.operand >= 0 && node.args[static_cast<std::size_t>(place.operand)].writes) {
        return false;
      }
    }
    auto kernel = reblocked(*node.kernel, from, block);
    if (!kernel) {
      return false;
    }
    // An argument is read in one way, so that all accesses to it have the same form.
    std::vector<bool> follows(node.args.size(), false);
    for (std::size_t p = 0; p < places.size(); ++p) {
      if (places[p].operand >= 0) {
        follows[static_cast<std::size_t>(places[p].operand)] = from[p] != nullptr;
      } else if (from[p] != nullptr) {
        make_blocked(node.results[static_cast<std::size_t>(places[p].result)], block);
      }
    }
    for (std::size_t i = 0; i < node.args.size(); ++i) {
      if (follows[i]) {
        node.args[i] = whole(version(node.args[i].value, block));
      } else if (node.args[i].tag == Tag::Tensor) {
        read_plain(node.args[i]);
      }
    }
    node.kernel = std::make_shared<const Kernel>(std::move(*kernel));
    return true;
  }

  Graph graph_;
  const ChooseConvolution& choose_;
  const std::vector<Value> original_;  ///< the given graph's values
  std::vector<std::map<std::int64_t, ValueId>> versions_;  ///< of each given value, by block
  std::set<ValueId> hidden_;  ///< max pooling's indices that only its backward operator sees
  std::map<ValueId, std::int64_t> pooled_;  ///< those of pooling in blocks, with the block
  LocationPtr location_;
};

}  // namespace

std::optional<ConvolutionUse> convolution_use(const Graph& graph, const Node& node) {
  const bool backward = is_backward(*node.op);
  if (!backward && node.op != &ops::convolution && node.op->name != "aten::convolution") {
    return std::nullopt;
  }
  const Positions& at = backward ? backward_positions : forward_positions;
  const bool ours = node.op == &ops::convolution || node.op == &ops::convolution_backward;
  const std::int64_t input_block = ours ? node.args[node.args.size() - 2].integer : plain;
  const std::int64_t output_block = ours ? node.args.back().integer : plain;
  const auto made = [&](std::size_t i) -> const Geometry& {
    return graph.values[static_cast<std::size_t>(node.results[i])].geometry;
  };
  const Geometry& weight = node.args[at.weight].geometry;
  ConvolutionUse use{.dtype = weight.dtype,
                     .backward = backward,
                     .groups = node.args[at.groups].integer,
                     .input = unblocked(node.args[at.input].geometry.sizes, input_block),
                     .weight = weight.sizes,
                     .output = unblocked(backward ? node.args[0].geometry.sizes : made(0).sizes, output_block),
                     .stride = {},
                     .padding = {},
                     .dilation = {},
                     .weight_strides = weight.strides,
                     .weight_gradient_strides = {}};
  const std::size_t rank = use.input.size();
  const auto empty = [](const std::vector<std::int64_t>& sizes) {
    return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  };
  if (node.args[at.transposed].integer != 0 || rank < 3 || empty(use.input) || empty(use.weight) || empty(use.output)) {
    return std::nullopt;
  }
  use.stride = per_dimension(node.args[at.stride], rank - 2);
  use.padding = per_dimension(node.args[at.padding], rank - 2);
  use.dilation = per_dimension(node.args[at.dilation], rank - 2);
  if (backward) {
    use.input_gradient = node.results[0] != no_value;
    use.weight_gradient = node.results[1] != no_value;
    use.bias = node.results[2] != no_value;
    if (use.weight_gradient) {
      use.weight_gradient_strides = made(1).strides;
    }
  } else {
    use.bias = node.args[at.bias].tag == Tag::Tensor;
    if (use.bias && !node.args[at.bias].geometry.contiguous()) {
      return std::nullopt;
    }
  }
  return use;
}

Graph assign_layouts(Graph graph, const ChooseConvolution& choose) { return Assigner(std::move(graph), choose).run(); }

}  // namespace spool
