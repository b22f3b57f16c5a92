// Takes composite ops apart into ops that fuse (ops/decompositions.h).
#pragma once

#include "src/graph/graph.h"

namespace spool {

/// Replaces every node whose op has a decomposition for what it is called with. For engines that fuse: run op by op the pieces are
/// slower than the whole, and they are not equal to it bit for bit. Value ids, inputs and parameters keep their places; a result's
/// geometry may become another view of the same layout. Thread-safe.
Graph decompose(Graph graph);

}  // namespace spool
