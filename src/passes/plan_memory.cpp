#include "src/passes/plan_memory.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"

namespace spool {
namespace {

using Kind = PlannedBuffer::Kind;

constexpr std::size_t alignment = 64;

std::size_t aligned(std::size_t nbytes) { return (nbytes + alignment - 1) / alignment * alignment; }

class Planner {
 public:
  explicit Planner(const Graph& graph)
      : graph_(graph), end_(static_cast<std::int32_t>(graph.nodes.size())), last_use_(graph.values.size(), -1) {
    plan_.buffer_of.assign(graph.values.size(), -1);
    plan_.output_donated.assign(graph.outputs.size(), 0);
    plan_.input_written.assign(graph.inputs.size(), 0);
  }

  MemoryPlan run() {
    find_uses();
    assign_buffers();
    assign_outputs();
    place();
    return std::move(plan_);
  }

 private:
  std::int32_t& last_use(ValueId value) { return last_use_[static_cast<std::size_t>(value)]; }
  std::int32_t& buffer_of(ValueId value) { return plan_.buffer_of[static_cast<std::size_t>(value)]; }
  PlannedBuffer& buffer(std::int32_t index) { return plan_.buffers[static_cast<std::size_t>(index)]; }

  void find_uses() {
    for (std::int32_t i = 0; i < end_; ++i) {
      for_each_tensor(graph_.nodes[static_cast<std::size_t>(i)].args, [&](const Arg& arg) { last_use(arg.value) = i; });
    }
    for (const GraphOutput& output : graph_.outputs) {
      last_use(output.value) = end_;
    }
  }

  /// Puts a value into a buffer, new if `into` is -1; `node` is where the value is made.
  void assign(ValueId value, std::int32_t node, std::int32_t into = -1) {
    if (into < 0) {
      into = static_cast<std::int32_t>(plan_.buffers.size());
      plan_.buffers.push_back({.nbytes = graph_.values[static_cast<std::size_t>(value)].nbytes, .first = node, .last = node});
    }
    buffer_of(value) = into;
    buffer(into).last = std::max({buffer(into).last, node, last_use(value)});
  }

  void assign_buffers() {
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      assign(graph_.inputs[i].value, -1);
      plan_.buffers.back().kind = Kind::Input;
      plan_.buffers.back().index = static_cast<std::int32_t>(i);
    }
    for (std::int32_t i = 0; i < end_; ++i) {
      const Node& node = graph_.nodes[static_cast<std::size_t>(i)];
      const auto fresh = static_cast<std::size_t>(node.fresh);
      for (std::size_t r = 0; r < fresh; ++r) {
        if (node.results[r] != no_value) {
          assign(node.results[r], i);
        }
      }
      const std::vector<ValueId> old = mutated(node);
      for (std::size_t m = 0; m < old.size(); ++m) {
        const ValueId next = node.results[fresh + m];
        if (last_use(old[m]) > i) {
          assign(next, i);
          plan_.copies.push_back({i, old[m], next});
          continue;
        }
        assign(next, i, buffer_of(old[m]));
        if (const PlannedBuffer& shared = buffer(buffer_of(next)); shared.kind == Kind::Input) {
          plan_.input_written[static_cast<std::size_t>(shared.index)] = 1;
        }
      }
    }
  }

  /// Outputs in an input's memory stay there only if they replace that input; arena values that are outputs move out of the arena.
  /// What fits neither (an output that is another's value, or an input's) is for the engine to copy at the end.
  void assign_outputs() {
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const GraphOutput& output = graph_.outputs[i];
      PlannedBuffer& held = buffer(buffer_of(output.value));
      if (held.kind == Kind::Input) {
        plan_.output_donated[i] = held.index == output.input ? 1 : 0;
      } else if (held.kind == Kind::Arena) {
        held.kind = Kind::Output;
        held.index = static_cast<std::int32_t>(i);
      }
    }
  }

  void place() {
    std::vector<std::int32_t> order;
    for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
      if (plan_.buffers[i].kind == Kind::Arena && plan_.buffers[i].nbytes != 0) {
        order.push_back(static_cast<std::int32_t>(i));
      }
    }
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return std::pair(buffer(b).nbytes, a) < std::pair(buffer(a).nbytes, b);  // the larger first, then the earlier
    });
    std::vector<std::int32_t> placed;  // by offset
    placed.reserve(order.size());
    for (const std::int32_t index : order) {
      PlannedBuffer& chosen = buffer(index);
      const std::size_t size = aligned(chosen.nbytes);
      std::size_t offset = 0;
      for (const std::int32_t other : placed) {
        const PlannedBuffer& neighbour = buffer(other);
        if (neighbour.last < chosen.first || chosen.last < neighbour.first) {
          continue;
        }
        if (offset + size <= neighbour.offset) {
          break;
        }
        offset = std::max(offset, neighbour.offset + aligned(neighbour.nbytes));
      }
      chosen.offset = offset;
      plan_.arena_bytes = std::max(plan_.arena_bytes, offset + size);
      const auto after = std::upper_bound(placed.begin(), placed.end(), index,
                                          [&](std::int32_t a, std::int32_t b) { return buffer(a).offset < buffer(b).offset; });
      placed.insert(after, index);
    }
  }

  const Graph& graph_;
  std::int32_t end_;
  std::vector<std::int32_t> last_use_;  ///< per value: the last node that uses it; `end_` for an output, -1 if none
  MemoryPlan plan_;
};

}  // namespace

MemoryPlan plan_memory(const Graph& graph) { return Planner(graph).run(); }

}  // namespace spool
