// Makes a node of a group of nodes, and one node of several that compute the same on operands of their own.
#pragma once

#include <vector>

#include "src/passes/fuse_group.h"

namespace spool {

/// What surrounds the groups: read only.
struct FuseContext {
  const Graph& graph;
  std::vector<ValueId> root;               ///< per value: the first one of its storage
  std::vector<std::uint8_t> undefined;     ///< per value: it is storage that nothing has written
  std::vector<std::uint8_t> needed;        ///< per value: the group's results that others use
  std::vector<std::uint8_t> counts;        ///< per value: it holds 0, 1, 2, … as int64, so that a coordinate does for it
};

/// The group's kernel as a node. Its results are those values made in the group for which `needed` is set.
Node make_kernel(const FuseGroup& group, const FuseContext& context);

/// Appends `other`, whose kernel has the same text, to `node` as further segments.
void add_segments(Node& node, Kernel& kernel, const Node& other);

}  // namespace spool
