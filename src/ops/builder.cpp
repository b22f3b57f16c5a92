#include "src/ops/builder.h"

#include <algorithm>
#include <numeric>

#include "src/base/error.h"
#include "src/ops/find_op.h"

namespace spool {
namespace {

Arg int_list(Sizes values) {
  Arg arg;
  arg.tag = Tag::IntList;
  arg.list = std::move(values);
  return arg;
}

Arg flag(bool value) {
  Arg arg;
  arg.tag = Tag::Bool;
  arg.integer = value ? 1 : 0;
  return arg;
}

Arg dtype_arg(DType dtype) {
  Arg arg;
  arg.tag = Tag::Int;
  arg.integer = static_cast<std::int64_t>(dtype);
  return arg;
}

Arg device_arg() {
  Arg arg;
  arg.tag = Tag::Device;
  return arg;
}

Sizes broadcast(const Sizes& a, const Sizes& b) {
  Sizes sizes(std::max(a.size(), b.size()), 1);
  for (const Sizes* operand : {&a, &b}) {
    const std::size_t skip = sizes.size() - operand->size();
    for (std::size_t d = 0; d < operand->size(); ++d) {
      std::int64_t& size = sizes[skip + d];
      SPOOL_ASSERT(size == 1 || (*operand)[d] == 1 || size == (*operand)[d], "Operands of sizes ", size, " and ", (*operand)[d],
                   " don't broadcast.");
      size = size == 1 ? (*operand)[d] : size;
    }
  }
  return sizes;
}

/// Result of a pointwise op: laid out as the first operand that has all of its sizes and no gaps, row-major if there is none.
Geometry pointwise(DType dtype, Sizes sizes, std::initializer_list<const Geometry*> operands) {
  Geometry result = row_major(dtype, std::move(sizes));
  for (const Geometry* operand : operands) {
    if (operand != nullptr && operand->sizes == result.sizes) {
      Geometry same = *operand;
      same.dtype = dtype;
      same.itemsize = result.itemsize;
      same.offset = 0;
      if (same.covers(static_cast<std::size_t>(same.numel()) * same.itemsize)) {
        return same;
      }
    }
  }
  return result;
}

const Geometry* geometry_of(const Arg& arg) { return arg.tag == Tag::Tensor ? &arg.geometry : nullptr; }

}  // namespace

std::uint8_t itemsize(DType dtype) {
  switch (dtype) {
    case DType::UInt8:
    case DType::Int8:
    case DType::Bool: return 1;
    case DType::Int16:
    case DType::Float16:
    case DType::BFloat16: return 2;
    case DType::Int32:
    case DType::Float32:
    case DType::ComplexHalf: return 4;
    case DType::Int64:
    case DType::Float64:
    case DType::Complex64: return 8;
    case DType::Complex128: return 16;
  }
  fail(ErrorKind::Internal, "[builder] an element type without a size: ", static_cast<int>(dtype), ". Please report this.");
}

bool is_floating(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::BFloat16 || dtype == DType::Float16;
}

DType accumulation(DType dtype) { return dtype == DType::BFloat16 || dtype == DType::Float16 ? DType::Float32 : dtype; }

Geometry row_major(DType dtype, Sizes sizes) {
  Geometry geometry{dtype, itemsize(dtype), 0, std::move(sizes), {}};
  geometry.strides.assign(geometry.sizes.size(), 1);
  for (std::size_t d = geometry.sizes.size(); d-- > 1;) {
    geometry.strides[d - 1] = geometry.strides[d] * std::max<std::int64_t>(geometry.sizes[d], 1);
  }
  return geometry;
}

Arg Builder::tensor(const View& view) {
  Arg arg;
  arg.tag = Tag::Tensor;
  arg.value = view.value;
  arg.geometry = view.geometry;
  return arg;
}

Arg Builder::real(double value) {
  Arg arg;
  arg.tag = Tag::Number;
  arg.number = {NumberKind::Double, false, false, DType::Float64};
  arg.real = value;
  return arg;
}

Arg Builder::integer(std::int64_t value) {
  Arg arg;
  arg.tag = Tag::Number;
  arg.number = {NumberKind::Int, false, false, DType::Int64};
  arg.integer = value;
  return arg;
}

Arg Builder::wrapped(Arg number) {
  if (number.tag == Tag::Number && !number.number.tensor) {
    number.number.tensor = true;
    number.number.wrapped = true;
    switch (number.number.kind) {
      case NumberKind::Bool: number.number.dtype = DType::Bool; break;
      case NumberKind::Int: number.number.dtype = DType::Int64; break;
      case NumberKind::Double: number.number.dtype = DType::Float64; break;
      case NumberKind::Complex: number.number.dtype = DType::Complex128; break;
    }
  }
  return number;
}

View Builder::placed(const View& view, const std::vector<std::size_t>& at, std::size_t rank) {
  View result{view.value, view.geometry};
  result.geometry.sizes.assign(rank, 1);
  result.geometry.strides.assign(rank, 1);
  for (std::size_t d = 0; d < at.size(); ++d) {
    result.geometry.sizes[at[d]] = view.geometry.sizes[d];
    result.geometry.strides[at[d]] = view.geometry.strides[d];
  }
  return result;
}

View Builder::unsqueezed(const View& view, std::size_t dim) {
  std::vector<std::size_t> at;
  for (std::size_t d = 0; d < view.rank(); ++d) {
    at.push_back(d < dim ? d : d + 1);
  }
  return placed(view, at, view.rank() + 1);
}

View Builder::expanded(const View& view, const Sizes& sizes) {
  View result{view.value, view.geometry};
  result.geometry.sizes = sizes;
  result.geometry.strides.assign(sizes.size(), 0);
  const std::size_t skip = sizes.size() - view.rank();
  for (std::size_t d = 0; d < view.rank(); ++d) {
    result.geometry.strides[skip + d] = view.size(d) == 1 ? 0 : view.geometry.strides[d];
  }
  return result;
}

View Builder::split(const View& view, std::size_t dim, const Sizes& sizes) {
  View result{view.value, view.geometry};
  auto& all = result.geometry.sizes;
  auto& strides = result.geometry.strides;
  std::int64_t stride = strides[dim];
  Sizes inner(sizes.size());
  for (std::size_t d = sizes.size(); d-- > 0;) {
    inner[d] = stride;
    stride *= sizes[d];
  }
  const auto at = static_cast<std::ptrdiff_t>(dim);
  all.erase(all.begin() + at);
  strides.erase(strides.begin() + at);
  all.insert(all.begin() + at, sizes.begin(), sizes.end());
  strides.insert(strides.begin() + at, inner.begin(), inner.end());
  return result;
}

ValueId Builder::new_value(Geometry geometry) {
  const auto nbytes = static_cast<std::size_t>(geometry.numel()) * geometry.itemsize;
  graph_.values.push_back({std::move(geometry), nbytes});
  return static_cast<ValueId>(graph_.values.size()) - 1;
}

View Builder::make(std::string_view op, std::vector<Arg> args, Geometry result) {
  return make_all(op, std::move(args), {std::move(result)}).front();
}

std::vector<View> Builder::make_all(std::string_view op, std::vector<Arg> args, const std::vector<Geometry>& results) {
  const Op* found = find_op(op);
  SPOOL_ASSERT(found != nullptr, "There is no operator ", op, ".");
  Node node{.op = found, .args = std::move(args), .results = {}, .fresh = static_cast<std::int32_t>(results.size())};
  node.location = location_;
  std::vector<View> views;
  for (const Geometry& geometry : results) {
    node.results.push_back(new_value(geometry));
    views.push_back({node.results.back(), geometry});
  }
  nodes_.push_back(std::move(node));
  return views;
}

void Builder::update(std::string_view op, const View& written, std::vector<Arg> rest, ValueId next) {
  const Op* found = find_op(op);
  SPOOL_ASSERT(found != nullptr, "There is no operator ", op, ".");
  rest.insert(rest.begin(), tensor(written));
  rest.front().writes = true;
  Node node{.op = found, .args = std::move(rest), .results = {next}, .fresh = 0};
  node.location = location_;
  nodes_.push_back(std::move(node));
}

View Builder::unary(std::string_view op, const View& x) {
  return make(op, {tensor(x)}, pointwise(x.dtype(), x.geometry.sizes, {&x.geometry}));
}

View Builder::binary(std::string_view op, const View& a, const Arg& b) {
  const Geometry* other = geometry_of(b);
  SPOOL_ASSERT(other == nullptr || other->dtype == a.dtype(), op, " of ", name(a.dtype()), " and ",
               name(other == nullptr ? a.dtype() : other->dtype), ".");
  Sizes sizes = other == nullptr ? a.geometry.sizes : broadcast(a.geometry.sizes, other->sizes);
  return make(op, {tensor(a), wrapped(b)}, pointwise(a.dtype(), std::move(sizes), {&a.geometry, other}));
}

View Builder::sum_of(std::string_view op, const View& a, const Arg& b, const Arg& alpha) {
  const View result = binary(op, a, b);
  nodes_.back().args.push_back(alpha);
  return result;
}

View Builder::clamp(std::string_view op, const View& x, const Arg& bound) {
  return make(op, {tensor(x), bound}, pointwise(x.dtype(), x.geometry.sizes, {&x.geometry}));
}

View Builder::compare(std::string_view op, const View& a, const Arg& b) {
  const Geometry* other = geometry_of(b);
  Sizes sizes = other == nullptr ? a.geometry.sizes : broadcast(a.geometry.sizes, other->sizes);
  return make(str(op, other == nullptr ? ".Scalar" : ".Tensor"), {tensor(a), b},
              pointwise(DType::Bool, std::move(sizes), {&a.geometry, other}));
}

View Builder::where(const View& condition, const Arg& a, const Arg& b) {
  Sizes sizes = condition.geometry.sizes;
  DType dtype = DType::Float32;
  for (const Arg* arg : {&b, &a}) {
    if (arg->tag == Tag::Tensor) {
      sizes = broadcast(sizes, arg->geometry.sizes);
      dtype = arg->geometry.dtype;
    }
  }
  SPOOL_ASSERT(a.tag == Tag::Tensor || b.tag == Tag::Tensor, "where of two numbers.");
  return make("aten::where.self", {tensor(condition), wrapped(a), wrapped(b)},
              pointwise(dtype, std::move(sizes), {geometry_of(a), geometry_of(b), &condition.geometry}));
}

View Builder::to(const View& x, DType dtype) {
  if (x.dtype() == dtype) {
    return x;
  }
  return make("aten::_to_copy", {tensor(x), dtype_arg(dtype), Arg{}, Arg{}, Arg{}, flag(false), Arg{}},
              pointwise(dtype, x.geometry.sizes, {&x.geometry}));
}

View Builder::reduce(std::string_view op, const View& x, const Sizes& dims, bool keep) {
  Sizes sizes;
  for (std::size_t d = 0; d < x.rank(); ++d) {
    const bool reduced = std::find(dims.begin(), dims.end(), static_cast<std::int64_t>(d)) != dims.end();
    if (!reduced || keep) {
      sizes.push_back(reduced ? 1 : x.size(d));
    }
  }
  std::vector<Arg> args{tensor(x), int_list(dims), flag(keep)};
  if (op == "aten::sum.dim_IntList") {
    args.emplace_back();  // dtype
  }
  return make(op, std::move(args), row_major(x.dtype(), std::move(sizes)));
}

View Builder::total(const View& x) {
  Sizes dims(x.rank());
  std::iota(dims.begin(), dims.end(), 0);
  return sum(x, dims, /*keep=*/false);
}

View Builder::full(Sizes sizes, const Arg& value, DType dtype) {
  return make("aten::full", {int_list(sizes), value, dtype_arg(dtype), Arg{}, device_arg(), Arg{}}, row_major(dtype, sizes));
}

View Builder::count_up(std::int64_t count) {
  return make("aten::arange.start_step",
              {integer(0), integer(count), integer(1), dtype_arg(DType::Int64), Arg{}, device_arg(), Arg{}},
              row_major(DType::Int64, {count}));
}

View Builder::define(ValueId id, const View& view, const Geometry* layout) {
  SPOOL_ASSERT(id != no_value, "An undefined result can't be given a value.");
  Value& target = graph_.values[static_cast<std::size_t>(id)];
  Geometry geometry = layout != nullptr                              ? *layout
                      : target.geometry.sizes == view.geometry.sizes ? target.geometry
                                                                     : row_major(target.geometry.dtype, view.geometry.sizes);
  SPOOL_ASSERT(geometry.sizes == view.geometry.sizes && geometry.dtype == view.dtype() && geometry.covers(target.nbytes),
               "A result of ", target.geometry, " is given as ", view.geometry, ".");
  SPOOL_ASSERT(layout != nullptr || target.geometry.sizes == view.geometry.sizes || target.geometry.contiguous(), "A result of ",
               target.geometry, " needs a layout for ", view.geometry, ".");
  const bool own = !nodes_.empty() && nodes_.back().fresh == 1 && nodes_.back().results.front() == view.value &&
                   value(view.value).geometry.sizes == view.geometry.sizes;
  if (!own) {
    make("aten::clone", {tensor(view), Arg{}}, geometry);
  }
  nodes_.back().results.front() = id;
  target.geometry = geometry;
  return {id, std::move(geometry)};
}

View Builder::define_as(ValueId id, const View& view, const Geometry* layout) {
  return define(id, to(view, value(id).geometry.dtype), layout);
}

View Builder::kept(const View& view, ValueId id) {
  if (id == no_value) {
    return view;
  }
  const View result = define_as(id, view);
  return result.dtype() == view.dtype() ? result : view;
}

ValueId Builder::next_of(ValueId id) {
  const Value same = value(id);
  graph_.values.push_back(same);
  return static_cast<ValueId>(graph_.values.size()) - 1;
}

void Builder::define_undefined(ValueId id) {
  nodes_.push_back({.op = &ops::empty, .args = {}, .results = {id}, .fresh = 1, .location = location_});
}

}  // namespace spool
