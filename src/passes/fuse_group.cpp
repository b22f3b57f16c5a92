#include "src/passes/fuse_group.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace spool {
namespace {

/// Bounds on one kernel, so that compiling it stays quick and its operands fit the machine's registers and prefetchers.
constexpr std::size_t most_instructions = 320;
constexpr std::size_t most_storages = 96;

using Sizes = std::vector<std::int64_t>;

/// Strides of dimensions that each split into `pieces` (outermost first) of a finer space of `sizes`.
Sizes restrided(const Sizes& strides, const std::vector<std::vector<std::int32_t>>& pieces, const Sizes& sizes) {
  Sizes fine(sizes.size(), 0);
  for (std::size_t d = 0; d < pieces.size(); ++d) {
    std::int64_t stride = strides[d];
    for (std::size_t p = pieces[d].size(); p-- > 0;) {
      const auto piece = static_cast<std::size_t>(pieces[d][p]);
      fine[piece] = stride;
      stride *= sizes[piece];
    }
  }
  return fine;
}

}  // namespace

/// How two groups' spaces become one. For each side, `pieces[d]` are the dimensions of the joint space that its dimension d splits
/// into.
struct FuseGroup::Fit {
  Sizes sizes;
  std::vector<std::vector<std::int32_t>> mine;
  std::vector<std::vector<std::int32_t>> other;
  std::int32_t kept = -1;
};

FuseGroup::FuseGroup(std::int32_t node, Lowered lowered, const std::vector<ValueId>& root) : sizes_(lowered.sizes) {
  const std::size_t rank = sizes_.size();
  const auto reduced = static_cast<std::size_t>(std::count(lowered.reduced.begin(), lowered.reduced.end(), 1));
  reduces_ = lowered.reduces;
  bool complete = false;
  if (reduces_ && reduced != rank && reduced != 0) {
    const bool suffix = std::all_of(lowered.reduced.end() - static_cast<std::ptrdiff_t>(reduced), lowered.reduced.end(),
                                    [](std::uint8_t r) { return r != 0; });
    const bool prefix = std::all_of(lowered.reduced.begin(), lowered.reduced.begin() + static_cast<std::ptrdiff_t>(reduced),
                                    [](std::uint8_t r) { return r != 0; });
    complete = prefix;
    kept_ = static_cast<std::int32_t>(prefix ? reduced : rank - reduced);
    if (!suffix && !prefix) {
      std::vector<std::size_t> order(rank);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_partition(order.begin(), order.end(), [&](std::size_t d) { return lowered.reduced[d] == 0; });
      const auto permute = [&](auto& list) {
        auto old = list;
        for (std::size_t d = 0; d < rank; ++d) {
          list[d] = old[order[d]];
        }
      };
      permute(sizes_);
      permute(lowered.reduced);
      for (LoweredPlace& read : lowered.reads) {
        permute(read.strides);
      }
      for (LoweredWrite& write : lowered.writes) {
        permute(write.place.strides);
      }
    }
  } else if (reduces_) {
    complete = true;
  }
  instructions_ = lowered.body.size();
  for (const LoweredPlace& read : lowered.reads) {
    note(read, false, false, root);
  }
  for (const LoweredWrite& write : lowered.writes) {
    note(write.place, true, complete, root);
  }
  members_.push_back({node, std::move(lowered)});
}

std::int64_t FuseGroup::points() const {
  return std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{1}, std::multiplies<>());
}

void FuseGroup::note(const LoweredPlace& place, bool produced, bool complete, const std::vector<ValueId>& root) {
  const auto [found, added] = storages_.try_emplace(root[static_cast<std::size_t>(place.value)],
                                                    Storage{place.offset, place.strides, false, produced, complete});
  if (!added) {
    Storage& storage = found->second;
    storage.several |= storage.offset != place.offset || storage.strides != place.strides;
    storage.produced |= produced;
    storage.complete |= complete;
  }
}

