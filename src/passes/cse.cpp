#include "src/passes/cse.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>

namespace spool {
namespace {

/// Ops whose first two arguments may change places without a change in any bit.
constexpr std::array commutative{std::string_view("aten::mul.Tensor"),        std::string_view("aten::maximum"),
                                 std::string_view("aten::minimum"),           std::string_view("aten::eq.Tensor"),
                                 std::string_view("aten::ne.Tensor"),         std::string_view("aten::bitwise_and.Tensor"),
                                 std::string_view("aten::bitwise_or.Tensor"), std::string_view("aten::logical_and"),
                                 std::string_view("aten::logical_or")};

/// Bytes that are equal for equal arguments only.
class Key {
 public:
  template <class T>
  void put(const T& item) {
    bytes_.append(reinterpret_cast<const char*>(&item), sizeof(T));
  }
  template <class T>
  void put(const std::vector<T>& items) {
    put(items.size());
    for (const T& item : items) {
      put(item);
    }
  }
  void put(const Geometry& geometry) {
    put(geometry.dtype);
    put(geometry.offset);
    put(geometry.sizes);
    put(geometry.strides);
  }
  void put(const Arg& arg) {
    put(arg.tag);
    switch (arg.tag) {
      case Tag::Tensor:
        put(arg.value);
        put(arg.geometry);
        break;
      case Tag::Number:
        put(arg.number.encode());
        put(arg.parameter);
        if (is_constant(arg)) {
          put(arg.integer);
          put(arg.real);
        }
        break;
      case Tag::Int:
      case Tag::Bool: put(arg.integer); break;
      case Tag::Double: put(arg.real); break;
      case Tag::IntList:
      case Tag::BoolList: put(arg.list); break;
      case Tag::DoubleList: put(arg.reals); break;
      case Tag::TensorList:
      case Tag::NumberList:
        put(arg.elements.size());
        for (const Arg& element : arg.elements) {
          put(element);
        }
        break;
      case Tag::String:
        put(arg.text.size());
        bytes_ += arg.text;
        break;
      case Tag::Generator: put(arg.parameter); break;
      case Tag::None:
      case Tag::Device: break;
    }
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

std::string key_of(const Arg& arg) {
  Key key;
  key.put(arg);
  return key.take();
}

std::string key_of(const Node& node) {
  std::vector<std::string> args;
  for (const Arg& arg : node.args) {
    args.push_back(key_of(arg));
  }
  if (args.size() > 1 && args[1] < args[0] &&
      std::find(commutative.begin(), commutative.end(), node.op->name) != commutative.end()) {
    std::swap(args[0], args[1]);
  }
  Key key;
  key.put(node.op);
  key.put(node.fresh);
  std::string bytes = key.take();
  for (const std::string& arg : args) {
    bytes += arg;
  }
  return bytes;
}

bool draws(const std::vector<Arg>& args) {
  return std::any_of(args.begin(), args.end(), [](const Arg& arg) { return arg.tag == Tag::Generator || draws(arg.elements); });
}

class Merger {
 public:
  explicit Merger(Graph& graph) : graph_(graph), pinned_(graph.values.size(), false), now_(graph.values.size()) {
    for (std::size_t i = 0; i < now_.size(); ++i) {
      now_[i] = static_cast<ValueId>(i);
    }
    for (const Node& node : graph.nodes) {
      for (const ValueId id : mutated(node)) {
        pinned_[static_cast<std::size_t>(id)] = true;
      }
    }
    for (const GraphOutput& output : graph.outputs) {
      pinned_[static_cast<std::size_t>(output.value)] = true;
    }
  }

  void run() {
    std::unordered_map<std::string, std::size_t> first;  // by key: a kept node
    std::vector<Node> kept;
    kept.reserve(graph_.nodes.size());
    for (Node& node : graph_.nodes) {
      for_each_tensor(node.args, [&](Arg& arg) { arg.value = now_[static_cast<std::size_t>(arg.value)]; });
      if (!mergeable(node)) {
        kept.push_back(std::move(node));
        continue;
      }
      const auto [same, is_new] = first.try_emplace(key_of(node), kept.size());
      if (is_new || !replaces(kept[same->second], node)) {
        kept.push_back(std::move(node));
      }
    }
    graph_.nodes = std::move(kept);
  }

 private:
  bool mergeable(const Node& node) const {
    return !node.op->effect && node.op != &ops::empty && node.kernel == nullptr && node.fresh > 0 &&
           node.results.size() == static_cast<std::size_t>(node.fresh) && !draws(node.args) &&
           std::none_of(node.results.begin(), node.results.end(),
                        [&](ValueId id) { return id != no_value && pinned_[static_cast<std::size_t>(id)]; });
  }

  /// Whether `node`'s results may be those of `earlier`; if so, they are from now on.
  bool replaces(const Node& earlier, const Node& node) {
    for (std::size_t i = 0; i < node.results.size(); ++i) {
      const ValueId id = node.results[i];
      const ValueId other = earlier.results[i];
      if ((id == no_value) != (other == no_value) ||
          (id != no_value &&
           graph_.values[static_cast<std::size_t>(id)].geometry != graph_.values[static_cast<std::size_t>(other)].geometry)) {
        return false;
      }
    }
    for (std::size_t i = 0; i < node.results.size(); ++i) {
      if (node.results[i] != no_value) {
        now_[static_cast<std::size_t>(node.results[i])] = earlier.results[i];
      }
    }
    return true;
  }

  Graph& graph_;
  std::vector<bool> pinned_;  ///< values that are mutated or outputs: they are nobody else's
  std::vector<ValueId> now_;  ///< per value: the one to use for it
};

}  // namespace

Graph common_subexpressions(Graph graph) {
  Merger(graph).run();
  return graph;
}

}  // namespace spool
