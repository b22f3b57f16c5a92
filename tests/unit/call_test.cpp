// Words of a call and what they decode to.
#include "src/tape/call.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/base/error.h"
#include "tests/unit/small_call.h"
#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

std::vector<Arg> arguments(const Call& call) { return decode(call.words); }

TEST(Call, DecodesEveryKindOfArgument) {
  const Storage x = filled(64);
  Geometry geometry = f32({2, 3});
  geometry.dtype = DType::BFloat16;
  geometry.itemsize = 2;
  geometry.strides = {1, 2};
  geometry.offset = 5;
  const auto args = arguments(SmallCall(add)
                                  .read(x, geometry)
                                  .none()
                                  .integer(std::numeric_limits<std::int64_t>::min())
                                  .boolean(true)
                                  .real(-0.0)
                                  .integers({3, -1})
                                  .booleans({1, 0, 1})
                                  .reals({0.5, INFINITY})
                                  .device()
                                  .number(2)
                                  .generator());
  ASSERT_EQ(args.size(), 11);
  EXPECT_EQ(args[0].tag, Tag::Tensor);
  EXPECT_EQ(args[0].geometry, geometry);
  EXPECT_EQ(args[1].tag, Tag::None);
  EXPECT_EQ(args[2].integer, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(args[3].tag, Tag::Bool);
  EXPECT_EQ(args[3].integer, 1);
  EXPECT_TRUE(std::signbit(args[4].real));
  EXPECT_EQ(args[5].list, (std::vector<std::int64_t>{3, -1}));
  EXPECT_EQ(args[6].tag, Tag::BoolList);
  EXPECT_EQ(args[6].list, (std::vector<std::int64_t>{1, 0, 1}));
  EXPECT_EQ(args[7].reals, (std::vector<double>{0.5, INFINITY}));
  EXPECT_EQ(args[8].tag, Tag::Device);
  EXPECT_EQ(args[9].tag, Tag::Number);
  EXPECT_EQ(args[9].number, NumberType{});
  EXPECT_EQ(args[10].tag, Tag::Generator);
}

TEST(Call, DecodesTextOfAnyLength) {
  for (const std::string text : {"", "mean", "1234567", "12345678", "123456789", "tanh \xC3\xA9 and more than two words"}) {
    const auto args = arguments(SmallCall(add).text(text).integer(1));
    ASSERT_EQ(args.size(), 2) << text;
    EXPECT_EQ(args[0].text, text);
    EXPECT_EQ(args[1].integer, 1);
  }
}

TEST(Call, DecodesLists) {
  const Storage x = filled(64);
  const auto args = arguments(SmallCall(add)
                                  .list_of(Tag::TensorList, 3)
                                  .read(x, f32({4}))
                                  .none()
                                  .read(x, f32({2, 2}))
                                  .list_of(Tag::NumberList, 1)
                                  .number(1)
                                  .list_of(Tag::TensorList, 0)
                                  .integer(9));
  ASSERT_EQ(args.size(), 4);
  ASSERT_EQ(args[0].elements.size(), 3);
  EXPECT_EQ(args[0].elements[1].tag, Tag::None);
  EXPECT_EQ(args[0].elements[2].geometry, f32({2, 2}));
  EXPECT_EQ(args[1].elements.size(), 1);
  EXPECT_TRUE(args[2].elements.empty());
  EXPECT_EQ(args[3].integer, 9);
}

TEST(Call, ZeroDimensionalTensorsHaveNoSizes) {
  const Storage x = filled(4);
  const auto args = arguments(SmallCall(add).read(x, f32({})).boolean(false));
  ASSERT_EQ(args.size(), 2);
  EXPECT_EQ(args[0].geometry, f32({}));
}

TEST(Call, WordsThatEndEarlyAreAnInternalError) {
  const Storage x = filled(64);
  const Call whole = SmallCall(add).text("some text").list_of(Tag::TensorList, 1).read(x, f32({2, 2}));
  const std::size_t text_ends = 3;  // a head and two words
  for (std::size_t length = 1; length < whole.words.size(); ++length) {
    if (length == text_ends) {
      continue;
    }
    const std::vector<std::int64_t> cut(whole.words.begin(), whole.words.begin() + static_cast<std::ptrdiff_t>(length));
    try {
      decode(cut);
      ADD_FAILURE() << length << " words decode";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Internal);
    }
  }
}

TEST(Call, NumberTypesSurviveTheirWord) {
  for (const NumberKind kind : {NumberKind::Bool, NumberKind::Int, NumberKind::Double, NumberKind::Complex}) {
    for (const DType dtype : {DType::UInt8, DType::Bool, DType::BFloat16, DType::Complex128}) {
      for (const int bits : {0, 1, 2, 3}) {
        const NumberType type{kind, (bits & 1) != 0, (bits & 2) != 0, dtype};
        EXPECT_EQ(NumberType::decode(type.encode()), type);
        EXPECT_EQ(decode({head(Tag::Number, type.encode())})[0].number, type);
      }
    }
  }
}

TEST(Call, TensorsAreVisitedInOrderAlsoInLists) {
  const Storage x = filled(64);
  auto args = arguments(SmallCall(add)
                            .read(x, f32({1}))
                            .list_of(Tag::TensorList, 3)
                            .read(x, f32({2}))
                            .none()
                            .read(x, f32({3}))
                            .integer(0)
                            .read(x, f32({4})));
  std::vector<std::int64_t> seen;
  for_each_tensor(args, [&](const Arg& arg) { seen.push_back(arg.geometry.sizes[0]); });
  EXPECT_EQ(seen, (std::vector<std::int64_t>{1, 2, 3, 4}));
}

}  // namespace
}  // namespace spool::test
