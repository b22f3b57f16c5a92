// Fused kernels on blocked values: splits the dimensions of a kernel's space where channels do, and gives each place its strides.
#include <algorithm>

#include "src/passes/layout.h"

namespace spool {
namespace {

/// One loop that a dimension of the space becomes. `lane`: it walks through a block.
struct Loop {
  std::int64_t size = 1;
  std::int64_t stride = 0;  ///< of the place that it was found for
  bool lane = false;
};

bool same_loops(const std::vector<Loop>& a, const std::vector<Loop>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Loop& x, const Loop& y) { return x.size == y.size && x.lane == y.lane; });
}

/// How a place moves over a value that becomes blocked.
class Walk {
 public:
  Walk(const Geometry& from, std::int64_t block)
      : from_(from), to_(blocked(from, block)), block_(block), extent_(from.sizes.size(), 1) {
    for (std::size_t d = 0; d < from.sizes.size(); ++d) {
      if (from.sizes[d] != 1) {
        order_.push_back(d);
      }
    }
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return from.strides[a] < from.strides[b]; });
  }

  /// The loops, outermost first, that a dimension of that size and stride becomes; none if it can't be said. Empty for a dimension
  /// along which the place does not move.
  std::optional<std::vector<Loop>> loops(std::int64_t size, std::int64_t stride) {
    std::vector<Loop> inner_first;
    if (size == 1 || stride == 0) {
      return inner_first;
    }
    auto at = std::find_if(order_.begin(), order_.end(), [&](std::size_t d) { return from_.strides[d] == stride; });
    for (std::int64_t left = size; left > 1; ++at) {
      if (at == order_.end()) {
        return std::nullopt;
      }
      const std::int64_t whole = from_.sizes[*at];
      if (left > whole && left % whole != 0) {
        return std::nullopt;
      }
      const std::int64_t count = std::min(left, whole);
      left /= count;
      if (extent_[*at] != 1 || !add(*at, count, inner_first)) {
        return std::nullopt;
      }
      extent_[*at] = count;
    }
    std::reverse(inner_first.begin(), inner_first.end());
    return inner_first;
  }

  /// Where the place begins; none if it leaves a dimension on the way or begins inside a block that it walks through.
  std::optional<std::int64_t> offset(std::int64_t plain) const {
    std::int64_t offset = 0;
    for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
      const std::int64_t coordinate = plain / from_.strides[*at];
      plain %= from_.strides[*at];
      if (coordinate + extent_[*at] > from_.sizes[*at]) {
        return std::nullopt;
      }
      if (*at == 1) {
        if (extent_[1] != 1 && coordinate % block_ != 0) {
          return std::nullopt;
        }
        offset += coordinate / block_ * to_.strides[1] + coordinate % block_;
      } else {
        offset += coordinate * to_.strides[*at];
      }
    }
    return plain == 0 ? std::optional(offset) : std::nullopt;
  }

 private:
  bool add(std::size_t dimension, std::int64_t count, std::vector<Loop>& inner_first) const {
    if (dimension == 1) {
      if (count % block_ != 0) {
        return false;
      }
      inner_first.push_back({block_, 1, true});
      count /= block_;
      if (count == 1) {
        return true;
      }
    }
    const std::int64_t stride = to_.strides[dimension];
    // Neighbours that lie one behind the other are one loop.
    if (!inner_first.empty() && !inner_first.back().lane && inner_first.back().stride * inner_first.back().size == stride) {
      inner_first.back().size *= count;
    } else {
      inner_first.push_back({count, stride, false});
    }
    return true;
  }

  const Geometry& from_;
  const Geometry to_;
  const std::int64_t block_;
  std::vector<std::size_t> order_;  ///< dimensions of more than one element, innermost first
  std::vector<std::int64_t> extent_;  ///< elements that have been walked, by dimension
};

/// A segment's space while it is rewritten: one entry for each dimension, with the strides of all places.
struct Dimension {
  std::int64_t size = 1;
  bool lane = false;
  std::vector<std::int64_t> strides;
};

class Reblocker {
 public:
  Reblocker(const Kernel& kernel, const std::vector<const Geometry*>& from, std::int64_t block)
      : kernel_(kernel), from_(from), block_(block) {}

