#include "src/engine/native/kernel_form.h"

#include <algorithm>
#include <numeric>

#include "src/base/error.h"

namespace spool::native {
namespace {

struct Dimension {
  std::int64_t size = 1;
  std::int32_t origin = -1;              ///< of the program; -1 once merged
  std::vector<std::int64_t> strides;     ///< per access, in elements
};

using Dimensions = std::vector<Dimension>;

std::int64_t points(const Dimensions& dimensions) {
  return std::accumulate(dimensions.begin(), dimensions.end(), std::int64_t{1},
                         [](std::int64_t n, const Dimension& dimension) { return n * dimension.size; });
}

/// Whether `a` should lie outside of `b`: positive for yes, 0 for no preference. As ATen's TensorIterator asks.
int outside(const Dimension& a, const Dimension& b, const Kernel& kernel) {
  int votes = 0;
  for (std::size_t i = 0; i < a.strides.size(); ++i) {
    if (a.strides[i] != 0 && b.strides[i] != 0 && a.strides[i] != b.strides[i]) {
      votes += (a.strides[i] > b.strides[i] ? 1 : -1) * (kernel.accesses[i].store ? 3 : 2);
    }
  }
  return votes;
}

void sort(Dimensions& dimensions, const Kernel& kernel) {
  for (std::size_t i = 1; i < dimensions.size(); ++i) {
    for (std::size_t k = i; k > 0 && outside(dimensions[k - 1], dimensions[k], kernel) < 0; --k) {
      std::swap(dimensions[k - 1], dimensions[k]);
    }
  }
}

void merge(Dimensions& dimensions, const std::vector<bool>& indexed) {
  const auto mergeable = [&](const Dimension& outer, const Dimension& inner) {
    const auto seen = [&](const Dimension& d) { return d.origin >= 0 && indexed[static_cast<std::size_t>(d.origin)]; };
    if (seen(outer) || seen(inner)) {
      return false;
    }
    for (std::size_t i = 0; i < outer.strides.size(); ++i) {
      if (outer.strides[i] != inner.strides[i] * inner.size) {
        return false;
      }
    }
    return true;
  };
  Dimensions merged;
  for (Dimension& dimension : dimensions) {
    if (!merged.empty() && mergeable(merged.back(), dimension)) {
      merged.back() = {merged.back().size * dimension.size, -1, dimension.strides};
    } else {
      merged.push_back(std::move(dimension));
    }
  }
  dimensions = std::move(merged);
}

bool has(const Kernel& kernel, KernelOver over) {
  return std::any_of(kernel.body.begin(), kernel.body.end(), [&](const KernelInstruction& instruction) {
    return is_reduction(instruction.op) && instruction.immediate == static_cast<std::int64_t>(over);
  });
}

bool moves(const Dimensions& dimensions, std::int64_t access) {
  return std::any_of(dimensions.begin(), dimensions.end(), [&](const Dimension& dimension) {
    return dimension.size != 1 && dimension.strides[static_cast<std::size_t>(access)] != 0;
  });
}

/// Whether results of reductions over these dimensions are needed only when they are complete, and all else that is stored moves
/// along them. There are no other reductions.
bool complete_only(const Kernel& kernel, const Dimensions& rest) {
  std::vector<bool> point(kernel.body.size()), reduced(kernel.body.size());
  for (std::size_t i = 0; i < kernel.body.size(); ++i) {
    const KernelInstruction& instruction = kernel.body[i];
    for (int k = 0; k < arity(instruction.op); ++k) {
      const auto operand = static_cast<std::size_t>(instruction.operands[k]);
      point[i] = point[i] || point[operand];
      reduced[i] = reduced[i] || reduced[operand];
    }
    switch (instruction.op) {
      case KernelOp::Load: point[i] = moves(rest, instruction.immediate); break;
      case KernelOp::Index:
        point[i] = std::any_of(rest.begin(), rest.end(), [&](const Dimension& d) { return d.origin == instruction.immediate; });
        break;
      case KernelOp::Store:
        point[i] = moves(rest, instruction.immediate);
        if (reduced[i] == point[i]) {
          return false;
        }
        break;
      default: break;
    }
    if (reduced[i] && point[i]) {
      return false;
    }
    if (is_reduction(instruction.op)) {
      point[i] = false;
      reduced[i] = true;
    }
  }
  return true;
}

void turn(Kernel& kernel, KernelOver from, KernelOver to) {
  for (KernelInstruction& instruction : kernel.body) {
    if (is_reduction(instruction.op) && instruction.immediate == static_cast<std::int64_t>(from)) {
      instruction.immediate = static_cast<std::int64_t>(to);
    }
  }
}

int unit_strides(const Dimensions& dimensions, const Dimensions& others) {
  if (dimensions.empty()) {
    return 0;
  }
  constexpr int full = 1000;  // what moves along both groups is nearly all that is read and written
  int votes = 0;
  for (std::size_t a = 0; a < dimensions.back().strides.size(); ++a) {
    const bool both = std::any_of(others.begin(), others.end(), [&](const auto& other) { return other.strides[a] != 0; });
    votes += dimensions.back().strides[a] != 1 ? 0 : both ? full : 1;
  }
  return votes;
}

class Maker {
 public:
  Maker(const Kernel& kernel, const KernelSegment& segment, int vector_bytes)
      : vector_bytes_(vector_bytes), indexed_(segment.sizes.size()) {
    form_.program.rank = kernel.rank;
    form_.program.kept = kernel.kept;
    form_.program.numbers = kernel.numbers;
    form_.program.accesses = kernel.accesses;
    form_.program.body = kernel.body;
    for (const KernelInstruction& instruction : kernel.body) {
      if (instruction.op == KernelOp::Index) {
        indexed_[static_cast<std::size_t>(instruction.immediate)] = true;
      }
    }
    for (std::size_t d = 0; d < segment.sizes.size(); ++d) {
      if (segment.sizes[d] == 1) {
        continue;
      }
      Dimension dimension{segment.sizes[d], static_cast<std::int32_t>(d), {}};
      for (const KernelPlace& place : segment.places) {
        dimension.strides.push_back(place.strides[d]);
      }
      (static_cast<std::int32_t>(d) < kernel.kept ? kept_ : rest_).push_back(std::move(dimension));
    }
  }

