// Random kernels on random shapes and strides, against the interpreter. A failing seed can be run again alone with
// --gtest_filter=*/SEED.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/unit/kernel_build.h"

namespace spool::test {
namespace {

constexpr DType f32 = DType::Float32;

/// A program in which each value has a level, so that it keeps the rules of kernel.h.
class RandomKernel {
 public:
  explicit RandomKernel(std::uint32_t seed) : random_(seed), builder_(0, 0) {
    const int rank = 1 + pick(4);
    builder_.kernel.rank = rank;
    builder_.kernel.kept = pick(rank + 1);
    for (int d = 0; d < rank; ++d) {
      const std::int64_t sizes[] = {1, 2, 3, 5, 16, 17, 33, 70};
      sizes_.push_back(sizes[pick(8)]);
    }
    while (std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{1}, std::multiplies<>()) > 40000) {
      *std::max_element(sizes_.begin(), sizes_.end()) = 2;
    }
  }

  KernelTrial make() {
    Kernel& kernel = builder_.kernel;
    for (int i = 0, loads = 1 + pick(3); i < loads; ++i) {
      add_load();
    }
    if (pick(3) == 0) {
      const auto number = builder_.number(DType::Float64);
      keep(builder_.add(KernelOp::Cast, f32, {number}), {});
      numbers_.push_back(std::bit_cast<std::int64_t>(0.75));
    }
    if (pick(3) == 0) {
      const auto d = static_cast<std::size_t>(pick(kernel.rank));
      keep(builder_.add(
               KernelOp::Mul, f32,
               {builder_.add(KernelOp::Cast, f32, {builder_.index(static_cast<std::int64_t>(d))}), builder_.constant(0.125)}),
           {d});
    }
    const bool reduces = pick(3) != 0;
    for (int i = 0, ops = 2 + pick(8); i < ops; ++i) {
      reduces&& pick(4) == 0 ? add_reduction() : add_op();
    }
    // The last values are stored, each where it varies; results that are complete only at the end among them.
    for (int i = 0, stores = 1 + pick(3); i < stores && i < static_cast<int>(values_.size()); ++i) {
      add_store(values_[values_.size() - 1 - static_cast<std::size_t>(i)]);
    }
    KernelTrial trial(kernel, sizes_);
    for (std::size_t a = 0; a < places_.size(); ++a) {
      trial.place(places_[a], offsets_[a], shares_[a]);
    }
    trial.numbers() = numbers_;
    return trial;
  }

 private:
  struct Known {
    std::int32_t id;
    std::vector<std::size_t> along;  ///< dimensions that it varies along
    bool complete = false;           ///< depends on a reduction over kept or all
  };

  int pick(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }

  void keep(std::int32_t id, std::vector<std::size_t> along, bool complete = false) {
    values_.push_back({id, std::move(along), complete});
  }

  std::vector<std::int64_t> strides(std::vector<std::size_t> along) {
    // Some places are transposed, some have gaps.
    if (pick(3) == 0) {
      std::shuffle(along.begin(), along.end(), random_);
    }
    std::vector<std::int64_t> result = contiguous(sizes_, along);
    if (pick(4) == 0) {
      for (std::int64_t& stride : result) {
        stride *= 2;
      }
    }
    return result;
  }

  void place(std::vector<std::int64_t> strides, int shares = -1) {
    offsets_.push_back(shares >= 0 ? offsets_[static_cast<std::size_t>(shares)] : pick(3));
    places_.push_back(std::move(strides));
    shares_.push_back(shares);
  }

  void add_load() {
    const DType dtypes[] = {f32, f32, f32, DType::BFloat16, DType::Float16, DType::Int32, DType::Bool, DType::UInt8};
    const DType dtype = dtypes[pick(8)];
    std::vector<std::size_t> along;
    for (std::size_t d = 0; d < sizes_.size(); ++d) {
      if (pick(4) != 0) {
        along.push_back(d);
      }
    }
    auto id = builder_.load(dtype);
    place(strides(along));
    if (dtype != f32) {
      id = builder_.add(KernelOp::Mul, f32, {builder_.add(KernelOp::Cast, f32, {id}), builder_.constant(0.25)});
    } else if (along.size() == sizes_.size()) {
      in_place_.push_back(builder_.kernel.accesses.size() - 1);
    }
    keep(id, along);
  }

