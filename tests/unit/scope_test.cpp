// Scopes of op names.
#include "src/base/scope.h"

#include <gtest/gtest.h>

#include <thread>

#include "src/base/error.h"

namespace spool::scope {
namespace {

TEST(Scope, NamesAreJoinedFromTheOutermost) {
  EXPECT_EQ(current(), "");
  push("epoch");
  push("step");
  EXPECT_EQ(current(), "epoch/step");
  pop();
  EXPECT_EQ(current(), "epoch");
  pop();
  EXPECT_EQ(current(), "");
}

TEST(Scope, AResetHidesOpenOnesUntilTheyAreClosed) {
  push("outer");
  push("inner");
  reset();
  EXPECT_EQ(current(), "");
  push("new");
  EXPECT_EQ(current(), "new");
  pop();
  pop();
  EXPECT_EQ(current(), "");
  push("again");
  EXPECT_EQ(current(), "again") << "the outer one stays hidden";
  pop();
  pop();
  push("next");
  EXPECT_EQ(current(), "next");
  pop();
}

TEST(Scope, ClosingWithoutOpeningIsAnError) {
  try {
    pop();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Runtime);
    EXPECT_EQ(std::string(error.what()).rfind("[scope]", 0), 0);
  }
  EXPECT_EQ(current(), "");
}

TEST(Scope, EachThreadHasItsOwn) {
  push("main");
  std::thread other([] {
    EXPECT_EQ(current(), "");
    push("other");
    EXPECT_EQ(current(), "other");
    reset();
  });
  other.join();
  EXPECT_EQ(current(), "main");
  pop();
}

}  // namespace
}  // namespace spool::scope
