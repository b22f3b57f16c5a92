#include "src/tape/geometry.h"

#include <algorithm>
#include <numeric>
#include <ostream>

namespace spool {

const char* name(DType dtype) {
  switch (dtype) {
    case DType::UInt8: return "u8";
    case DType::Int8: return "i8";
    case DType::Int16: return "i16";
    case DType::Int32: return "i32";
    case DType::Int64: return "i64";
    case DType::Float16: return "f16";
    case DType::Float32: return "f32";
    case DType::Float64: return "f64";
    case DType::ComplexHalf: return "c32";
    case DType::Complex64: return "c64";
    case DType::Complex128: return "c128";
    case DType::Bool: return "bool";
    case DType::BFloat16: return "bf16";
  }
  return "dtype?";
}

std::int64_t Geometry::numel() const { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>()); }

std::size_t Geometry::storage_bytes() const {
  std::int64_t last = offset;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) {
      return 0;
    }
    last += (sizes[d] - 1) * strides[d];
  }
  return static_cast<std::size_t>(last + 1) * itemsize;
}

bool Geometry::covers(std::size_t nbytes) const {
  if (offset != 0 || static_cast<std::size_t>(numel()) * itemsize != nbytes) {
    return false;
  }
  // Dense and without overlap: ordered by stride, every dimension starts where the smaller ones end.
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) {
      order.push_back(d);
    }
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
  std::int64_t expected = 1;
  for (const std::size_t d : order) {
    if (strides[d] != expected) {
      return numel() == 0;
    }
    expected *= sizes[d];
  }
  return true;
}

bool Geometry::contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != expected) {
      return numel() == 0;
    }
    expected *= sizes[d];
  }
  return true;
}

Geometry flat(const Geometry& like, std::size_t nbytes) {
  return {like.dtype, like.itemsize, 0, {static_cast<std::int64_t>(nbytes / like.itemsize)}, {1}};
}

std::ostream& operator<<(std::ostream& out, const Geometry& geometry) {
  const auto list = [&out](const std::vector<std::int64_t>& values) {
    out << '[';
    for (std::size_t i = 0; i < values.size(); ++i) {
      out << (i == 0 ? "" : ",") << values[i];
    }
    out << ']';
  };
  out << name(geometry.dtype);
  list(geometry.sizes);
  if (!geometry.contiguous()) {
    out << " strides";
    list(geometry.strides);
  }
  if (geometry.offset != 0) {
    out << " offset " << geometry.offset;
  }
  return out;
}

}  // namespace spool