  void add_op() {
    const Known a = values_[static_cast<std::size_t>(pick(static_cast<int>(values_.size())))];
    const Known b = values_[static_cast<std::size_t>(pick(static_cast<int>(values_.size())))];
    const bool complete = a.complete || b.complete;
    // What is complete only at the end mixes with its own kind alone.
    const bool mixable = a.complete == b.complete;
    const KernelOp unary[] = {KernelOp::Neg, KernelOp::Abs, KernelOp::Tanh, KernelOp::Sin, KernelOp::Floor};
    const KernelOp binary[] = {KernelOp::Add, KernelOp::Sub, KernelOp::Mul, KernelOp::Maximum, KernelOp::Minimum};
    if (!mixable || pick(3) == 0) {
      keep(builder_.add(unary[pick(5)], f32, {a.id}), a.along, a.complete);
      return;
    }
    std::vector<std::size_t> along;
    std::set_union(a.along.begin(), a.along.end(), b.along.begin(), b.along.end(), std::back_inserter(along));
    const auto op = binary[pick(5)];
    auto id = builder_.add(op, f32, {a.id, b.id});
    if (op == KernelOp::Mul) {
      id = builder_.add(KernelOp::Tanh, f32, {id});  // keeps numbers small
    } else if (pick(4) == 0) {
      id = builder_.add(KernelOp::Where, f32, {builder_.add(KernelOp::Lt, f32, {a.id, b.id}), id, a.id});
    }
    keep(id, along, complete);
  }

  void add_reduction() {
    std::vector<Known> open;
    std::copy_if(values_.begin(), values_.end(), std::back_inserter(open), [](const Known& known) { return !known.complete; });
    if (open.empty()) {
      return;
    }
    const Known from = open[static_cast<std::size_t>(pick(static_cast<int>(open.size())))];
    const KernelOp ops[] = {KernelOp::ReduceSum, KernelOp::ReduceMaximum, KernelOp::ReduceMinimum};
    const KernelOp op = ops[pick(3)];
    const auto over = static_cast<KernelOver>(pick(2) == 0 ? 0 : pick(3));
    const auto kept = static_cast<std::size_t>(builder_.kernel.kept);
    std::vector<std::size_t> along;
    for (std::size_t d = 0; d < sizes_.size(); ++d) {
      if ((over == KernelOver::Rest && d < kept) || (over == KernelOver::Kept && d >= kept)) {
        along.push_back(d);
      }
    }
    auto id = builder_.reduce(op, from.id, over);
    if (op == KernelOp::ReduceSum) {
      id = builder_.add(KernelOp::Mul, f32, {id, builder_.constant(1.0 / 64)});
    }
    keep(id, along, over != KernelOver::Rest);
  }

  void add_store(const Known& value) {
    // A value may be stored where it is the same along some dimensions; a complete one has a single place for each.
    std::vector<std::size_t> along = value.along;
    if (!value.complete && pick(2) == 0) {
      along.resize(sizes_.size());
      std::iota(along.begin(), along.end(), 0);
    }
    if (along.size() == sizes_.size() && !in_place_.empty() && pick(2) == 0) {
      const std::size_t access = in_place_.back();
      in_place_.pop_back();
      builder_.store(value.id);
      const std::vector<std::int64_t> same = places_[access];
      place(same, static_cast<int>(access));
      return;
    }
    const DType dtypes[] = {f32, f32, DType::BFloat16, DType::Float64};
    const DType dtype = dtypes[pick(4)];
    builder_.store(dtype == f32 ? value.id : builder_.add(KernelOp::Cast, dtype, {value.id}), dtype);
    place(strides(along));
  }

  std::mt19937 random_;
  KernelBuilder builder_;
  std::vector<std::int64_t> sizes_;
  std::vector<Known> values_;
  std::vector<std::vector<std::int64_t>> places_;
  std::vector<std::int64_t> offsets_;
  std::vector<int> shares_;
  std::vector<std::size_t> in_place_;  ///< loads that may be updated in place
  std::vector<std::int64_t> numbers_;
};

class KernelRandom : public testing::TestWithParam<std::uint32_t> {};

TEST_P(KernelRandom, GivesWhatTheInterpreterGives) {
  KernelTrial trial = RandomKernel(GetParam()).make();
  trial.fill(GetParam());
  trial.run();
  EXPECT_EQ(trial.difference(64, 16, f32), "");
}

INSTANTIATE_TEST_SUITE_P(Seeds, KernelRandom, testing::Range(std::uint32_t{0}, std::uint32_t{300}));

}  // namespace
}  // namespace spool::test
