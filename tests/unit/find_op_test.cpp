#include "src/ops/find_op.h"

#include <gtest/gtest.h>

namespace spool::test {
namespace {

TEST(FindOp, KnowsTheDispatchersOperators) {
  const Op* add_ = find_op("aten::add_.Tensor");
  ASSERT_NE(add_, nullptr);
  EXPECT_EQ(add_->name, "aten::add_.Tensor");
  EXPECT_EQ(add_->mutates, (std::vector<std::uint8_t>{1, 0, 0}));
  ASSERT_NE(find_op("aten::exp"), nullptr);
  EXPECT_EQ(find_op("aten::exp")->name, "aten::exp");
}

TEST(FindOp, GivesOneObjectForEachOperator) { EXPECT_EQ(find_op("aten::mul.Tensor"), find_op("aten::mul.Tensor")); }

TEST(FindOp, FindsNothingForUnknownNames) {
  EXPECT_EQ(find_op("aten::no_such_op"), nullptr);
  EXPECT_EQ(find_op("aten::add.NoSuchOverload"), nullptr);
  EXPECT_EQ(find_op(""), nullptr);
}

}  // namespace
}  // namespace spool::test
