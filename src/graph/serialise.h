// A graph as bytes: for the persistent cache, as its key (the graph as recorded) and as its content (after the passes).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "src/graph/graph.h"

namespace spool {

/// Bytes that stand for `graph`; graphs that differ in anything but their nodes' locations have different bytes. A node's location is
/// written as its place in `locations`; one that is not there is lost. Only for the machine that reads them: native byte order.
std::string serialise(const Graph& graph, std::span<const LocationPtr> locations = {});

/// The graph again, with ops from `find_op` and its nodes' locations from `locations`. Throws Error(Value) for bytes that are torn,
/// foreign, or name an op that `find_op` doesn't know (it gives nullptr).
Graph deserialise(std::string_view bytes, const std::function<const Op*(std::string_view)>& find_op,
                  std::span<const LocationPtr> locations = {});

}  // namespace spool
