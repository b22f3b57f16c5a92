// How tensors lie in storage.
#include "src/tape/geometry.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

Geometry strided(std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides, std::int64_t offset = 0) {
  Geometry geometry = f32(std::move(sizes));
  geometry.strides = std::move(strides);
  geometry.offset = offset;
  return geometry;
}

std::string shown(const Geometry& geometry) {
  std::ostringstream out;
  out << geometry;
  return out.str();
}

TEST(Geometry, CountsElements) {
  EXPECT_EQ(f32({}).numel(), 1);
  EXPECT_EQ(f32({2, 3}).numel(), 6);
  EXPECT_EQ(f32({2, 0, 3}).numel(), 0);
}

TEST(Geometry, StorageReachesToTheLastElement) {
  EXPECT_EQ(f32({}).storage_bytes(), 4);
  EXPECT_EQ(f32({2, 3}).storage_bytes(), 24);
  EXPECT_EQ(strided({2}, {3}, 1).storage_bytes(), 20);
  EXPECT_EQ(strided({2, 3}, {0, 1}).storage_bytes(), 12) << "an expanded row";
  EXPECT_EQ(strided({0, 3}, {3, 1}, 7).storage_bytes(), 0) << "an empty tensor needs nothing, wherever it starts";
}

TEST(Geometry, CoversAStorageIfEachPlaceIsTakenOnce) {
  EXPECT_TRUE(f32({2, 3}).covers(24));
  EXPECT_FALSE(f32({2, 3}).covers(28)) << "a part";
  EXPECT_FALSE(f32({2, 3}).covers(20));
  EXPECT_TRUE(strided({3, 2}, {1, 3}).covers(24)) << "transposed";
  EXPECT_TRUE(strided({2, 3, 2, 2}, {12, 1, 6, 3}).covers(96)) << "channels last";
  EXPECT_TRUE(strided({1, 4}, {77, 1}).covers(16)) << "a dimension of size 1 has any stride";
  EXPECT_FALSE(strided({4}, {1}, 1).covers(16)) << "not from the start";
  EXPECT_FALSE(strided({4}, {0}).covers(16)) << "one place four times";
  EXPECT_FALSE(strided({2, 2}, {1, 1}).covers(16)) << "overlap";
  EXPECT_TRUE(f32({}).covers(4));
  EXPECT_TRUE(f32({0, 3}).covers(0));
}

TEST(Geometry, ContiguousIsRowMajorWithoutGaps) {
  EXPECT_TRUE(f32({2, 3}).contiguous());
  EXPECT_TRUE(f32({}).contiguous());
  EXPECT_TRUE(strided({2, 3}, {3, 1}, 5).contiguous()) << "the offset does not matter";
  EXPECT_TRUE(strided({1, 3}, {9, 1}).contiguous());
  EXPECT_FALSE(strided({3, 2}, {1, 3}).contiguous());
  EXPECT_FALSE(strided({2, 3}, {4, 1}).contiguous());
  EXPECT_TRUE(strided({0, 3}, {8, 2}).contiguous()) << "no elements, no gaps";
}

TEST(Geometry, FlatIsTheWholeStorage) {
  Geometry half = f32({2});
  half.dtype = DType::Float16;
  half.itemsize = 2;
  half.offset = 3;
  const Geometry whole = flat(half, 20);
  EXPECT_EQ(whole.sizes, std::vector<std::int64_t>{10});
  EXPECT_EQ(whole.dtype, DType::Float16);
  EXPECT_EQ(whole.offset, 0);
  EXPECT_TRUE(whole.covers(20));
}

TEST(Geometry, PrintsOnlyWhatIsNotPlain) {
  EXPECT_EQ(shown(f32({2, 3})), "f32[2,3]");
  EXPECT_EQ(shown(f32({})), "f32[]");
  EXPECT_EQ(shown(strided({2}, {3}, 1)), "f32[2] strides[3] offset 1");
}

TEST(DType, HasAShortName) {
  EXPECT_STREQ(name(DType::BFloat16), "bf16");
  EXPECT_STREQ(name(DType::Bool), "bool");
  EXPECT_STREQ(name(DType::Complex64), "c64");
  EXPECT_STREQ(name(static_cast<DType>(99)), "dtype?");
}

}  // namespace
}  // namespace spool::test
