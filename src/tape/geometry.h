// Geometry: how a tensor lies in its storage. Plain data, compared by value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "src/tape/dtype.h"

namespace spool {

struct Geometry {
  DType dtype = DType::Float32;
  std::uint8_t itemsize = 4;          ///< bytes of one element
  std::int64_t offset = 0;            ///< elements from the storage's start
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  ///< in elements

  bool operator==(const Geometry&) const = default;

  std::int64_t numel() const;
  /// Bytes that a storage needs to hold this geometry (0 for an empty tensor).
  std::size_t storage_bytes() const;
  /// Whether the elements fill `nbytes` bytes of a storage from its start, each place exactly once.
  bool covers(std::size_t nbytes) const;
  /// Whether the elements lie in row-major order without gaps (the offset does not matter).
  bool contiguous() const;
};

/// One-dimensional geometry over a whole storage of `nbytes` bytes, with the element type of `like`.
Geometry flat(const Geometry& like, std::size_t nbytes);

/// f32[2,3], with strides and offset only where they aren't row-major from 0.
std::ostream& operator<<(std::ostream& out, const Geometry& geometry);

}  // namespace spool
