// Code generation: a form becomes an object file with two functions, `run` and (if there are reductions over kept or all) `finish`.
//
// `run` computes some rows of a segment, from base pointers that the caller has moved to the first of them. What is reduced over
// kept or all is added to `partials`, which the caller has filled with the reductions' identities. `finish` computes the rest of
// the program once all partials have been put together; pointers are those of the first row.
//
// Sizes, strides, numbers and pointers come with the call; only what is in Form::key decides the code.
#pragma once

#include <cstdint>
#include <vector>

#include "src/engine/native/kernel_form.h"

namespace spool::native {

/// What generated functions take.
struct KernelCall {
  char* const* pointers;  ///< per access
  const std::int64_t* strides;  ///< Extent::strides
  const std::int64_t* rest;  ///< Extent::rest; the last may be less, for a part of a row
  const std::int64_t* numbers;  ///< per number of the program: its bits, int64 or double
  const std::int64_t* coordinates;  ///< per dimension of the program: of the first point
  char* const* partials;  ///< per reduction over kept or all, in the program's order
  std::int64_t rows;
};

/// A reduction over kept or all: of what its partial results consist.
struct Partial {
  KernelOp op = KernelOp::ReduceSum;
  DType dtype = DType::Float32;  ///< as it lies in memory: Float32 for halves
  bool each = false;  ///< one for each point of the rest; else a single one
};
std::vector<Partial> partials(const Form& form);

/// Size of the vectors that code for this machine is written in.
int vector_bytes();

struct GeneratedCode {
  std::vector<char> object;
  std::vector<std::pair<std::string, void*>> symbols;
  bool finish = false;
};

/// Throws Error(Internal) with the reason if the program or LLVM does not allow it. Thread-safe.
GeneratedCode generate(const Form& form);

}  // namespace spool::native
