#include "src/graph/functionalise.h"

#include <algorithm>

#include "src/base/error.h"

namespace spool {
namespace {

class Functionaliser {
 public:
  explicit Functionaliser(const std::vector<bool>& live) : live_(live) {}

  Graph run(std::span<const TapeNode* const> path) {
    for (const TapeNode* node : path) {
      add(*node);
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (live_[i]) {
        graph_.outputs.push_back({static_cast<std::uint32_t>(i), slots_[i].value, slots_[i].input});
      }
    }
    return std::move(graph_);
  }

 private:
  /// Content of one storage at this point of the tape.
  struct Content {
    ValueId value = no_value;
    std::int32_t input = -1;
  };

  ValueId new_value(Geometry geometry, std::size_t nbytes) {
    graph_.values.push_back({std::move(geometry), nbytes});
    return static_cast<ValueId>(graph_.values.size()) - 1;
  }

  /// First touch of a storage that was there before the tape. Its value gets the geometry of the first operand on it, if that
  /// is the whole storage, so that the common case reads it directly.
  void enter(const Operand& operand, const Geometry& seen, const LocationPtr& location) {
    const ValueId value = new_value(seen.covers(operand.nbytes) ? seen : flat(seen, operand.nbytes), operand.nbytes);
    Content content{value, -1};
    if (operand.first == Operand::First::Buffer) {
      content.input = static_cast<std::int32_t>(graph_.inputs.size());
      graph_.inputs.push_back({operand.slot, value});
    } else {
      graph_.nodes.push_back({.op = &ops::empty, .args = {}, .results = {value}, .fresh = 1, .location = location});
    }
    slots_.push_back(content);
  }

  void number(std::vector<Arg>& args) {
    for (Arg& arg : args) {
      if (arg.tag == Tag::Number) {
        arg.parameter = graph_.numbers++;
      } else if (arg.tag == Tag::Generator) {
        arg.parameter = graph_.generators++;
      } else {
        number(arg.elements);
      }
    }
  }

  void add(const TapeNode& recorded) {
    const Signature& signature = *recorded.signature;
    Node node{.op = signature.op, .args = decode(signature.words), .results = {}, .fresh = 0, .location = recorded.location};
    number(node.args);

    std::vector<std::uint32_t> written;  // slots, each once
    std::size_t ordinal = 0;
    for_each_tensor(node.args, [&](Arg& arg) {
      const Operand& operand = recorded.operands[ordinal];
      if (operand.first != Operand::First::No) {
        SPOOL_ASSERT(operand.slot == slots_.size(), "Slots are numbered in the order of their first touch.");
        enter(operand, arg.geometry, recorded.location);
      }
      arg.value = slots_[operand.slot].value;
      arg.writes = signature.writes[ordinal] != 0;
      if (arg.writes && std::find(written.begin(), written.end(), operand.slot) == written.end()) {
        written.push_back(operand.slot);
      }
      ++ordinal;
    });

    for (const auto& result : signature.results.tensors) {
      if (!result.has_value()) {
        node.results.push_back(no_value);
        continue;
      }
      node.results.push_back(new_value(result->geometry, result->nbytes));
      slots_.push_back({node.results.back(), -1});
    }
    node.fresh = static_cast<std::int32_t>(node.results.size());
    for (const std::uint32_t slot : written) {
      const Value& old = graph_.values[static_cast<std::size_t>(slots_[slot].value)];
      node.results.push_back(new_value(Geometry(old.geometry), old.nbytes));
      slots_[slot].value = node.results.back();
    }
    graph_.nodes.push_back(std::move(node));
  }

  const std::vector<bool>& live_;
  std::vector<Content> slots_;
  Graph graph_;
};

}  // namespace

Graph functionalise(std::span<const TapeNode* const> path, const std::vector<bool>& live) {
  return Functionaliser(live).run(path);
}

}  // namespace spool