  Form make(bool in_place, Extent& extent) {
    form_.in_place = in_place;
    arrange();
    if (rest_.empty()) {
      rest_.push_back({1, -1, std::vector<std::int64_t>(form_.program.accesses.size())});
    }
    if (kept_.empty()) {
      kept_.push_back({1, -1, std::vector<std::int64_t>(form_.program.accesses.size())});
    }
    form_.rest = static_cast<std::int32_t>(rest_.size());
    describe(extent);
    choose_lanes(extent);
    return std::move(form_);
  }

 private:
  void tidy(Dimensions& dimensions) {
    sort(dimensions, form_.program);
    merge(dimensions, indexed_);
  }

  /// All dimensions are alike: the innermost becomes the rest.
  void pool() {
    kept_.insert(kept_.end(), rest_.begin(), rest_.end());
    tidy(kept_);
    rest_.clear();
    if (!kept_.empty()) {
      rest_.push_back(std::move(kept_.back()));
      kept_.pop_back();
    }
    // Of the others, the one along which the most of those that lie across the lanes are contiguous comes next: see KernelLaunch.
    const auto along = [&](const Dimension& dimension) {
      int count = 0;
      for (std::size_t a = 0; a < dimension.strides.size(); ++a) {
        count += dimension.strides[a] == 1 && rest_.back().strides[a] > 1 ? 1 : 0;
      }
      return count;
    };
    if (!kept_.empty()) {
      const auto best =
          std::max_element(kept_.rbegin(), kept_.rend(), [&](const auto& a, const auto& b) { return along(a) < along(b); });
      std::rotate(best.base() - 1, best.base(), kept_.end());
    }
  }

