// Memory plan: where each value of a graph lies. Chosen at compile time, for engines that run on one arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/graph/graph.h"

namespace spool {

struct PlannedBuffer {
  enum class Kind { Input, Output, Arena };
  Kind kind = Kind::Arena;
  std::int32_t index = -1;       ///< Input: which graph input. Output: which graph output (new memory, not an input's)
  std::size_t offset = 0;        ///< Arena: bytes from its start
  std::size_t nbytes = 0;
  std::int32_t first = -1;       ///< node that first writes it (-1: filled before the first node)
  std::int32_t last = -1;        ///< last node that touches it (nodes.size() if it is an output)
};

/// A mutated argument whose old value is still needed: it is copied to the new value's buffer before the node runs.
struct PlannedCopy {
  std::int32_t node = -1;
  ValueId from = no_value;
  ValueId to = no_value;
};

struct MemoryPlan {
  std::vector<PlannedBuffer> buffers;
  std::vector<std::int32_t> buffer_of;      ///< per value: its buffer (-1: the value is never made)
  std::vector<PlannedCopy> copies;
  std::vector<std::uint8_t> output_donated; ///< per graph output: 1 if it ends in the memory of the input that it replaces
  std::vector<std::uint8_t> input_written;  ///< per graph input: 1 if the plan writes into it
  std::size_t arena_bytes = 0;
};

/// Plans with lifetime offsets: buffers whose lifetimes overlap never overlap in the arena; offsets are multiples of 64.
/// A value that a node mutates shares its buffer with its next value unless something later still needs the old one.
/// Larger buffers are placed first, each at the lowest offset that is free during its lifetime (greedy by size, Pisarchyk and
/// Lee 2020, arXiv:2001.03288).
MemoryPlan plan_memory(const Graph& graph);

}  // namespace spool
