// Fusion: makes kernels (graph/kernel.h) of nodes that are arithmetic at every point of a space, or reductions of it.
#pragma once

#include "src/graph/graph.h"

namespace spool {

enum class FuseMode {
  Auto,    ///< where it saves memory traffic or launches
  Always,  ///< every node that a kernel can express, also alone (for tests)
};

/// Replaces groups of nodes by `spool::fused` ones. A group's nodes share an iteration space; what they hand to each other is not
/// stored, in-place updates stay in place, and groups of equal programs that do not depend on each other become segments of one
/// node. Results that a group makes and nobody needs are not made. Grows as n log n with the number of nodes. Thread-safe.
Graph fuse(Graph graph, FuseMode mode = FuseMode::Auto);

}  // namespace spool
