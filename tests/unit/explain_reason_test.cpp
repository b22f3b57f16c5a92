// Why a tape is compiled: what the nearest earlier one is, and what differs.
#include "src/runtime/explain_reason.h"

#include <gtest/gtest.h>

#include "tests/unit/fake_engine.h"
#include "tests/unit/small_call.h"
#include "tests/unit/small_graph.h"

namespace spool::explain {
namespace {

using namespace spool::test;
using Kind = Reason::Kind;

const Geometry four = f32({4});
const Geometry five = f32({5});

const Op scale = [] {
  Op op = make_op("test::scale");
  op.arguments = {"self", "by", "axes"};
  return op;
}();

LocationPtr line(int number) {
  Location location;
  location.file = "train.py";
  location.line = number;
  return std::make_shared<const Location>(std::move(location));
}

/// Tapes that are compiled as the device does it.
struct Compiles {
  Recording r;
  PlanCache cache{64};
  History history;
  FakeEngine fake;
  Engine* engine = &fake;

  /// Ends the tape; gives why it is compiled in that region, or nothing if it is known.
  std::optional<Reason> cut(const std::string& region = "train") {
    const auto live = r.tape.live();
    TapeNode& leaf = r.tape.leaf();
    std::optional<Reason> reason;
    if (cache.find(leaf, live, *engine) == nullptr) {
      const auto path = r.tape.path();
      const Candidate tape{path, live, engine};
      reason = history.why(tape, region);
      const CacheEntry& entry = cache.insert(leaf, live, *engine, nullptr);
      history.add(tape, region, *entry.place);
    }
    r.tape.reset();
    cache.shrink(r.tape);
    return reason;
  }

