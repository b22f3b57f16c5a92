// Kernels written in few words, and a bench to run them on: through generated code and through the interpreter.
#pragma once

#include <bit>
#include <random>
#include <sstream>

#include "src/engine/native/kernel_run.h"
#include "tests/unit/kernel_reference.h"

namespace spool::test {

struct KernelBuilder {
  Kernel kernel;

  KernelBuilder(std::int32_t rank, std::int32_t kept) {
    kernel.rank = rank;
    kernel.kept = kept;
  }
  std::int32_t add(KernelOp op, DType dtype, std::vector<std::int32_t> operands = {}, std::int64_t immediate = 0) {
    KernelInstruction instruction{op, dtype, {-1, -1, -1}, immediate};
    std::copy(operands.begin(), operands.end(), instruction.operands);
    kernel.body.push_back(instruction);
    return static_cast<std::int32_t>(kernel.body.size()) - 1;
  }
  std::int32_t load(DType dtype = DType::Float32) {
    kernel.accesses.push_back({dtype, false});
    return add(KernelOp::Load, dtype, {}, static_cast<std::int64_t>(kernel.accesses.size()) - 1);
  }
  void store(std::int32_t value, DType dtype = DType::Float32) {
    kernel.accesses.push_back({dtype, true});
    add(KernelOp::Store, dtype, {value}, static_cast<std::int64_t>(kernel.accesses.size()) - 1);
  }
  std::int32_t reduce(KernelOp op, std::int32_t value, KernelOver over, DType dtype = DType::Float32) {
    return add(op, dtype, {value}, static_cast<std::int64_t>(over));
  }
  std::int32_t number(DType dtype) { return add(KernelOp::Number, dtype, {}, kernel.numbers++); }
  std::int32_t constant(double value, DType dtype = DType::Float32) {
    return add(KernelOp::Constant, dtype, {},
               floating(dtype) ? std::bit_cast<std::int64_t>(value) : static_cast<std::int64_t>(value));
  }
  std::int32_t index(std::int64_t dimension) { return add(KernelOp::Index, DType::Int64, {}, dimension); }
};

/// Strides of a contiguous tensor over the dimensions named in `along`, 0 along the others.
inline std::vector<std::int64_t> contiguous(const std::vector<std::int64_t>& sizes, std::vector<std::size_t> along) {
  std::vector<std::int64_t> strides(sizes.size(), 0);
  std::int64_t step = 1;
  for (std::size_t k = along.size(); k-- > 0;) {
    strides[along[k]] = step;
    step *= sizes[along[k]];
  }
  return strides;
}

/// Runs a kernel of one segment both ways, each on memory of its own with the same content.
class KernelTrial {
 public:
  KernelTrial(Kernel kernel, std::vector<std::int64_t> sizes) : kernel_(std::move(kernel)) {
    kernel_.segments.resize(1);
    kernel_.segments[0].sizes = std::move(sizes);
  }

  /// The next access. `shares`: an earlier access whose memory this one uses, or -1.
  void place(std::vector<std::int64_t> strides, std::int64_t offset = 0, int shares = -1) {
    KernelSegment& segment = kernel_.segments[0];
    std::int64_t last = offset;
    for (std::size_t d = 0; d < strides.size(); ++d) {
      last += std::max<std::int64_t>(0, segment.sizes[d] - 1) * strides[d];
    }
    const auto a = segment.places.size();
    segment.places.push_back(
        {.operand = static_cast<std::int32_t>(a), .result = -1, .offset = offset, .strides = std::move(strides)});
    const auto nbytes = static_cast<std::size_t>((last + 1) * size_of(kernel_.accesses[a].dtype));
    if (shares >= 0) {
      memory_of_.push_back(memory_of_[static_cast<std::size_t>(shares)]);
      in_place_ = true;
    } else {
      memory_of_.push_back(contents_.size());
      contents_.emplace_back(nbytes);
      dtypes_.push_back(kernel_.accesses[a].dtype);
    }
  }

