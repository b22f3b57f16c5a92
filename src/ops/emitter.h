// Emitter: what the rows of the pointwise table are written with.
#pragma once

#include <initializer_list>
#include <string_view>

#include "src/ops/builder.h"
#include "src/ops/pointwise.h"

namespace spool {

/// Thrown by a row for a use of its op that it doesn't know; `lower` then gives nullopt.
struct NotLowered {};

/// ATen's computation type: float for half types, else the type itself.
DType math_type(DType dtype);

bool is_integral(DType dtype);  ///< bool excluded
/// ATen's promotion of two element types. Throws NotLowered for complex ones.
DType promote(DType a, DType b);

class Emitter {
 public:
  using Id = std::int32_t;

  Emitter(const Graph& graph, const Node& node, std::string_view base) : graph_(graph), node_(node), base_(base) {}

  // --- the node -------------------------------------------------------------------------------------------------------
  /// The op's name without namespace, overload and trailing underscore.
  std::string_view base() const { return base_; }
  /// The i-th argument; one of kind None where there are fewer.
  const Arg& arg(std::size_t i) const;
  bool has(std::size_t i) const { return arg(i).tag != Tag::None; }
  bool flag(std::size_t i) const;
  /// A number's or int's value is needed at compile time: an Int, Bool or None (then `fallback`).
  std::int64_t integer(std::size_t i, std::int64_t fallback) const;
  /// Whether it is the constant 1.
  bool is_one(std::size_t i) const;
  /// The text of a String argument, "" for None.
  std::string_view text(std::size_t i) const;
  DType result_dtype() const { return result_.dtype; }

  // --- types ----------------------------------------------------------------------------------------------------------
  /// What ATen promotes these arguments to: tensors, 0-dim tensors and numbers each by their rank.
  DType common(std::initializer_list<std::size_t> args) const;
  /// The same, but an integral type becomes the default floating one.
  DType common_float(std::initializer_list<std::size_t> args) const;

  // --- instructions ---------------------------------------------------------------------------------------------------
  /// The i-th argument, tensor or number, rounded to `dtype` and then in `math_type(dtype)`.
  Id value(std::size_t i, DType dtype);
  /// The same, but a number goes to the math type directly.
  Id operand(std::size_t i, DType dtype);
  Id op(KernelOp op, DType dtype, Id a, Id b = -1, Id c = -1);
  Id constant(DType dtype, double value);
  /// To another type; nothing if it has that already.
  Id cast(Id a, DType dtype);
  /// Rounds to a half type and back; nothing for other types.
  Id rounded(Id a, DType dtype) { return cast(cast(a, dtype), math_type(dtype)); }
  /// The node's result, which is cast to the result's dtype.
  void result(Id a);
  /// A reduction of a tensor argument over the dimensions of the list argument `dims` (all if None or empty).
  void over(std::size_t tensor, std::size_t dims, std::size_t keepdim);
  /// How many elements of the reduced tensor go into one result.
  std::int64_t reduced_count() const { return reduced_count_; }
  void marks_copy() { lowered_.copies = true; }

  /// Runs the row.
  Lowered run(void (*row)(Emitter&));

 private:
  friend std::optional<Lowered> lower(const Graph& graph, const Node& node);

  void find_result();
  Id load(const Arg& tensor);
  DType type_of(Id a) const;
  Id emit(const KernelInstruction& instruction);
  void tidy();

  const Graph& graph_;
  const Node& node_;
  std::string_view base_;
  Geometry result_;  ///< of the node's result; a reduction's lacks the reduced dimensions
  Lowered lowered_;
  std::int64_t reduced_count_ = 1;
};

/// The row of that name, or nullptr.
using PointwiseRow = void (*)(Emitter&);
PointwiseRow pointwise_row(std::string_view base);

}  // namespace spool
