// Fusion: makes kernels (graph/kernel.h) of nodes that are arithmetic at every point of a space, or reductions of it.
#pragma once

#include "src/graph/graph.h"
#include "src/runtime/options.h"

namespace spool {

/// Replaces groups of nodes by `spool::fused` ones. A group's nodes share an iteration space; what they hand to each other is not
/// stored, in-place updates stay in place, and groups of equal programs that do not depend on each other become segments of one
/// node. Results that a group makes and nobody needs are not made. Grows as n log n with the number of nodes. Thread-safe.
Graph fuse(Graph graph, FuseMode mode = FuseMode::Auto);

}  // namespace spool
