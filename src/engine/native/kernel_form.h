// Form: a kernel's segment as loops: which dimensions are rows, which are walked within a row, which one vectors lie along.
//
// Dimensions of size 1 are dropped, the others are ordered by their strides and merged where all accesses allow it. Where the
// results are the same but for the order in which sums are taken, reductions are turned:
//  - no reductions: the innermost dimension is the rest, all others are kept;
//  - one row whose reductions are used when it is done only: `over rest` becomes `over all`;
//  - columns that are reduced along rows: `over rest` becomes `over kept`, with the two groups swapped.
// What is chosen depends on sizes and strides alone, never on the number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/graph/kernel.h"

namespace spool::native {

bool is_floating(DType dtype);
bool is_half(DType dtype);
/// In bytes. Throws Error(Internal) for what no kernel may contain.
std::int64_t element_size(DType dtype);

/// What code depends on. Equal keys: the same code serves.
struct Form {
  Kernel program;         ///< without segments
  std::int32_t rest = 1;  ///< loops within a row, at least 1
  std::int32_t lanes = 1;
  bool vertical = false;  ///< lanes are rows (along the innermost kept dimension), not points of the innermost rest dimension
  bool in_place = false;  ///< a store may go to memory that a load reads at the same point
  /// Per access, for the innermost kept dimension and then each rest dimension: 0: does not move, 1: by one element, 2: other.
  std::vector<std::uint8_t> strides;
  /// Per dimension of the program: -1: its coordinate is the same for all points of a call; 0: innermost kept; 1 + i: rest i.
  std::vector<std::int8_t> coordinates;

  std::uint8_t stride(std::size_t access, int dimension) const {
    return strides[access * static_cast<std::size_t>(1 + rest) + static_cast<std::size_t>(dimension)];
  }
  bool reduces(KernelOver over) const;
  std::string key() const;
};

/// The sizes and strides that go with a form.
struct Extent {
  std::vector<std::int64_t> outer;              ///< kept sizes but the innermost
  std::vector<std::int32_t> outer_dimensions;   ///< of the program, or -1 where several were merged
  std::vector<std::int64_t> outer_strides;      ///< per access, then outer dimension; bytes
  std::int64_t rows = 1;                        ///< size of the innermost kept dimension
  std::int32_t row_dimension = -1;
  std::int32_t inner_dimension = -1;            ///< of the program: the innermost rest dimension
  std::vector<std::int64_t> rest;               ///< sizes of the rest dimensions
  std::vector<std::int64_t> strides;            ///< per access: innermost kept, then the rest; bytes

  std::int64_t all_rows() const;
  std::int64_t rest_points() const;
};

/// `vector_bytes`: of the machine's vectors.
Form make_form(const Kernel& kernel, const KernelSegment& segment, bool in_place, int vector_bytes, Extent& extent);

/// How a value of the program changes: the same for all points of a call, for all points of a row, or not; or one that is complete
/// only when all rows are done, alone (AfterAll) or for each point of the rest (AfterKept).
enum class Level : std::uint8_t { Uniform, Row, Point, AfterAll, AfterKept };

/// Levels of all instructions; a store's is its value's, or Point if its place moves along the rest. Throws Error(Internal) for
/// programs that break the rules of kernel.h.
std::vector<Level> levels(const Form& form);

}  // namespace spool::native
