// Kernel: what a `spool::fused` node computes. A small SSA program that is evaluated at every point of an iteration space.
//
//   kernel rank 2, 1 kept: f32 a0 (load), f32 a1 (store)          // softmax of rows
//     v0 = load f32 a0
//     v1 = reduce_max f32 v0 over rest
//     v2 = sub f32 v0, v1
//     v3 = exp f32 v2
//     v4 = reduce_sum f32 v3 over rest
//     v5 = div f32 v3, v4
//     store v5 to a1
//
// The first `kept` dimensions of the space are those that `over rest` reductions keep, the others are the rest. A result of `over
// rest` is one value for each point of the kept dimensions, and later instructions may use it at every point: a kernel is then
// computed row by row. `over kept` gives one value for each point of the rest, `over all` a single one; these are complete only
// when all rows are done, so only instructions that are themselves complete then (arithmetic on such results, numbers, constants,
// loads that don't move along the reduced dimensions, stores) may use them.
//
// One program can serve several segments: spaces of their own size with their own operands (all parameters of an optimiser).
// Segments are independent of each other, and so are the points of a segment: what one stores, no other one loads, except that a
// point may load what it itself stores to (an update in place). Loads see the content from before the kernel.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "src/tape/dtype.h"

namespace spool {

struct Graph;
struct Node;

/// Semantics are those of ATen's CPU kernels on scalars of the instruction's dtype: maximum and minimum pass NaN on, fmax and fmin
/// don't, division of integers truncates (floor_div rounds down), integers wrap around, shifts by too much give 0 (or the sign).
/// Nothing is contracted: `a * b + c` rounds twice unless it is an `fma`.
enum class KernelOp : std::uint8_t {
  // Sources.
  Load,  ///< immediate: access
  Number,  ///< immediate: number of the segment. Its dtype is i64 (bool and int) or f64; complex ones don't come here
  Constant,  ///< immediate: the value's bits: an int64 for integers and bool, a double for floating point
  Index,  ///< immediate: dimension; the point's coordinate there (i64)
  // One operand.
  Cast,  ///< to the instruction's dtype, as `tensor.to(dtype)`; to bool: not zero
  Neg,
  Abs,
  Sign,
  Not,
  BitNot,
  Floor,
  Ceil,
  Round,
  Trunc,
  Sqrt,
  Rsqrt,
  Reciprocal,
  Exp,
  Exp2,
  Expm1,
  Log,
  Log2,
  Log10,
  Log1p,
  Sin,
  Cos,
  Tan,
  Asin,
  Acos,
  Atan,
  Sinh,
  Cosh,
  Tanh,
  Asinh,
  Acosh,
  Atanh,
  Erf,
  Erfc,
  Lgamma,
  IsNan,
  // Two operands of the same dtype. Comparisons give bool.
  Add,
  Sub,
  Mul,
  Div,
  FloorDiv,
  Fmod,
  Remainder,
  Pow,
  Atan2,
  Hypot,
  CopySign,
  Maximum,
  Minimum,
  Fmax,
  Fmin,
  And,
  Or,
  Xor,
  Shl,
  Shr,
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  // Three operands.
  Fma,  ///< a * b + c, rounded once
  Where,  ///< a (bool) ? b : c
  // Reductions of the first operand; immediate: KernelOver. An empty sum is 0, an empty product 1.
  ReduceSum,
  ReduceProduct,
  ReduceMaximum,
  ReduceMinimum,
  // Sink.
  Store,  ///< the first operand to access `immediate`
};

enum class KernelOver : std::uint8_t { Rest, Kept, All };

struct KernelInstruction {
  KernelOp op = KernelOp::Load;
  DType dtype = DType::Float32;  ///< of the result; of a comparison's operands it is theirs (the result is bool)
  std::int32_t operands[3] = {-1, -1, -1};  ///< earlier instructions
  std::int64_t immediate = 0;

  bool operator==(const KernelInstruction&) const = default;
};

/// A place that the program loads from or stores to. Where it lies is each segment's own.
struct KernelAccess {
  DType dtype = DType::Float32;
  bool store = false;

  bool operator==(const KernelAccess&) const = default;
};

/// Which tensor an access of a segment touches, and how it moves with the coordinates. Strides and offset in elements.
struct KernelPlace {
  std::int32_t operand = -1;  ///< the node's argument of that index, or -1
  std::int32_t result = -1;  ///< else: the node's fresh result of that index
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;  ///< one for each dimension; 0: does not move along it
};

struct KernelSegment {
  std::vector<std::int64_t> sizes;  ///< of the space, outermost first; as many as the kernel's rank
  std::vector<KernelPlace> places;  ///< one for each access
  std::vector<std::int32_t> numbers;  ///< for each number of the program: the node's Number argument of that index
};

struct Kernel {
  std::int32_t rank = 0;
  std::int32_t kept = 0;
  std::int32_t numbers = 0;
  std::vector<KernelAccess> accesses;
  std::vector<KernelInstruction> body;
  std::vector<KernelSegment> segments;  ///< at least one
};
using KernelPtr = std::shared_ptr<const Kernel>;

const char* name(KernelOp op);
/// How many operands it takes: 0 to 3.
int arity(KernelOp op);
bool is_comparison(KernelOp op);
bool is_reduction(KernelOp op);

/// The program as in the example above, without its segments: equal texts mean that the same code can serve.
std::string text(const Kernel& kernel);

/// Checks that a node and its kernel fit together; throws Error(Internal) naming the rule that is broken: operands are earlier
/// instructions of the right dtype, accesses and numbers are in range, places have one stride for each dimension and stay inside
/// their value's storage, every fresh result is stored to, and stores go to fresh results or to arguments that the node writes.
void verify_kernel(const Graph& graph, const Node& node);

}  // namespace spool
