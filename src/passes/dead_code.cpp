#include "src/passes/dead_code.h"

#include <algorithm>
#include <ranges>

namespace spool {

Graph dead_code(Graph graph) {
  std::vector<bool> needed(graph.values.size(), false);
  const auto need = [&](ValueId value) { needed[static_cast<std::size_t>(value)] = true; };
  for (const GraphOutput& output : graph.outputs) {
    need(output.value);
  }
  std::vector<Node> kept;
  kept.reserve(graph.nodes.size());
  // From the end: by the time a node is reached, all its users have said whether they stay. A mutation needs no rule of its own:
  // what it does to memory is its result.
  for (Node& node : std::ranges::reverse_view(graph.nodes)) {
    const bool used = std::any_of(node.results.begin(), node.results.end(),
                                  [&](ValueId result) { return result != no_value && needed[static_cast<std::size_t>(result)]; });
    if (used || node.op->effect) {
      for_each_tensor(node.args, [&](const Arg& arg) { need(arg.value); });
      kept.push_back(std::move(node));
    }
  }
  std::reverse(kept.begin(), kept.end());
  graph.nodes = std::move(kept);
  return graph;
}

}  // namespace spool