/// Finds the joint space through a storage that both touch, best one along whose elements both move most.
bool FuseGroup::find_fit(const FuseGroup& other, Fit& fit) const {
  const bool swap = storages_.size() > other.storages_.size();
  const auto& fewer = swap ? other.storages_ : storages_;
  const auto& more = swap ? storages_ : other.storages_;
  const Storage* mine = nullptr;
  const Storage* theirs = nullptr;
  std::int64_t best = 0;
  ValueId chosen = no_value;
  for (const auto& [value, storage] : fewer) {
    const auto found = more.find(value);
    if (found == more.end()) {
      continue;
    }
    const Storage& here = swap ? found->second : storage;
    const Storage& there = swap ? storage : found->second;
    if (here.several || there.several || here.offset != there.offset) {
      continue;
    }
    std::int64_t moved = here.produced || there.produced ? 2 : 1;
    for (std::size_t d = 0; d < sizes_.size(); ++d) {
      moved *= here.strides[d] != 0 ? sizes_[d] : 1;
    }
    if (moved > best || (moved == best && value < chosen)) {
      best = moved;
      chosen = value;
      mine = &here;
      theirs = &there;
    }
  }
  if (mine == nullptr) {
    return false;
  }

  // Matched from the innermost dimension outwards; each match is a dimension of the joint space.
  struct Match {
    std::int32_t a;
    std::int32_t b;
    std::int64_t size;
  };
  std::vector<Match> matches;
  const auto match = [&](const std::vector<std::int32_t>& dims_a, const std::vector<std::int32_t>& dims_b, bool by_stride) {
    std::size_t i = dims_a.size();
    std::size_t j = dims_b.size();
    std::int64_t left_a = 1;
    std::int64_t left_b = 1;
    std::int64_t stride_a = 0;
    std::int64_t stride_b = 0;
    while (true) {
      if (left_a == 1 && i > 0) {
        --i;
        left_a = sizes_[static_cast<std::size_t>(dims_a[i])];
        stride_a = mine->strides[static_cast<std::size_t>(dims_a[i])];
      }
      if (left_b == 1 && j > 0) {
        --j;
        left_b = other.sizes_[static_cast<std::size_t>(dims_b[j])];
        stride_b = theirs->strides[static_cast<std::size_t>(dims_b[j])];
      }
      if (left_a == 1 && left_b == 1) {
        return true;
      }
      const std::int64_t size = std::min(left_a, left_b);
      if (size == 1 || std::max(left_a, left_b) % size != 0 || (by_stride && stride_a != stride_b)) {
        return false;
      }
      matches.push_back({dims_a[i], dims_b[j], size});
      left_a /= size;
      left_b /= size;
      stride_a *= size;
      stride_b *= size;
    }
  };
  const auto dims = [](const Sizes& strides, bool moving) {
    std::vector<std::int32_t> found;
    for (std::size_t d = 0; d < strides.size(); ++d) {
      if ((strides[d] != 0) == moving) {
        found.push_back(static_cast<std::int32_t>(d));
      }
    }
    if (moving) {
      std::stable_sort(found.begin(), found.end(), [&](std::int32_t a, std::int32_t b) {
        return strides[static_cast<std::size_t>(a)] > strides[static_cast<std::size_t>(b)];
      });
    }
    return found;
  };
  if (!match(dims(mine->strides, true), dims(theirs->strides, true), true)) {
    return false;
  }
  const std::vector<std::int32_t> still_mine = dims(mine->strides, false);
  const std::vector<std::int32_t> still_other = dims(theirs->strides, false);
  if (still_mine.empty() && !still_other.empty()) {
    return false;  // this group would be the smaller one; the caller asks the other way round
  }
  if (!still_other.empty() && !match(still_mine, still_other, false)) {
    return false;
  }

  // In this group's order. Matches of one dimension were found innermost first.
  fit.mine.assign(sizes_.size(), {});
  fit.other.assign(other.sizes_.size(), {});
  std::vector<std::int32_t> number(matches.size(), -1);
  for (std::size_t d = 0; d < sizes_.size(); ++d) {
    bool any = false;
    for (std::size_t m = matches.size(); m-- > 0;) {
      if (matches[m].a == static_cast<std::int32_t>(d)) {
        number[m] = static_cast<std::int32_t>(fit.sizes.size());
        fit.mine[d].push_back(number[m]);
        fit.sizes.push_back(matches[m].size);
        any = true;
      }
    }
    if (!any) {
      fit.mine[d].push_back(static_cast<std::int32_t>(fit.sizes.size()));
      fit.sizes.push_back(sizes_[d]);
    }
  }
  for (std::size_t m = matches.size(); m-- > 0;) {
    fit.other[static_cast<std::size_t>(matches[m].b)].push_back(number[m]);
  }
  return true;
}

