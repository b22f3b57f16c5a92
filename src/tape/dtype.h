// Element types. The numbers are those of c10::ScalarType, so that the recorder converts by a cast; src/torch/convert.h
// holds the static_asserts that keep it so.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spool {

enum class DType : std::int8_t {
  UInt8 = 0,
  Int8 = 1,
  Int16 = 2,
  Int32 = 3,
  Int64 = 4,
  Float16 = 5,
  Float32 = 6,
  Float64 = 7,
  ComplexHalf = 8,
  Complex64 = 9,
  Complex128 = 10,
  Bool = 11,
  BFloat16 = 15,
};

/// Short name as used in dumps ("f32", "i64", "bf16"); "dtype<n>" for a PyTorch type that has no name here.
const char* name(DType dtype);

}  // namespace spool