  std::optional<Kernel> run() {
    const bool indexed = std::any_of(kernel_.body.begin(), kernel_.body.end(),
                                     [](const KernelInstruction& instruction) { return instruction.op == KernelOp::Index; });
    if (indexed || kernel_.segments.size() != 1) {
      return std::nullopt;
    }
    Kernel result = kernel_;
    KernelSegment& segment = result.segments.front();
    if (!split(segment)) {
      return std::nullopt;
    }
    const auto kept = std::size_t(kernel_.kept);
    std::vector<Dimension> outer = tidy(0, kept);
    std::vector<Dimension> inner = tidy(kept, split_.size());
    result.kept = static_cast<std::int32_t>(outer.size());
    outer.insert(outer.end(), inner.begin(), inner.end());
    result.rank = static_cast<std::int32_t>(outer.size());
    segment.sizes.clear();
    for (std::size_t p = 0; p < segment.places.size(); ++p) {
      segment.places[p].strides.clear();
    }
    for (const Dimension& dimension : outer) {
      segment.sizes.push_back(dimension.size);
      for (std::size_t p = 0; p < segment.places.size(); ++p) {
        segment.places[p].strides.push_back(dimension.strides[p]);
      }
    }
    return result;
  }

 private:
  /// Fills `split_`: for each dimension of the space, those that it becomes. Sets the places' offsets.
  bool split(KernelSegment& segment) {
    std::vector<std::optional<Walk>> walks(segment.places.size());
    for (std::size_t p = 0; p < segment.places.size(); ++p) {
      if (from_[p] != nullptr) {
        walks[p].emplace(*from_[p], block_);
      }
    }
    for (std::size_t d = 0; d < segment.sizes.size(); ++d) {
      std::vector<Loop> common;
      std::vector<std::vector<Loop>> own(segment.places.size());
      for (std::size_t p = 0; p < segment.places.size(); ++p) {
        if (!walks[p]) {
          continue;
        }
        auto found = walks[p]->loops(segment.sizes[d], segment.places[p].strides[d]);
        if (!found || (!found->empty() && !common.empty() && !same_loops(*found, common))) {
          return false;
        }
        own[p] = std::move(*found);
        common = own[p].empty() ? common : own[p];
      }
      if (common.empty()) {
        common = {{segment.sizes[d], 0, false}};
      }
      add(segment, d, common, own);
    }
    for (std::size_t p = 0; p < segment.places.size(); ++p) {
      if (walks[p]) {
        const auto offset = walks[p]->offset(segment.places[p].offset);
        if (!offset) {
          return false;
        }
        segment.places[p].offset = *offset;
      }
    }
    return true;
  }

  void add(const KernelSegment& segment, std::size_t d, const std::vector<Loop>& common,
           const std::vector<std::vector<Loop>>& own) {
    std::vector<Dimension> dimensions(common.size());
    std::int64_t inside = 1;  // elements of the loops further in
    for (std::size_t i = common.size(); i-- > 0;) {
      dimensions[i] = {common[i].size, common[i].lane, {}};
      for (std::size_t p = 0; p < segment.places.size(); ++p) {
        dimensions[i].strides.push_back(own[p].empty() ? (from_[p] == nullptr ? segment.places[p].strides[d] * inside : 0)
                                                       : own[p][i].stride);
      }
      inside *= common[i].size;
    }
    split_.push_back(std::move(dimensions));
  }

  /// The loops of dimensions [begin, end): lanes innermost, where vectors are; then those joined that all places walk through in one go.
  std::vector<Dimension> tidy(std::size_t begin, std::size_t end) const {
    std::vector<Dimension> loops;
    for (std::size_t d = begin; d < end; ++d) {
      loops.insert(loops.end(), split_[d].begin(), split_[d].end());
    }
    std::stable_partition(loops.begin(), loops.end(), [](const Dimension& loop) { return !loop.lane; });
    std::vector<Dimension> joined;
    for (Dimension& loop : loops) {
      if (!joined.empty() && joins(joined.back(), loop)) {
        for (std::size_t p = 0; p < loop.strides.size(); ++p) {
          loop.strides[p] = loop.size == 1 ? joined.back().strides[p] : loop.strides[p];
        }
        loop.size *= joined.back().size;
        joined.back() = std::move(loop);
      } else {
        joined.push_back(std::move(loop));
      }
    }
    return joined;
  }

  static bool joins(const Dimension& outer, const Dimension& inner) {
    if (outer.size == 1 || inner.size == 1) {
      return true;
    }
    for (std::size_t p = 0; p < outer.strides.size(); ++p) {
      if (outer.strides[p] != inner.strides[p] * inner.size) {
        return false;
      }
    }
    return true;
  }

  const Kernel& kernel_;
  const std::vector<const Geometry*>& from_;
  const std::int64_t block_;
  std::vector<std::vector<Dimension>> split_;
};

}  // namespace

std::optional<Kernel> reblocked(const Kernel& kernel, const std::vector<const Geometry*>& from, std::int64_t block) {
  return Reblocker(kernel, from, block).run();
}

}  // namespace spool