/// Whether both groups' members may be in one kernel over the joint space; decides how many dimensions rows keep.
bool FuseGroup::check_fit(const FuseGroup& other, Fit& fit) const {
  const std::size_t rank = fit.sizes.size();
  std::vector<std::uint8_t> covered(rank, 0);  // by the other group
  for (const auto& pieces : fit.other) {
    for (const std::int32_t piece : pieces) {
      covered[static_cast<std::size_t>(piece)] = 1;
    }
  }
  const auto kept_set = [&](const FuseGroup& group, const std::vector<std::vector<std::int32_t>>& pieces) {
    std::vector<std::uint8_t> set(rank, 0);
    for (std::size_t d = 0; d < static_cast<std::size_t>(std::max(group.kept_, 0)); ++d) {
      for (const std::int32_t piece : pieces[d]) {
        set[static_cast<std::size_t>(piece)] = 1;
      }
    }
    return set;
  };
  const bool whole = std::find(covered.begin(), covered.end(), 0) == covered.end();
  std::vector<std::uint8_t> kept = kept_set(*this, fit.mine);
  if (other.kept_ >= 0) {
    const std::vector<std::uint8_t> theirs = kept_set(other, fit.other);
    if (!whole || (kept_ >= 0 && theirs != kept)) {
      return false;
    }
    kept = theirs;
  }
  const bool split = kept_ >= 0 || other.kept_ >= 0;
  bool on_rows = false;
  bool at_end = false;
  if (!whole) {
    std::vector<std::uint8_t> rest(kept);
    for (std::uint8_t& r : rest) {
      r = r == 0 ? 1 : 0;
    }
    on_rows = split && covered == kept;
    const bool nothing = std::find(covered.begin(), covered.end(), 1) == covered.end();
    at_end = !on_rows && (nothing || (split && covered == rest));
    if (other.reduces_ || (!on_rows && !at_end)) {
      return false;
    }
  }
  bool any_complete = false;
  for (const auto& [value, theirs] : other.storages_) {
    const auto found = storages_.find(value);
    if (found == storages_.end()) {
      continue;
    }
    const Storage& mine = found->second;
    if (!mine.produced && !theirs.produced) {
      continue;
    }
    if (mine.several || theirs.several || mine.offset != theirs.offset ||
        restrided(mine.strides, fit.mine, fit.sizes) != restrided(theirs.strides, fit.other, fit.sizes)) {
      return false;
    }
    if (!whole && theirs.produced && !mine.produced) {
      return false;  // it would write what all points of a row may still have to read
    }
    const bool complete = mine.complete || theirs.complete;
    if (complete != at_end) {
      return false;
    }
    any_complete |= complete;
  }
  if (at_end && !any_complete) {
    return false;
  }
  fit.kept = -1;
  if (split) {
    // Kept dimensions first.
    std::vector<std::size_t> order(rank);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_partition(order.begin(), order.end(), [&](std::size_t d) { return kept[d] != 0; });
    std::vector<std::int32_t> place(rank);
    Sizes sizes(rank);
    for (std::size_t d = 0; d < rank; ++d) {
      place[order[d]] = static_cast<std::int32_t>(d);
      sizes[d] = fit.sizes[order[d]];
    }
    fit.sizes = std::move(sizes);
    for (auto* side : {&fit.mine, &fit.other}) {
      for (auto& pieces : *side) {
        for (std::int32_t& piece : pieces) {
          piece = place[static_cast<std::size_t>(piece)];
        }
      }
    }
    fit.kept = static_cast<std::int32_t>(std::count(kept.begin(), kept.end(), 1));
  }
  return true;
}

void FuseGroup::restride(const std::vector<std::vector<std::int32_t>>& pieces, const Sizes& sizes) {
  for (Member& member : members_) {
    for (LoweredPlace& read : member.lowered.reads) {
      read.strides = restrided(read.strides, pieces, sizes);
    }
    for (LoweredWrite& write : member.lowered.writes) {
      write.place.strides = restrided(write.place.strides, pieces, sizes);
    }
    std::vector<std::uint8_t> reduced(sizes.size(), 0);
    for (std::size_t d = 0; d < pieces.size(); ++d) {
      for (const std::int32_t piece : pieces[d]) {
        reduced[static_cast<std::size_t>(piece)] = member.lowered.reduced[d];
      }
    }
    member.lowered.reduced = std::move(reduced);
  }
  for (auto& [value, storage] : storages_) {
    storage.strides = restrided(storage.strides, pieces, sizes);
  }
}

bool FuseGroup::merge(FuseGroup& other) {
  if (instructions_ + other.instructions_ > most_instructions || storages_.size() + other.storages_.size() > most_storages) {
    return false;
  }
  Fit fit;
  if (!find_fit(other, fit) || !check_fit(other, fit)) {
    return false;
  }
  const bool at_end = fit.sizes.size() != 0 && [&] {
    std::size_t covered = 0;
    for (const auto& pieces : fit.other) {
      covered += pieces.size();
    }
    return covered != fit.sizes.size() &&
           (fit.kept < 0 || std::none_of(
                                fit.other.begin(), fit.other.end(),
                                [&](const auto& pieces) {
                                  return std::any_of(pieces.begin(), pieces.end(),
                                                     [&](std::int32_t piece) { return piece < fit.kept; });
                                }));
  }();
  restride(fit.mine, fit.sizes);
  other.restride(fit.other, fit.sizes);
  sizes_ = fit.sizes;
  kept_ = fit.kept;
  reduces_ |= other.reduces_;
  instructions_ += other.instructions_;
  for (auto& [value, theirs] : other.storages_) {
    theirs.complete |= at_end && theirs.produced;
    const auto [found, added] = storages_.try_emplace(value, theirs);
    if (!added) {
      Storage& mine = found->second;
      mine.several |= theirs.several || mine.offset != theirs.offset || mine.strides != theirs.strides;
      mine.produced |= theirs.produced;
      mine.complete |= theirs.complete;
    }
  }
  std::vector<Member> both;
  both.reserve(members_.size() + other.members_.size());
  std::merge(std::make_move_iterator(members_.begin()), std::make_move_iterator(members_.end()),
             std::make_move_iterator(other.members_.begin()), std::make_move_iterator(other.members_.end()),
             std::back_inserter(both), [](const Member& a, const Member& b) { return a.node < b.node; });
  members_ = std::move(both);
  other.members_.clear();
  return true;
}

}  // namespace spool
