// Builder: makes nodes of ATen ops in a graph, for decompositions. It infers what those few ops give: sizes by broadcasting, the layout
// of the operand that has the result's sizes, dtypes as they are (operands of two tensors must agree; `to` converts).
//
// A View is a value with a geometry: reshaping and broadcasting cost no nodes. Not thread-safe; belongs to one graph.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "src/graph/graph.h"

namespace spool {

struct View {
  ValueId value = no_value;
  Geometry geometry;

  std::int64_t size(std::size_t dim) const { return geometry.sizes[dim]; }
  std::size_t rank() const { return geometry.sizes.size(); }
  DType dtype() const { return geometry.dtype; }
};

using Sizes = std::vector<std::int64_t>;

/// Bytes of one element.
std::uint8_t itemsize(DType dtype);
bool is_floating(DType dtype);
/// What statistics and chains of arithmetic are computed in: float32 for float16 and bfloat16, else the type itself.
DType accumulation(DType dtype);
Geometry row_major(DType dtype, Sizes sizes);

class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}

  /// Nodes made from now on are said to be recorded there.
  void set_location(LocationPtr location) { location_ = std::move(location); }
  void keep(Node node) { nodes_.push_back(std::move(node)); }
  std::vector<Node>& nodes() { return nodes_; }

  // --- arguments -------------------------------------------------------------------------------------------------------
  /// The tensor that an argument is; for a number given as 0-dim tensor, use the Arg itself.
  static View view(const Arg& arg) { return {arg.value, arg.geometry}; }
  static Arg tensor(const View& view);
  /// Constants, as Python's numbers are recorded: as Scalar, or where a tensor is asked for as a wrapped 0-dim tensor.
  static Arg real(double value);
  static Arg integer(std::int64_t value);
  /// A recorded Scalar or float as operand where a tensor is asked for.
  static Arg wrapped(Arg number);

  // --- views -----------------------------------------------------------------------------------------------------------
  /// Sizes of 1 put in, so that `view`'s dimensions are those numbered `at` of a tensor of `rank` dimensions.
  static View placed(const View& view, const std::vector<std::size_t>& at, std::size_t rank);
  /// One more dimension of size 1 before `dim`.
  static View unsqueezed(const View& view, std::size_t dim);
  static View expanded(const View& view, const Sizes& sizes);
  /// Dimension `dim` as several of those sizes.
  static View split(const View& view, std::size_t dim, const Sizes& sizes);

  // --- nodes -----------------------------------------------------------------------------------------------------------
  /// Any op with one fresh result.
  View make(std::string_view op, std::vector<Arg> args, Geometry result);
  /// Any op with several fresh results.
  std::vector<View> make_all(std::string_view op, std::vector<Arg> args, const std::vector<Geometry>& results);
  /// An op that writes to its first argument and makes nothing; `next` is that argument's next value.
  void update(std::string_view op, const View& written, std::vector<Arg> rest, ValueId next);

  View unary(std::string_view op, const View& x);
  View add(const View& a, const View& b) { return sum_of("aten::add.Tensor", a, tensor(b), integer(1)); }
  View add(const View& a, const Arg& b) { return sum_of("aten::add.Tensor", a, b, integer(1)); }
  View add(const View& a, const View& b, const Arg& alpha) { return sum_of("aten::add.Tensor", a, tensor(b), alpha); }
  View sub(const View& a, const View& b) { return sum_of("aten::sub.Tensor", a, tensor(b), integer(1)); }
  /// a - alpha * b
  View sub(const View& a, const Arg& b, const Arg& alpha) { return sum_of("aten::sub.Tensor", a, b, alpha); }
  View mul(const View& a, const View& b) { return binary("aten::mul.Tensor", a, tensor(b)); }
  View mul(const View& a, const Arg& b) { return binary("aten::mul.Tensor", a, b); }
  View mul(const View& a, double b) { return mul(a, real(b)); }
  View div(const View& a, const View& b) { return binary("aten::div.Tensor", a, tensor(b)); }
  View div(const View& a, const Arg& b) { return binary("aten::div.Tensor", a, b); }
  View div(const View& a, double b) { return div(a, real(b)); }
  View square(const View& x) { return mul(x, x); }
  View neg(const View& x) { return unary("aten::neg", x); }
  View exp(const View& x) { return unary("aten::exp", x); }
  View log(const View& x) { return unary("aten::log", x); }
  View abs(const View& x) { return unary("aten::abs", x); }
  View sign(const View& x) { return unary("aten::sign", x); }
  View sqrt(const View& x) { return unary("aten::sqrt", x); }
  View rsqrt(const View& x) { return unary("aten::rsqrt", x); }
  View maximum(const View& a, const View& b) { return binary("aten::maximum", a, tensor(b)); }
  View clamp_min(const View& x, const Arg& least) { return clamp("aten::clamp_min", x, least); }
  View clamp_max(const View& x, const Arg& most) { return clamp("aten::clamp_max", x, most); }
  /// eq.Tensor and so on: `op` without overload; gives bool.
  View compare(std::string_view op, const View& a, const Arg& b);
  View where(const View& condition, const Arg& a, const Arg& b);
  /// `x` itself where it has that type.
  View to(const View& x, DType dtype);
  /// Over those dimensions, which stay as 1 with `keep`.
  View sum(const View& x, const Sizes& dims, bool keep) { return reduce("aten::sum.dim_IntList", x, dims, keep); }
  View amax(const View& x, const Sizes& dims, bool keep) { return reduce("aten::amax", x, dims, keep); }
  /// Of all elements; 0-dim.
  View total(const View& x);
  View full(Sizes sizes, const Arg& value, DType dtype);
  /// 0, 1, …, count - 1 as int64.
  View count_up(std::int64_t count);

  /// Makes `view` the value `id` that a node of the original graph gave: the last node's own result gets that id (and the view
  /// returned is it), anything else is copied. `layout`, if not null, says how the view's sizes lie in the value's storage; else
  /// they lie as the value's geometry does, or row-major if the sizes are not its.
  View define(ValueId id, const View& view, const Geometry* layout = nullptr);
  /// The same, converted to the value's type.
  View define_as(ValueId id, const View& view, const Geometry* layout = nullptr);
  /// For the view just made: makes it a result if `id` is one, converted if that has another type. Returns what to compute on with,
  /// in the view's type.
  View kept(const View& view, ValueId id);
  /// A value whose content nobody will read.
  void define_undefined(ValueId id);
  /// Another value of the same storage, for an update that is not the last one.
  ValueId next_of(ValueId id);

  const Value& value(ValueId id) const { return graph_.values[static_cast<std::size_t>(id)]; }

 private:
  ValueId new_value(Geometry geometry);
  View binary(std::string_view op, const View& a, const Arg& b);
  View sum_of(std::string_view op, const View& a, const Arg& b, const Arg& alpha);
  View clamp(std::string_view op, const View& x, const Arg& bound);
  View reduce(std::string_view op, const View& x, const Sizes& dims, bool keep);

  Graph& graph_;
  std::vector<Node> nodes_;
  LocationPtr location_;
};

}  // namespace spool
