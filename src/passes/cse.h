// Common subexpressions: one node for equal ones.
#pragma once

#include "src/graph/graph.h"

namespace spool {

/// Of nodes with the same op and arguments (those of commutative ops in either order) keeps the first; users of the others use its
/// results. Nodes that draw random numbers, have effects, write to an argument, make undefined content or carry a kernel stay, and so
/// do those of which a result is written to later or leaves the graph. Ids keep their meaning; results of dropped nodes are no longer
/// defined. Bit for bit the same. Thread-safe.
Graph common_subexpressions(Graph graph);

}  // namespace spool
