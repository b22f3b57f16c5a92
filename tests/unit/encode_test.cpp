// From arguments on PyTorch's stack to a Call, and back through decode.
#include "src/torch/encode.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include "src/torch/lazy.h"

namespace spool::torch_side {
namespace {

const OpInfo& info(const char* name, const char* overload = "") {
  return op_info(c10::Dispatcher::singleton().findSchemaOrThrow((std::string("aten::") + name).c_str(), overload));
}

at::Tensor lazy(c10::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return at::empty(sizes, at::TensorOptions(lazy_device()).dtype(dtype));
}

Call encoded(const OpInfo& op, const torch::jit::Stack& stack) {
  Call call;
  encode(op, stack, call);
  return call;
}

TEST(Encode, TensorsAreGeometryAndSlot) {
  const at::Tensor base = lazy({4, 6}, at::kBFloat16);
  const at::Tensor view = base.t().slice(0, 1, 6, 2);
  const Call call = encoded(info("mm"), {view, base});
  const auto args = decode(call.words);
  ASSERT_EQ(args.size(), 2);
  EXPECT_EQ(args[0].geometry, geometry_of(view));
  EXPECT_EQ(args[1].geometry, geometry_of(base));
  EXPECT_EQ(call.slots, (std::vector<Slot*>{&slot_of(base), &slot_of(base)}));
  EXPECT_EQ(call.writes, (std::vector<std::uint8_t>{0, 0}));
}

TEST(Encode, ScalarsThatFlowIntoValuesAreNumbers) {
  const at::Tensor x = lazy({3});
  const Call call = encoded(info("add_", "Tensor"), {x, x, 2});
  const auto args = decode(call.words);
  ASSERT_EQ(args.size(), 3);
  EXPECT_EQ(args[2].tag, Tag::Number);
  EXPECT_EQ(args[2].number.kind, NumberKind::Int);
  ASSERT_EQ(call.numbers.size(), 1);
  EXPECT_EQ(call.numbers[0].integer, 2);
  EXPECT_EQ(call.writes, (std::vector<std::uint8_t>{1, 0}));
  EXPECT_EQ(encoded(info("add_", "Tensor"), {x, x, 7}).words, call.words) << "the value is no part of the key";
  EXPECT_NE(encoded(info("add_", "Tensor"), {x, x, 7.0}).words, call.words) << "its kind is";
}

TEST(Encode, ZeroDimensionalCpuTensorsAreNumbersOfTheirType) {
  const at::Tensor x = lazy({3});
  for (const at::Tensor& number :
       {at::scalar_tensor(2.5, at::kFloat), at::scalar_tensor(2.5, at::kHalf), at::scalar_tensor(-3, at::kLong),
        at::scalar_tensor(-3, at::kChar), at::scalar_tensor(true, at::kBool),
        at::scalar_tensor(c10::complex<double>(1, -2), at::kComplexFloat)}) {
    const Call call = encoded(info("mul", "Tensor"), {x, number});
    const Arg arg = decode(call.words).at(1);
    ASSERT_EQ(arg.tag, Tag::Number);
    EXPECT_TRUE(arg.number.tensor);
    EXPECT_FALSE(arg.number.wrapped);
    EXPECT_EQ(static_cast<int>(arg.number.dtype), static_cast<int>(number.scalar_type()));
    const at::Scalar value = number.item();
    if (value.isComplex()) {
      EXPECT_EQ(call.numbers[0].real, 1);
      EXPECT_EQ(call.numbers[0].imag, -2);
    } else if (value.isFloatingPoint()) {
      EXPECT_EQ(call.numbers[0].real, value.toDouble());
    } else {
      EXPECT_EQ(call.numbers[0].integer, value.toLong());
    }
  }
}

TEST(Encode, ListsNestAndUndefinedTensorsAreNone) {
  const at::Tensor x = lazy({3});
  const Call cat = encoded(info("cat"), {c10::List<at::Tensor>({x, x}), -1});
  auto args = decode(cat.words);
  ASSERT_EQ(args.size(), 2);
  EXPECT_EQ(args[0].elements.size(), 2);
  EXPECT_EQ(args[1].integer, -1);

  c10::List<std::optional<at::Tensor>> indices;
  indices.push_back(std::nullopt);
  indices.push_back(x);
  args = decode(encoded(info("index", "Tensor"), {x, indices}).words);
  ASSERT_EQ(args.at(1).elements.size(), 2);
  EXPECT_EQ(args[1].elements[0].tag, Tag::None);
  EXPECT_EQ(args[1].elements[1].tag, Tag::Tensor);

  args = decode(encoded(info("linear"), {x, x, at::Tensor()}).words);
  EXPECT_EQ(args.at(2).tag, Tag::None);
}

TEST(Encode, AttributesAreStructural) {
  const at::Tensor x = lazy({3, 4});
  const auto args = decode(encoded(info("sum", "dim_IntList"), {x, std::vector<int64_t>{0, 1}, true, c10::IValue()}).words);
  ASSERT_EQ(args.size(), 4);
  EXPECT_EQ(args[1].list, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(args[2].tag, Tag::Bool);
  EXPECT_EQ(args[2].integer, 1);
  EXPECT_EQ(args[3].tag, Tag::None);
  EXPECT_EQ(decode(encoded(info("gelu"), {x, "tanh"}).words).at(1).text, "tanh");
}

TEST(Encode, AnotherDevicesTensorIsRefusedAsEagerDoes) {
  const at::Tensor x = lazy({3});
  for (const torch::jit::Stack& stack : {torch::jit::Stack{x, at::ones({3})}, torch::jit::Stack{x, at::ones({1})}}) {
    try {
      encoded(info("mul", "Tensor"), stack);
      ADD_FAILURE();
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find("Expected all tensors to be on the same device"), std::string::npos);
    }
  }
  EXPECT_THROW(encoded(info("add_", "Tensor"), {at::scalar_tensor(1), x, 1}), c10::Error) << "a CPU tensor to write to";
}

TEST(Encode, ConjugateAndNegativeViewsAreNoticed) {
  const at::Tensor z = lazy({3}, at::kComplexFloat);
  EXPECT_FALSE(encoded(info("abs"), {z}).conjugated);
  EXPECT_TRUE(encoded(info("abs"), {z.conj()}).conjugated);
}

TEST(Encode, ACallCanBeUsedAgain) {
  const at::Tensor x = lazy({3});
  Call call;
  encode(info("add_", "Tensor"), {x, x, 1}, call);
  const auto words = call.words;
  encode(info("mm"), {lazy({2, 2}), lazy({2, 2})}, call);
  encode(info("add_", "Tensor"), {x, x, 1}, call);
  EXPECT_EQ(call.words, words);
  EXPECT_EQ(call.numbers.size(), 1);
  EXPECT_EQ(call.slots.size(), 2);
}

}  // namespace
}  // namespace spool::torch_side
