// The list of passes that every graph goes through before an engine compiles it.
#pragma once

#include <string>

#include "src/graph/graph.h"

namespace spool {

/// Runs all passes in order. With SPOOL_DUMP_GRAPHS set, writes the graph's text before the first and after each pass that
/// changed it to `<folder>/graph_<number>.txt`, with the time each took. In builds with SPOOL_VERIFY, verifies after each pass.
Graph optimise(Graph graph);

}  // namespace spool
