// Constant folding and algebraic clean-up that keep every bit.
#pragma once

#include "src/graph/graph.h"

namespace spool {

/// - An operand that is a tensor filled with one number (full, zeros, ones, fill_ of all of it, …) is that number, where the op takes
///   numbers as 0-dim tensors and the result stays what it was. Only for float32 and float64, which numbers convert to alike.
/// - x * 1 and x / 1 are x; a clone of a value is that value. Not where either of the two leaves the graph or is written to.
/// Ids keep their meaning; results of dropped nodes are no longer defined. Thread-safe.
Graph fold(Graph graph);

}  // namespace spool
