#include "src/passes/decompose.h"

#include <utility>

#include "src/ops/builder.h"
#include "src/ops/decompositions.h"

namespace spool {

Graph decompose(Graph graph) {
  std::vector<Node> recorded = std::exchange(graph.nodes, {});
  Builder builder(graph);
  Decomposed known;
  for (Node& node : recorded) {
    if (const Decomposition apart = decomposition(node.op->name); apart != nullptr) {
      builder.set_location(node.location);
      const std::size_t before = builder.nodes().size();
      if (apart(node, builder, known)) {
        continue;
      }
      builder.nodes().resize(before);
    }
    builder.keep(std::move(node));
  }
  graph.nodes = std::move(builder.nodes());
  return graph;
}

}  // namespace spool
