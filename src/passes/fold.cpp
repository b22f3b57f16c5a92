#include "src/passes/fold.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace spool {
namespace {

bool one_of(const std::string& name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Folder {
 public:
  explicit Folder(Graph& graph)
      : graph_(graph), filled_(graph.values.size()), now_(graph.values.size()), pinned_(graph.values.size(), false) {
    for (std::size_t i = 0; i < now_.size(); ++i) {
      now_[i] = static_cast<ValueId>(i);
    }
    for (const Node& node : graph.nodes) {
      for (const ValueId id : mutated(node)) {
        pinned_[static_cast<std::size_t>(id)] = true;
      }
    }
    for (const GraphInput& input : graph.inputs) {
      pinned_[static_cast<std::size_t>(input.value)] = true;  // its storage is not the graph's own
    }
    for (const GraphOutput& output : graph.outputs) {
      pinned_[static_cast<std::size_t>(output.value)] = true;
    }
  }

  void run() {
    std::vector<Node> kept;
    kept.reserve(graph_.nodes.size());
    for (Node& node : graph_.nodes) {
      for_each_tensor(node.args, [&](Arg& arg) { arg.value = now_[static_cast<std::size_t>(arg.value)]; });
      take_numbers(node);
      note_fill(node);
      if (!is_its_operand(node)) {
        kept.push_back(std::move(node));
      }
    }
    graph_.nodes = std::move(kept);
  }

 private:
  const Value& value(ValueId id) const { return graph_.values[static_cast<std::size_t>(id)]; }
  bool pinned(ValueId id) const { return pinned_[static_cast<std::size_t>(id)]; }

  /// The number that fills all of what the node makes.
  void note_fill(const Node& node) {
    if (node.results.size() != 1 || node.results[0] == no_value) {
      return;
    }
    const Geometry& geometry = value(node.results[0]).geometry;
    if (geometry.dtype != DType::Float32 && geometry.dtype != DType::Float64) {
      return;
    }
    Arg number;
    number.tag = Tag::Number;
    const std::string& name = node.op->name;
    if (one_of(name, {"aten::fill_.Scalar", "aten::zero_"})) {
      if (node.args[0].geometry != geometry || !geometry.covers(value(node.results[0]).nbytes)) {
        return;  // only a part
      }
    } else if (node.fresh != 1) {
      return;
    }
    if (one_of(name, {"aten::fill_.Scalar", "aten::full", "aten::full_like"})) {
      number = node.args[1];
    } else if (one_of(name, {"aten::zero_", "aten::zeros", "aten::zeros_like"})) {
      number.real = 0;
    } else if (one_of(name, {"aten::ones", "aten::ones_like"})) {
      number.real = 1;
    } else {
      return;
    }
    if (number.tag == Tag::Number && number.number.kind != NumberKind::Complex) {
      number.number.tensor = true;
      number.number.wrapped = false;
      number.number.dtype = geometry.dtype;
      filled_[static_cast<std::size_t>(node.results[0])] = number;
    }
  }

  std::optional<Arg> number_of(const Arg& arg) const {
    if (arg.tag != Tag::Tensor || arg.writes) {
      return std::nullopt;
    }
    const auto& known = filled_[static_cast<std::size_t>(arg.value)];
    return known.has_value() && known->number.dtype == arg.geometry.dtype ? known : std::nullopt;
  }

  /// Puts numbers for filled operands beside a tensor that alone gives the result its sizes and type.
  void take_numbers(Node& node) const {
    const bool product = node.op->name == "aten::mul.Tensor";
    if (node.args.size() < 2 || node.fresh != 1 || node.results.size() != 1 ||
        !(product || one_of(node.op->name, {"aten::add.Tensor", "aten::sub.Tensor", "aten::div.Tensor"}))) {
      return;
    }
    const auto alone = [&](const Arg& arg) {
      const Geometry& result = value(node.results[0]).geometry;
      return arg.tag == Tag::Tensor && !arg.geometry.sizes.empty() && arg.geometry.sizes == result.sizes &&
             arg.geometry.dtype == result.dtype;
    };
    if (product && alone(node.args[1]) && number_of(node.args[0]).has_value() && !number_of(node.args[1]).has_value()) {
      std::swap(node.args[0], node.args[1]);
    }
    if (const auto number = number_of(node.args[1]); number.has_value() && alone(node.args[0])) {
      node.args[1] = *number;
    }
  }

  /// Whether the node only repeats its first operand, which is then used instead.
  bool is_its_operand(const Node& node) {
    if (node.results.size() != 1 || node.fresh != 1 || node.args.empty() || node.args[0].tag != Tag::Tensor) {
      return false;
    }
    const auto one = [](const Arg& arg) {
      return is_constant(arg) && (arg.number.kind == NumberKind::Double ? arg.real == 1.0 : arg.integer == 1);
    };
    const bool repeats =
        node.op->name == "aten::clone" || (one_of(node.op->name, {"aten::mul.Tensor", "aten::div.Tensor"}) && one(node.args[1]));
    const ValueId from = node.args[0].value;
    const ValueId to = node.results[0];
    if (!repeats || pinned(from) || pinned(to) || node.args[0].geometry != value(to).geometry ||
        value(from).nbytes != value(to).nbytes) {
      return false;
    }
    now_[static_cast<std::size_t>(to)] = from;
    return true;
  }

  Graph& graph_;
  std::vector<std::optional<Arg>> filled_;  ///< per value: the number that it is full of
  std::vector<ValueId> now_;                ///< per value: the one to use for it
  std::vector<bool> pinned_;                ///< values whose storage others see or write
};

}  // namespace

Graph fold(Graph graph) {
  Folder(graph).run();
  return graph;
}

}  // namespace spool
