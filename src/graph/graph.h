// Graph: the functional (SSA) form of a tape. Plain data; passes are functions from graph to graph.
//
// One node struct serves every op. A tensor argument is (value, geometry): if the geometry is not the value's own, the argument
// is a view of it, so views need no nodes. A node that mutates an argument consumes the argument's value and yields its next
// value, with the geometry of the whole; a write through a view is thus an update of its base:
//
//   %3 = aten::mul.Tensor(%0, %1)
//   %4 = aten::add_.Tensor(%3[f32[2] strides[3] offset 1]!, %2, n0)     // writes a column of %3; %4 is all of it
//
// A node's results are first the op's fresh results in order (-1 where the op returns an undefined tensor), then one new value
// for each value that it mutates, in argument order, each once.
//
// `verify` below lists the invariants.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "src/graph/kernel.h"
#include "src/tape/call.h"
#include "src/tape/geometry.h"
#include "src/tape/location.h"
#include "src/tape/op.h"

namespace spool {

using ValueId = std::int32_t;
constexpr ValueId no_value = -1;

struct Value {
  Geometry geometry;        ///< of the whole value; offset 0
  std::size_t nbytes = 0;   ///< size of the storage it stands for
};

struct Node {
  const Op* op = nullptr;
  std::vector<Arg> args;
  std::vector<ValueId> results;
  std::int32_t fresh = 0;   ///< how many of `results` are the op's own; the rest are new values of mutated arguments
  LocationPtr location;
  KernelPtr kernel;         ///< of a `spool::fused` node, whose arguments are tensors and numbers; null for all others
};

struct GraphInput {
  std::uint32_t slot = 0;   ///< place of the storage on the tape
  ValueId value = no_value;
};

struct GraphOutput {
  std::uint32_t slot = 0;
  ValueId value = no_value;
  std::int32_t input = -1;  ///< the input whose storage this output replaces (it was updated in place), or -1
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<GraphInput> inputs;
  std::vector<GraphOutput> outputs;
  std::int32_t numbers = 0;     ///< parameters it takes
  std::int32_t generators = 0;
};

/// Values that `node` mutates, in argument order, each once; results[fresh + i] is the new value of the i-th.
std::vector<ValueId> mutated(const Node& node);

/// Readable text, one line a node; the same for equal graphs. With `locations`, each line ends in the user's line.
std::string text(const Graph& graph, bool locations = false);
std::ostream& operator<<(std::ostream& out, const Graph& graph);

/// Checks the invariants; throws Error(Internal) naming the first node that breaks one:
/// ids in range; each value defined exactly once and before use; operand geometry lies inside its value's storage; a mutated
/// value is used by no later node and is no output; outputs cover their storage; parameters in range; no constant is complex;
/// results match `fresh`.
void verify(const Graph& graph);

}  // namespace spool
