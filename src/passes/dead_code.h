// Drops nodes that nothing needs.
#pragma once

#include "src/graph/graph.h"

namespace spool {

/// Removes every node of which no result is used by a node that stays or is an output, unless its op has an effect of its own.
/// Value ids, inputs and parameters keep their places. Thread-safe.
Graph dead_code(Graph graph);

}  // namespace spool
