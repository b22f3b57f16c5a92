// Running machine code over a segment: tiles, threads, partial results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/engine/native/kernel_cache.h"

namespace spool::native {

/// A segment, ready to run but for its memory and numbers.
class KernelLaunch {
 public:
  KernelLaunch(Form form, Extent extent, const KernelSegment& segment);

  const Form& form() const { return form_; }
  void set_code(KernelCodePtr code);

  /// Independent parts of the work; those of different launches may run at the same time.
  std::int64_t parts() const { return parts_; }
  /// Of one part; in about a cycle per unit.
  std::int64_t part_cost() const { return part_cost_; }
  /// Bytes of `scratch` that a run needs.
  std::size_t scratch_bytes() const { return chunks_ * partial_bytes_; }

  /// `pointers`: per access, where the value's storage begins; `numbers`: bits, per number of the program.
  void run_part(std::int64_t part, char* const* pointers, const std::int64_t* numbers, char* scratch) const;
  /// After all parts.
  void finish(char* const* pointers, const std::int64_t* numbers, char* scratch) const;

 private:
  void run_tile(std::int64_t tile, char* const* pointers, const std::int64_t* numbers, char* const* partials) const;
  void place_partials(char* scratch, std::vector<char*>& partials) const;
  void start(const std::vector<char*>& partials) const;
  void add(const std::vector<char*>& to, const std::vector<char*>& from) const;
  /// Whether an access that lies across the lanes is contiguous along the rows.
  bool crosses() const;

  Form form_;
  Extent extent_;
  KernelCodePtr code_;
  std::vector<std::int64_t> offsets_;      ///< per access; bytes
  std::int64_t all_rows_ = 1;
  std::int64_t rows_per_tile_ = 1;
  std::int64_t inner_per_tile_ = 1;        ///< points of the innermost rest dimension
  std::int64_t row_tiles_ = 1;
  std::int64_t inner_tiles_ = 1;
  std::int64_t parts_ = 1;
  std::int64_t part_cost_ = 1;
  std::size_t chunks_ = 0;                 ///< parts with partial results, or 0
  std::size_t partial_bytes_ = 0;          ///< of one part, twice what its sums take
};

/// Runs launches that don't depend on each other on PyTorch's threads; small ones on this one. `pointers` and `numbers` per launch.
/// `allocate` gives scratch memory, aligned to 64 bytes, that lives until the call returns.
struct LaunchArguments {
  std::vector<char*> pointers;
  std::vector<std::int64_t> numbers;
  char* scratch = nullptr;
};
void run_launches(std::span<const KernelLaunch> launches, std::span<LaunchArguments> arguments);

}  // namespace spool::native
