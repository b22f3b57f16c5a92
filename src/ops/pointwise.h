// Pointwise: which ops are arithmetic at every point of an index space (or reductions of it), and what they compute there.
//
// One row serves an op's overloads and its in-place and out variants: `aten::add.Tensor`, `add_.Scalar` and `add.out` all take
// the row "add". A row's function reads the node's arguments through an `Emitter` and emits kernel instructions.
#pragma once

#include <optional>
#include <vector>

#include "src/graph/graph.h"

namespace spool {

/// An access of a lowered node: a value and how the place moves along the node's own space, in elements from the storage's start.
struct LoweredPlace {
  ValueId value = no_value;
  DType dtype = DType::Float32;
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;
};

/// A result. `place.value` is the new value; `old` is the value that it replaces, or no_value if the result is fresh.
struct LoweredWrite {
  LoweredPlace place;
  ValueId old = no_value;
  std::int32_t instruction = -1;
};

/// A node as a program over a space of its own. Loads name `reads`, numbers name `numbers`; there are no stores: `writes` tells
/// what is stored. Reductions are over the dimensions that `reduced` marks; writes of a reduction do not move along these.
struct Lowered {
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> reduced;  ///< per dimension
  std::vector<LoweredPlace> reads;
  std::vector<LoweredWrite> writes;
  std::vector<Arg> numbers;
  std::vector<KernelInstruction> body;
  bool reduces = false;
  bool copies = false;  ///< only moves elements, maybe with a cast
};

/// The node as such a program; nullopt if its op has no row, or this use of it is beyond what kernels do. Dimensions of size 1 are
/// dropped, the rest are ordered by the strides of what is written (of what is read, for a reduction) and merged where possible.
/// Thread-safe.
std::optional<Lowered> lower(const Graph& graph, const Node& node);

}  // namespace spool