  void arrange() {
    Kernel& program = form_.program;
    bool over_rest = has(program, KernelOver::Rest);
    bool over_kept = has(program, KernelOver::Kept);
    const bool over_all = has(program, KernelOver::All);
    if (!over_rest && !over_kept) {
      pool();
      return;
    }
    if (over_rest != over_kept && !over_all && complete_only(program, over_rest ? rest_ : kept_)) {
      if (over_kept) {
        turn(program, KernelOver::Kept, KernelOver::Rest);
        std::swap(kept_, rest_);
        std::swap(over_kept, over_rest);
      }
      if (kept_.empty()) {
        turn(program, KernelOver::Rest, KernelOver::All);
        pool();
        return;
      }
      tidy(kept_);
      tidy(rest_);
      constexpr std::int64_t few_columns = 32768;
      constexpr std::int64_t many_rows = 64;
      if (unit_strides(kept_, rest_) > unit_strides(rest_, kept_) && points(kept_) <= few_columns && points(rest_) >= many_rows) {
        turn(program, KernelOver::Rest, KernelOver::Kept);
        std::swap(kept_, rest_);
        return;
      }
    }
    tidy(kept_);
    tidy(rest_);
    form_.vertical =
        !over_kept && !over_all && !kept_.empty() && (rest_.empty() || unit_strides(kept_, rest_) > unit_strides(rest_, kept_));
  }

  void describe(Extent& extent) {
    const std::size_t accesses = form_.program.accesses.size();
    form_.coordinates.assign(indexed_.size(), -1);
    const auto note = [&](const Dimension& dimension, int place) {
      // Only those that the program asks for: the others would tell equal code apart.
      if (dimension.origin >= 0 && indexed_[static_cast<std::size_t>(dimension.origin)]) {
        form_.coordinates[static_cast<std::size_t>(dimension.origin)] = static_cast<std::int8_t>(place);
      }
    };
    note(kept_.back(), 0);
    extent.rows = kept_.back().size;
    extent.row_dimension = kept_.back().origin;
    for (std::size_t d = 0; d + 1 < kept_.size(); ++d) {
      extent.outer.push_back(kept_[d].size);
      extent.outer_dimensions.push_back(kept_[d].origin);
    }
    for (std::size_t d = 0; d < rest_.size(); ++d) {
      note(rest_[d], static_cast<int>(1 + d));
      extent.rest.push_back(rest_[d].size);
    }
    extent.inner_dimension = rest_.back().origin;
    for (std::size_t a = 0; a < accesses; ++a) {
      const std::int64_t size = element_size(form_.program.accesses[a].dtype);
      for (std::size_t d = 0; d + 1 < kept_.size(); ++d) {
        extent.outer_strides.push_back(kept_[d].strides[a] * size);
      }
      const auto add = [&](const Dimension& dimension, bool lanes) {
        const std::int64_t stride = dimension.size == 1 ? 0 : dimension.strides[a];
        extent.strides.push_back(stride * size);
        form_.strides.push_back(stride == 0 ? 0 : stride == 1 && lanes ? 1 : 2);
      };
      add(kept_.back(), form_.vertical);
      for (std::size_t d = 0; d < rest_.size(); ++d) {
        add(rest_[d], !form_.vertical && d + 1 == rest_.size());
      }
    }
  }

  void choose_lanes(const Extent& extent) {
    const auto& body = form_.program.body;
    std::vector<bool> fixed(body.size());
    std::int64_t floating = 0;
    std::int64_t integer = 1;
    int work = 0;
    bool reduces = false;
    for (std::size_t i = 0; i < body.size(); ++i) {
      const KernelInstruction& instruction = body[i];
      fixed[i] = instruction.op == KernelOp::Number || instruction.op == KernelOp::Constant;
      if (const int operands = arity(instruction.op); operands > 0) {
        fixed[i] = true;
        for (int k = 0; k < operands; ++k) {
          fixed[i] = fixed[i] && fixed[static_cast<std::size_t>(instruction.operands[k])];
        }
      }
      reduces = reduces || is_reduction(instruction.op);
      if (fixed[i]) {
        continue;
      }
      ++work;
      if (is_floating(instruction.dtype)) {
        floating = std::max(floating, is_half(instruction.dtype) ? 4 : element_size(instruction.dtype));
      } else {
        integer = std::max(integer, element_size(instruction.dtype));
      }
    }
    const auto native = static_cast<std::int32_t>(vector_bytes_ / (floating != 0 ? floating : integer));
    const std::int64_t length = form_.vertical ? extent.rows : extent.rest.back();
    form_.lanes = native * (!reduces ? 1 : work <= 8 ? 4 : work <= 16 ? 2 : 1);
    while (form_.lanes > native && form_.lanes > length) {
      form_.lanes /= 2;
    }
  }

