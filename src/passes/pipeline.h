// The lists of passes: what every graph goes through, and what an engine with kernels of its own adds.
#pragma once

#include <string>

#include "src/graph/graph.h"
#include "src/passes/layout.h"

namespace spool {

/// Runs all passes in order. With SPOOL_DUMP_GRAPHS set, writes the graph's text before the first and after each pass that
/// changed it to `<folder>/graph_<number>.txt`, with the time each took. In builds with SPOOL_VERIFY, verifies after each pass.
Graph optimise(Graph graph);

/// Runs the passes that make kernels, as the calling thread's options say, and layouts, by the engine's choices, on a graph that has
/// been through `optimise`. Dumps to `graph_<number>.kernels.txt`, with the number of the graph that this thread optimised last.
Graph make_kernels(Graph graph, const ChooseConvolution& choose);

}  // namespace spool