  /// Random content: moderate numbers, and with `special` also infinities, NaN and zeros.
  void fill(std::uint32_t seed, bool special = false, double low = -4, double high = 4) {
    std::mt19937 random(seed);
    for (std::size_t m = 0; m < contents_.size(); ++m) {
      const DType dtype = dtypes_[m];
      for (std::size_t at = 0; at < contents_[m].size(); at += static_cast<std::size_t>(size_of(dtype))) {
        Cell cell;
        cell.f = low + (high - low) * (static_cast<double>(random()) / 4294967295.0);
        cell.i = dtype == DType::Bool ? random() % 2 : wrapped(static_cast<std::int64_t>(random() % 41) - 20, dtype);
        if (special && random() % 8 == 0) {
          const double odd[] = {INFINITY, -INFINITY, NAN, 0.0, -0.0, 1.0};
          cell.f = odd[random() % 6];
        }
        write(contents_[m].data() + at, dtype, cell);
      }
    }
  }

  std::vector<std::int64_t>& numbers() { return numbers_; }
  const Kernel& kernel() const { return kernel_; }

  /// What each access of kind store holds afterwards, by the two ways.
  void run() {
    expected_ = contents_;
    got_ = contents_;
    KernelReference(kernel_, kernel_.segments[0], pointers(expected_), numbers_).run();
    native::Extent extent;
    native::Form form = native::make_form(kernel_, kernel_.segments[0], in_place_, native::vector_bytes(), extent);
    std::vector<native::KernelLaunch> launches;
    launches.emplace_back(std::move(form), std::move(extent), kernel_.segments[0]);
    const auto code = native::compile_kernels(std::vector<native::Form>{launches[0].form()});
    launches[0].set_code(code[0]);
    std::vector<char> scratch(launches[0].scratch_bytes() + 64);
    std::vector<native::LaunchArguments> arguments(1);
    arguments[0].pointers = pointers(got_);
    arguments[0].numbers = numbers_;
    arguments[0].scratch = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64;
    native::run_launches(launches, arguments);
  }

  /// The first difference, or an empty string. Integers and bool are compared exactly, floating point within `ulps` units of the
  /// last place of the expected value or of `floor`, whichever is more. `coarsest`: what was computed in, if float64 was not.
  std::string difference(double ulps, double floor = 0, DType coarsest = DType::Float64) const {
    for (std::size_t m = 0; m < contents_.size(); ++m) {
      const DType dtype = dtypes_[m];
      for (std::size_t at = 0; at < contents_[m].size(); at += static_cast<std::size_t>(size_of(dtype))) {
        const Cell want = read(expected_[m].data() + at, dtype);
        const Cell have = read(got_[m].data() + at, dtype);
        const double epsilon = dtype == DType::Float64 && coarsest == DType::Float64 ? 0x1p-52
                               : dtype == DType::Float32 || dtype == DType::Float64  ? 0x1p-23
                               : dtype == DType::Float16                             ? 0x1p-10
                                                                                     : 0x1p-7;
        const double allowed = ulps * epsilon * std::max(std::fabs(want.f), floor);
        const bool same = floating(dtype) ? (std::isnan(want.f) && std::isnan(have.f)) || want.f == have.f ||
                                                std::fabs(want.f - have.f) <= allowed
                                          : want.i == have.i;
        if (!same) {
          std::ostringstream out;
          out.precision(17);
          out << "memory " << m << " (" << name(dtype) << ") at element " << at / static_cast<std::size_t>(size_of(dtype))
              << " of " << contents_[m].size() / static_cast<std::size_t>(size_of(dtype)) << ": expected "
              << (floating(dtype) ? want.f : static_cast<double>(want.i)) << ", got "
              << (floating(dtype) ? have.f : static_cast<double>(have.i)) << "\n"
              << text(kernel_);
          return out.str();
        }
      }
    }
    return {};
  }

 private:
  std::vector<char*> pointers(std::vector<std::vector<char>>& contents) const {
    std::vector<char*> result;
    for (const std::size_t m : memory_of_) {
      result.push_back(contents[m].data());
    }
    return result;
  }

  Kernel kernel_;
  std::vector<std::size_t> memory_of_;  ///< per access
  std::vector<std::vector<char>> contents_, expected_, got_;
  std::vector<DType> dtypes_;  ///< per memory
  std::vector<std::int64_t> numbers_;
  bool in_place_ = false;
};

}  // namespace spool::test
