#include "src/engine/native/kernel_run.h"

#include <ATen/Parallel.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "src/base/error.h"

#ifndef _OPENMP
#error "at::parallel_for needs OpenMP to run on more than one thread"
#endif

namespace spool::native {
namespace {

/// Points of a tile, about: enough to make a call cheap, few enough that its rows stay in the nearest cache.
constexpr std::int64_t tile_points = 8192;
/// Points along the lanes where an access lies across them: so few that the cache lines that it touches serve all rows of the tile.
constexpr std::int64_t crossing_points = 128;
/// Rows that are added up one after the other before their sum is put aside: keeps sums over many rows accurate.
constexpr std::int64_t rows_at_once = 128;
/// Work below which more threads don't pay, in cycles.
constexpr std::int64_t grain_cost = 32768;
constexpr std::int64_t most_chunks = 64;
/// Fewer rows in a part of their own don't pay for its partial results.
constexpr std::int64_t least_rows = 64;
constexpr std::size_t most_partial_bytes = std::size_t{4} << 20U;
constexpr std::size_t alignment = 64;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::size_t aligned(std::size_t nbytes) { return (nbytes + alignment - 1) / alignment * alignment; }

/// Cycles that a point takes, roughly.
double point_cost(const Form& form) {
  double cost = 0;
  for (const KernelInstruction& instruction : form.program.body) {
    const bool memory = instruction.op == KernelOp::Load || instruction.op == KernelOp::Store;
    const bool heavy = instruction.op >= KernelOp::Exp && instruction.op <= KernelOp::Lgamma;
    cost += memory ? 0.5 : heavy || instruction.op == KernelOp::Pow ? 2 : 0.125;
  }
  return cost;
}

template <class T>
void combine_as(KernelOp op, T* __restrict to, const T* __restrict from, std::int64_t count) {
  const auto each = [&](auto combine) {
    for (std::int64_t i = 0; i < count; ++i) {
      to[i] = static_cast<T>(combine(to[i], from[i]));
    }
  };
  switch (op) {
    case KernelOp::ReduceSum: return each([](T a, T b) { return a + b; });
    case KernelOp::ReduceProduct: return each([](T a, T b) { return a * b; });
    case KernelOp::ReduceMaximum: return each([](T a, T b) { return a != a || a > b ? a : b; });
    default: return each([](T a, T b) { return a != a || a < b ? a : b; });
  }
}

template <class T>
void fill_as(KernelOp op, T* to, std::int64_t count) {
  using Limits = std::numeric_limits<T>;
  T value = 0;
  switch (op) {
    case KernelOp::ReduceSum: break;
    case KernelOp::ReduceProduct: value = 1; break;
    case KernelOp::ReduceMaximum: value = Limits::has_infinity ? -Limits::infinity() : Limits::lowest(); break;
    default: value = Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
  std::fill_n(to, count, value);
}

template <class Visit>
void with_type(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::Bool: return visit(bool{});
    case DType::UInt8: return visit(std::uint8_t{});
    case DType::Int8: return visit(std::int8_t{});
    case DType::Int16: return visit(std::int16_t{});
    case DType::Int32: return visit(std::int32_t{});
    case DType::Int64: return visit(std::int64_t{});
    case DType::Float32: return visit(float{});
    case DType::Float64: return visit(double{});
    default: fail(ErrorKind::Internal, "[compile] ", name(dtype), " can't be reduced in a kernel.");
  }
}

}  // namespace

KernelLaunch::KernelLaunch(Form form, Extent extent, const KernelSegment& segment)
    : form_(std::move(form)), extent_(std::move(extent)) {
  for (std::size_t a = 0; a < segment.places.size(); ++a) {
    offsets_.push_back(segment.places[a].offset * element_size(form_.program.accesses[a].dtype));
  }
  all_rows_ = extent_.all_rows();
  const std::int64_t inner = extent_.rest.back();
  const std::int64_t row_points = extent_.rest_points();
  const std::vector<Level> level = levels(form_);
  bool splits = !form_.vertical && !form_.reduces(KernelOver::Rest);
  for (std::size_t i = 0; i < level.size(); ++i) {
    const KernelInstruction& instruction = form_.program.body[i];
    splits = splits && level[i] != Level::AfterKept && !(instruction.op == KernelOp::Store && level[i] < Level::Point) &&
             !(is_reduction(instruction.op) && level[static_cast<std::size_t>(instruction.operands[0])] < Level::Point);
  }
  inner_per_tile_ = splits ? std::min(inner, crosses() ? crossing_points : tile_points) : inner;
  inner_tiles_ = inner == 0 ? 1 : ceil_div(inner, inner_per_tile_);
  rows_per_tile_ = std::max<std::int64_t>(1, tile_points / std::max<std::int64_t>(1, row_points / inner_tiles_));
  if (form_.vertical) {
    rows_per_tile_ = ceil_div(rows_per_tile_, form_.lanes) * form_.lanes;
  }
  row_tiles_ = ceil_div(all_rows_, rows_per_tile_);
  const std::int64_t tiles = row_tiles_ * inner_tiles_;
  parts_ = tiles;
  const std::vector<Partial> partial = partials(form_);
  if (!partial.empty()) {
    for (const Partial& each : partial) {
      partial_bytes_ += aligned(static_cast<std::size_t>((each.each ? row_points : 1) * element_size(each.dtype)));
    }
    const auto fit = static_cast<std::int64_t>(most_partial_bytes / std::max<std::size_t>(1, partial_bytes_));
    const bool each_point = std::any_of(partial.begin(), partial.end(), [](const Partial& one) { return one.each; });
    const std::int64_t worth = each_point ? std::max<std::int64_t>(2, all_rows_ / least_rows) * inner_tiles_ : tiles;
    parts_ = std::max<std::int64_t>(1, std::min({tiles, most_chunks, worth, std::max<std::int64_t>(2, fit)}));
    chunks_ = static_cast<std::size_t>(parts_);
    partial_bytes_ *= 2;  // one to add up in, one to put aside in
  }
  const double points = static_cast<double>(all_rows_) * static_cast<double>(row_points);
  part_cost_ = static_cast<std::int64_t>(points * point_cost(form_) / static_cast<double>(std::max<std::int64_t>(1, parts_))) + 1;
}

bool KernelLaunch::crosses() const {
  for (std::size_t a = 0; a < offsets_.size(); ++a) {
    const std::int64_t size = element_size(form_.program.accesses[a].dtype);
    const std::int64_t* strides = extent_.strides.data() + a * static_cast<std::size_t>(1 + form_.rest);
    if (strides[0] == size && strides[form_.rest] > size) {
      return true;
    }
  }
  return false;
}

void KernelLaunch::set_code(KernelCodePtr code) { code_ = std::move(code); }

void KernelLaunch::place_partials(char* scratch, std::vector<char*>& partials) const {
  partials.clear();
  for (const Partial& partial : code_->partials) {
    partials.push_back(scratch);
    scratch += aligned(static_cast<std::size_t>((partial.each ? extent_.rest_points() : 1) * element_size(partial.dtype)));
  }
}

void KernelLaunch::run_part(std::int64_t part, char* const* pointers, const std::int64_t* numbers, char* scratch) const {
  if (chunks_ == 0) {
    run_tile(part, pointers, numbers, nullptr);
    return;
  }
  std::vector<char*> aside, sums;
  char* own = scratch + static_cast<std::size_t>(part) * partial_bytes_;
  place_partials(own, aside);
  place_partials(own + partial_bytes_ / 2, sums);
  start(aside);
  const std::int64_t tiles = row_tiles_ * inner_tiles_;
  const std::int64_t end = tiles * (part + 1) / parts_;
  const std::int64_t at_once = std::max<std::int64_t>(1, rows_at_once / rows_per_tile_);
  for (std::int64_t tile = tiles * part / parts_; tile < end; tile += at_once) {
    start(sums);
    for (std::int64_t i = tile; i < std::min(end, tile + at_once); ++i) {
      run_tile(i, pointers, numbers, sums.data());
    }
    add(aside, sums);
  }
}

void KernelLaunch::start(const std::vector<char*>& partials) const {
  for (std::size_t i = 0; i < partials.size(); ++i) {
    const Partial& partial = code_->partials[i];
    const std::int64_t count = partial.each ? extent_.rest_points() : 1;
    with_type(partial.dtype, [&](auto zero) { fill_as(partial.op, reinterpret_cast<decltype(zero)*>(partials[i]), count); });
  }
}

void KernelLaunch::add(const std::vector<char*>& to, const std::vector<char*>& from) const {
  for (std::size_t i = 0; i < to.size(); ++i) {
    const Partial& partial = code_->partials[i];
    const std::int64_t count = partial.each ? extent_.rest_points() : 1;
    with_type(partial.dtype, [&](auto zero) {
      using T = decltype(zero);
      combine_as(partial.op, reinterpret_cast<T*>(to[i]), reinterpret_cast<const T*>(from[i]), count);
    });
  }
}

void KernelLaunch::finish(char* const* pointers, const std::int64_t* numbers, char* scratch) const {
  if (code_->finish == nullptr) {
    return;
  }
  std::vector<char*> total, next;
  place_partials(scratch, total);
  for (std::size_t chunk = 1; chunk < chunks_; ++chunk) {
    place_partials(scratch + chunk * partial_bytes_, next);
    add(total, next);
  }
  c10::SmallVector<char*, 16> places(offsets_.size());
  for (std::size_t a = 0; a < offsets_.size(); ++a) {
    places[a] = pointers[a] + offsets_[a];
  }
  const std::vector<std::int64_t> coordinates(form_.coordinates.size());
  const KernelCall call{places.data(), extent_.strides.data(), extent_.rest.data(), numbers, coordinates.data(), total.data(), 1};
  code_->finish(&call);
}

void KernelLaunch::run_tile(std::int64_t tile, char* const* pointers, const std::int64_t* numbers, char* const* partials) const {
  const std::size_t accesses = offsets_.size();
  const std::size_t outers = extent_.outer.size();
  const auto rest = static_cast<std::size_t>(form_.rest);
  const std::int64_t inner_begin = tile % inner_tiles_ * inner_per_tile_;
  std::int64_t row = tile / inner_tiles_ * rows_per_tile_;
  const std::int64_t rows_end = std::min(all_rows_, row + rows_per_tile_);
  c10::SmallVector<char*, 16> places(accesses);
  c10::SmallVector<std::int64_t, 8> sizes(extent_.rest.begin(), extent_.rest.end());
  sizes.back() = std::min(inner_per_tile_, extent_.rest.back() - inner_begin);
  c10::SmallVector<std::int64_t, 8> coordinates(form_.coordinates.size(), std::int64_t{0});
  if (extent_.inner_dimension >= 0) {
    coordinates[static_cast<std::size_t>(extent_.inner_dimension)] = inner_begin;
  }
  KernelCall call{places.data(), extent_.strides.data(), sizes.data(), numbers, coordinates.data(), partials, 0};
  while (row < rows_end) {
    const std::int64_t first = row % extent_.rows;
    call.rows = std::min(extent_.rows - first, rows_end - row);
    for (std::size_t a = 0; a < accesses; ++a) {
      const std::int64_t* strides = extent_.strides.data() + a * (1 + rest);
      places[a] = pointers[a] + offsets_[a] + first * strides[0] + inner_begin * strides[rest];
    }
    std::int64_t left = row / extent_.rows;
    for (std::size_t d = outers; d-- > 0;) {
      const std::int64_t at = left % extent_.outer[d];
      left /= extent_.outer[d];
      for (std::size_t a = 0; a < accesses; ++a) {
        places[a] += at * extent_.outer_strides[a * outers + d];
      }
      if (extent_.outer_dimensions[d] >= 0) {
        coordinates[static_cast<std::size_t>(extent_.outer_dimensions[d])] = at;
      }
    }
    if (extent_.row_dimension >= 0) {
      coordinates[static_cast<std::size_t>(extent_.row_dimension)] = first;
    }
    code_->run(&call);
    row += call.rows;
  }
}

void run_launches(std::span<const KernelLaunch> launches, std::span<LaunchArguments> arguments) {
  std::int64_t cost = 0;
  for (const KernelLaunch& launch : launches) {
    cost += launch.parts() * launch.part_cost();
  }
  const auto run_all = [&](std::size_t i, std::int64_t begin, std::int64_t end) {
    const LaunchArguments& own = arguments[i];
    for (std::int64_t part = begin; part < end; ++part) {
      launches[i].run_part(part, own.pointers.data(), own.numbers.data(), own.scratch);
    }
  };
  if (cost < 2 * grain_cost || at::get_num_threads() == 1 || at::in_parallel_region()) {
    for (std::size_t i = 0; i < launches.size(); ++i) {
      run_all(i, 0, launches[i].parts());
    }
  } else {
    // Ranges of cost go to threads; a part belongs to the thread in whose range it begins.
    at::parallel_for(0, cost, grain_cost, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t start = 0;
      for (std::size_t i = 0; i < launches.size() && start < end; ++i) {
        const std::int64_t each = launches[i].part_cost();
        const std::int64_t whole = each * launches[i].parts();
        if (start + whole > begin) {
          const std::int64_t from = begin <= start ? 0 : ceil_div(begin - start, each);
          const std::int64_t to = std::min(launches[i].parts(), ceil_div(end - start, each));
          run_all(i, from, to);
        }
        start += whole;
      }
    });
  }
  for (std::size_t i = 0; i < launches.size(); ++i) {
    launches[i].finish(arguments[i].pointers.data(), arguments[i].numbers.data(), arguments[i].scratch);
  }
}

}  // namespace spool::native