  Form form_;
  int vector_bytes_;
  Dimensions kept_, rest_;
  std::vector<bool> indexed_;
};

}  // namespace

bool is_half(DType dtype) { return dtype == DType::Float16 || dtype == DType::BFloat16; }
bool is_floating(DType dtype) { return dtype == DType::Float32 || dtype == DType::Float64 || is_half(dtype); }

std::int64_t element_size(DType dtype) {
  switch (dtype) {
    case DType::UInt8:
    case DType::Int8:
    case DType::Bool: return 1;
    case DType::Int16:
    case DType::Float16:
    case DType::BFloat16: return 2;
    case DType::Int32:
    case DType::Float32: return 4;
    case DType::Int64:
    case DType::Float64: return 8;
    default: fail(ErrorKind::Internal, "[compile] ", name(dtype), " can't be in a kernel.");
  }
}

bool Form::reduces(KernelOver over) const { return has(program, over); }

std::string Form::key() const {
  std::string key = text(program);
  key += "rest " + std::to_string(rest) + " lanes " + std::to_string(lanes) + (vertical ? " vertical" : "") +
         (in_place ? " in place" : "") + " strides ";
  for (const std::uint8_t stride : strides) {
    key += static_cast<char>('0' + stride);
  }
  key += " coordinates";
  for (const std::int8_t coordinate : coordinates) {
    key += ' ' + std::to_string(coordinate);
  }
  return key;
}

std::int64_t Extent::all_rows() const {
  return std::accumulate(outer.begin(), outer.end(), rows, [](std::int64_t n, std::int64_t size) { return n * size; });
}

std::int64_t Extent::rest_points() const {
  return std::accumulate(rest.begin(), rest.end(), std::int64_t{1}, [](std::int64_t n, std::int64_t size) { return n * size; });
}

Form make_form(const Kernel& kernel, const KernelSegment& segment, bool in_place, int vector_bytes, Extent& extent) {
  return Maker(kernel, segment, vector_bytes).make(in_place, extent);
}

std::vector<Level> levels(const Form& form) {
  const auto& body = form.program.body;
  std::vector<Level> result(body.size(), Level::Uniform);
  const auto place = [&](std::int64_t access) {
    for (int d = 1; d <= form.rest; ++d) {
      if (form.stride(static_cast<std::size_t>(access), d) != 0) {
        return Level::Point;
      }
    }
    return form.stride(static_cast<std::size_t>(access), 0) != 0 ? Level::Row : Level::Uniform;
  };
  for (std::size_t i = 0; i < body.size(); ++i) {
    const KernelInstruction& instruction = body[i];
    Level level = Level::Uniform;
    for (int k = 0; k < arity(instruction.op); ++k) {
      level = std::max(level, result[static_cast<std::size_t>(instruction.operands[k])]);
    }
    if (instruction.op == KernelOp::Load) {
      level = place(instruction.immediate);
    } else if (instruction.op == KernelOp::Index) {
      const int coordinate = form.coordinates[static_cast<std::size_t>(instruction.immediate)];
      level = coordinate < 0 ? Level::Uniform : coordinate == 0 ? Level::Row : Level::Point;
    } else if (instruction.op == KernelOp::Store) {
      const Level at = place(instruction.immediate);
      level = level == Level::AfterAll && at == Level::Point ? Level::AfterKept : std::max(level, at);
    } else if (is_reduction(instruction.op)) {
      SPOOL_CHECK(level < Level::AfterAll, Internal, "[compile] v", i, " reduces a value that is complete only after all rows:\n",
                  text(form.program));
      const auto over = static_cast<KernelOver>(instruction.immediate);
      // Over kept, what is the same along the rest gives a single result.
      const bool single = over == KernelOver::All || (over == KernelOver::Kept && level != Level::Point);
      level = over == KernelOver::Rest ? Level::Row : single ? Level::AfterAll : Level::AfterKept;
    }
    result[i] = level;
  }
  return result;
}

}  // namespace spool::native
