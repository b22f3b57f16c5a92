// Functionalise: tape → graph. Storages become SSA values; a write to storage becomes a new value of it.
#pragma once

#include <span>
#include <vector>

#include "src/graph/graph.h"
#include "src/tape/tape.h"

namespace spool {

/// The graph of a tape whose nodes are `path`; `live[i]` says whether the tape's slot i is an output. Pure.
Graph functionalise(std::span<const TapeNode* const> path, const std::vector<bool>& live);

}  // namespace spool
