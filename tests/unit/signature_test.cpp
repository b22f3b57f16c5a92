// Signatures: what makes two calls the same, and how long the table remembers them.
#include "src/tape/signature.h"

#include <gtest/gtest.h>

#include "tests/unit/small_call.h"
#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

TEST(Signature, EqualCallsShareOneWhateverTheirSlotsAndNumbers) {
  SignatureTable table;
  const Storage x = filled(16);
  const Storage y = filled(16);
  const auto one = table.intern(SmallCall(add).read(x, f32({4})).number(1), one_result(f32({4})));
  const auto other = SmallCall(add).read(y, f32({4})).number(2);
  EXPECT_EQ(table.find(other), one);
  EXPECT_EQ(table.intern(other, {}), one);
  EXPECT_EQ(one->results.tensors.size(), 1);
  EXPECT_EQ(table.size(), 1);
}

TEST(Signature, AnyStructuralDifferenceMakesAnother) {
  SignatureTable table;
  const Storage x = filled(64);
  Geometry strided = f32({2, 2});
  strided.strides = {1, 2};
  Geometry moved = f32({2, 2});
  moved.offset = 1;
  Geometry ints = f32({2, 2});
  ints.dtype = DType::Int32;
  const Op same_name = make_op("test::add");
  const std::vector<SmallCall> calls{
      SmallCall(add).read(x, f32({2, 2})),
      SmallCall(add).read(x, f32({4})),
      SmallCall(add).read(x, strided),
      SmallCall(add).read(x, moved),
      SmallCall(add).read(x, ints),
      SmallCall(add).read(x, f32({2, 2})).integer(1),
      SmallCall(add).read(x, f32({2, 2})).integer(2),
      SmallCall(add).read(x, f32({2, 2})).real(1),
      SmallCall(neg).read(x, f32({2, 2})),
      SmallCall(same_name).read(x, f32({2, 2})),
  };
  std::vector<SignaturePtr> kept;
  for (const Call& call : calls) {
    EXPECT_EQ(table.find(call), nullptr);
    kept.push_back(table.intern(call, {}));
  }
  EXPECT_EQ(table.size(), calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(table.find(calls[i]), kept[i]);
  }
}

TEST(Signature, LivesOnlyAsLongAsSomethingUsesIt) {
  SignatureTable table;
  auto kept = table.intern(SmallCall(add).integer(1), {});
  kept.reset();
  EXPECT_EQ(table.find(SmallCall(add).integer(1)), nullptr);
}

TEST(Signature, TheTableDoesNotGrowWithForgottenOnes) {
  SignatureTable table;
  const auto kept = table.intern(SmallCall(add).integer(-1), {});
  for (int i = 0; i < 20000; ++i) {
    table.intern(SmallCall(add).integer(i), {});
  }
  EXPECT_LE(table.size(), 2048);
  EXPECT_EQ(table.find(SmallCall(add).integer(-1)), kept);
}

TEST(Signature, KeepsWhichOperandsAreWritten) {
  SignatureTable table;
  const Storage x = filled(16);
  const auto signature = table.intern(SmallCall(add_).write(x, f32({4})).read(x, f32({4})), {});
  EXPECT_EQ(signature->writes, (std::vector<std::uint8_t>{1, 0}));
}

}  // namespace
}  // namespace spool::test