  Storage make(const Call& call, const Geometry& result, int at) {
    r.record(call, one_result(result), line(at));
    return Storage(r.tape.result(0));
  }
};

TEST(Reason, TheFirstTapeIsTheFirst) {
  Compiles c;
  const Storage x = filled(16);
  const Storage y = c.make(SmallCall(neg).read(x, four), four, 3);
  const auto reason = c.cut();
  ASSERT_TRUE(reason.has_value());
  EXPECT_EQ(reason->kind, Kind::First);
  EXPECT_EQ(reason->nearest, 0);
  EXPECT_EQ(describe(*reason), "it is the first graph here: nothing earlier begins with test::neg at train.py:3");
}

TEST(Reason, AnotherShapeIsNamedWithItsArgumentAndLine) {
  Compiles c;
  std::optional<Reason> reason;
  for (const Geometry& geometry : {four, five}) {
    const Storage x = filled(16);
    const Storage y = c.make(SmallCall(neg).read(x, four), four, 3);
    const Storage w = filled(geometry.storage_bytes());
    const Storage z = c.make(SmallCall(scale).read(w, geometry).number(2).integers({0}), geometry, 4);
    reason = c.cut();
  }
  ASSERT_TRUE(reason.has_value());
  EXPECT_EQ(reason->kind, Kind::Argument);
  EXPECT_EQ(reason->nearest, 1);
  EXPECT_EQ(reason->common, 1);
  EXPECT_EQ(reason->op, "test::scale");
  EXPECT_EQ(describe(*reason),
            "differs from graph 1 first at op 2 of 2, test::scale at train.py:4: 'self' has shape [5], where that had shape [4]");
}

/// Why a second call of test::scale, after an equal first op, is compiled.
std::string second(const Call& before, const Call& after) {
  Compiles c;
  for (const Call* call : {&before, &after}) {
    const Storage x = filled(16);
    const Storage y = c.make(SmallCall(neg).read(x, four), four, 3);
    const Storage z = c.make(*call, four, 4);
    const auto reason = c.cut();
    if (call == &after) {
      return reason.has_value() ? reason->what : "";
    }
  }
  return "";
}

TEST(Reason, SaysWhichAttributeDiffersAndHow) {
  const Storage x = filled(64);
  Geometry turned = f32({2, 2});
  const Geometry plain = turned;
  turned.strides = {1, 2};
  Geometry shifted = plain;
  shifted.offset = 4;
  Geometry whole = plain;
  whole.dtype = DType::Int32;
  EXPECT_EQ(second(SmallCall(scale).read(x, plain), SmallCall(scale).read(x, turned)),
            "'self' has strides [1, 2], where that had strides [2, 1]");
  EXPECT_EQ(second(SmallCall(scale).read(x, plain), SmallCall(scale).read(x, shifted)),
            "'self' has offset 4, where that had offset 0");
  EXPECT_EQ(second(SmallCall(scale).read(x, plain), SmallCall(scale).read(x, whole)),
            "'self' has dtype i32, where that had dtype f32");
  EXPECT_EQ(second(SmallCall(scale).none().number(1).integers({0, 1}), SmallCall(scale).none().number(1).integers({1})),
            "'axes' is [1], where that was [0, 1]");
  EXPECT_EQ(second(SmallCall(scale).none().integer(3), SmallCall(scale).none().boolean(true)), "'by' is True, where that was 3");
  EXPECT_EQ(second(SmallCall(scale).read(x, plain), SmallCall(scale).none()), "'self' is None, where that was a tensor f32[2,2]");
  EXPECT_EQ(second(SmallCall(scale).list_of(Tag::TensorList, 2).read(x, plain).read(x, plain),
                   SmallCall(scale).list_of(Tag::TensorList, 2).read(x, plain).read(x, shifted)),
            "'self'[1] has offset 4, where that had offset 0");
  EXPECT_EQ(second(SmallCall(scale).text("a"), SmallCall(scale).text("b")), "'self' is 'b', where that was 'a'");
}

TEST(Reason, ANumberIsNoReason) {
  const Storage x = filled(16);
  EXPECT_EQ(second(SmallCall(scale).read(x, four).number(1), SmallCall(scale).read(x, four).number(2)), "");
}

TEST(Reason, AnotherOpIsNamedOnBothSides) {
  const Storage x = filled(16);
  EXPECT_EQ(second(SmallCall(scale).read(x, four), SmallCall(neg).read(x, four)),
            "it is test::neg at train.py:4, where that has test::scale at train.py:4");
}

TEST(Reason, AnotherTensorIsNamedByWhereItComesFrom) {
  Compiles c;
  std::optional<Reason> reason;
  for (const bool other : {false, true}) {
    const Storage x = filled(16);
    const Storage y = c.make(SmallCall(neg).read(x, four), four, 3);
    const Storage z = c.make(SmallCall(scale).read(other ? x : y, four), four, 4);
    reason = c.cut();
  }
  ASSERT_TRUE(reason.has_value());
  EXPECT_EQ(reason->kind, Kind::Wiring);
  EXPECT_EQ(reason->what,
            "'self' is a tensor from before that is first used by test::neg at train.py:3, where that was the result of "
            "test::neg at train.py:3");
}

TEST(Reason, AStorageOfAnotherSizeOrWithoutContentIsSeen) {
  Compiles c;
  const auto run = [&](const Storage& x) {
    const Storage y = c.make(SmallCall(scale).read(x, four), four, 4);
    return c.cut();
  };
  run(filled(16));
  EXPECT_EQ(run(filled(32))->what, "'self' lies in a storage of 32 bytes, where that lay in one of 16");
  EXPECT_EQ(run(uninitialised(16))->what,
            "'self' is a tensor that nothing has written to, where that was a tensor that has content");
}

TEST(Reason, OnlyOtherOutputsAreNamedByWhoMadeThem) {
  Compiles c;
  std::optional<Reason> reason;
  for (const bool keep : {false, true}) {
    const Storage x = filled(16);
    std::optional<Storage> y = c.make(SmallCall(scale).read(x, four), four, 3);
    const Storage z = c.make(SmallCall(neg).read(*y, four), four, 4);
    if (!keep) {
      y.reset();
    }
    reason = c.cut();
  }
  ASSERT_TRUE(reason.has_value());
  EXPECT_EQ(reason->kind, Kind::Live);
  EXPECT_EQ(reason->op, "test::scale");
  EXPECT_EQ(reason->where->line, 3);
  EXPECT_EQ(describe(*reason),
            "has the ops of graph 1, but other outputs: the result of test::scale at train.py:3 is still held after the cut, "
            "which it was not then");
}

TEST(Reason, AnUpdatedInputThatIsGoneIsNamedByItsUpdate) {
  Compiles c;
  std::optional<Reason> reason;
  for (const bool keep : {true, false}) {
    std::optional<Storage> x = filled(16);
    c.r.record(SmallCall(add_).write(*x, four).number(1), {}, line(5));
    if (!keep) {
      x.reset();
    }
    reason = c.cut();
  }
  EXPECT_EQ(reason->what, "the tensor updated by test::add_ at train.py:5 is no longer held after the cut, which it was then");
}

TEST(Reason, ALongerAndAShorterTapeSayWhereTheyPart) {
  Compiles c;
  const auto run = [&](int length) {
    Storage x = filled(16);
    for (int i = 0; i < length; ++i) {
      x = c.make(SmallCall(neg).read(x, four), four, i + 1);
    }
    return c.cut();
  };
  run(2);
  EXPECT_EQ(describe(*run(3)),
            "differs from graph 1 first at op 3 of 3: it goes on with test::neg at train.py:3, where that ends");
  EXPECT_EQ(describe(*run(1)), "differs from graph 2: it ends after 1 op, where that goes on with test::neg at train.py:2");
}

TEST(Reason, AnotherEngineIsAReason) {
  Compiles c;
  FakeEngine other;
  const Storage x = filled(16);
  const Storage y = c.make(SmallCall(neg).read(x, four), four, 1);
  c.cut();
  c.engine = &other;
  const Storage z = c.make(SmallCall(neg).read(x, four), four, 1);
  const auto reason = c.cut();
  ASSERT_TRUE(reason.has_value());
  EXPECT_EQ(reason->kind, Kind::Engine);
}

TEST(Reason, OfSeveralTheNearestIsTaken) {
  Compiles c;
  const auto run = [&](const std::vector<std::int64_t>& axes, std::int64_t by) {
    const Storage x = filled(16);
    const Storage y = c.make(SmallCall(neg).read(x, four), four, 1);
    const Storage z = c.make(SmallCall(scale).read(x, four).integer(by).integers(axes), four, 2);
    return c.cut();
  };
  run({0}, 1);
  run({1}, 2);
  run({2}, 3);
  const auto reason = run({1}, 4);
  EXPECT_EQ(reason->nearest, 2);
  EXPECT_EQ(reason->what, "'by' is 4, where that was 2");
}

TEST(Reason, ATapeThatBeginsLikeNoOtherIsComparedWithItsOwnRegionOnly) {
  Compiles c;
  const auto run = [&](const Op& op, const std::string& region) {
    const Storage x = filled(16);
    const Storage y = c.make(SmallCall(op).read(x, four), four, 1);
    return c.cut(region);
  };
  run(neg, "train");
  EXPECT_EQ(run(scale, "evaluate")->kind, Kind::First);
  const auto reason = run(add, "evaluate");
  EXPECT_EQ(reason->kind, Kind::Op);
  EXPECT_EQ(reason->nearest, 2);
}

TEST(Reason, APlanThatTheCacheHasDroppedIsSaidToBe) {
  Compiles c;
  c.cache.set_capacity(1);
  const auto run = [&](std::int64_t by) {
    const Storage x = filled(16);
    const Storage y = c.make(SmallCall(scale).read(x, four).integer(by), four, 1);
    return c.cut();
  };
  run(1);
  run(2);
  EXPECT_EQ(run(1)->kind, Kind::Dropped);
}

}  // namespace
}  // namespace spool::explain
