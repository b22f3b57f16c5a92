// What every engine must do, written once and run on each. Expected values are ATen's own, compared bit for bit.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include "src/base/error.h"
#include "tests/conformance/graph_builder.h"

// AddressSanitizer's allocator otherwise ends the process where malloc would return null, which is what is tested.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace spool {
namespace {

using test::check;
using test::GraphBuilder;

class Conformance : public testing::TestWithParam<std::string> {
 protected:
  std::string name() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Engines, Conformance, testing::ValuesIn(engine_names()), [](const auto& info) { return info.param; });

at::Tensor wrapped(double value) {
  at::Tensor tensor = at::scalar_tensor(value, at::kDouble);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

TEST_P(Conformance, NamesItself) { EXPECT_EQ(engine(name()).name(), name()); }

TEST_P(Conformance, FunctionalOps) {
  GraphBuilder b;
  const auto x = b.input(at::randn({4, 5}));
  const auto y = b.input(at::randn({5, 3}));
  const auto product = b.one("aten::mm", {x, y});
  const auto positive = b.one("aten::relu", {product});
  b.output(b.one("aten::sum.dim_IntList", {b.one("aten::exp", {positive}), std::vector<std::int64_t>{1}}));
  b.output(b.one("aten::_softmax", {product, 1, false}));
  check(name(), b);
}

TEST_P(Conformance, SeveralResults) {
  GraphBuilder b;
  const auto x = b.input(at::randn({6, 7}));
  const auto best = b.call("aten::max.dim", {x, 1});
  const auto ranked = b.call("aten::topk", {x, 3});
  const auto norm = b.call("aten::native_layer_norm", {x, std::vector<std::int64_t>{7}, c10::IValue(), c10::IValue(), 1e-5});
  for (const auto& results : {best, ranked, norm}) {
    for (const at::Tensor& result : results) {
      b.output(result);
    }
  }
  check(name(), b);
}

TEST_P(Conformance, ResultsOfOneSizeAreNotMixedUp) {
  GraphBuilder b;
  const auto x = b.input(at::randn({5, 5}));
  for (const char* op : {"aten::linalg_qr", "aten::frexp.Tensor", "aten::aminmax"}) {
    for (const at::Tensor& result : b.call(op, {x})) {
      b.output(result);
    }
  }
  check(name(), b);
}

TEST_P(Conformance, ViewsAsOperands) {
  GraphBuilder b;
  const auto x = b.input(at::randn({4, 6}));
  const auto made = b.one("aten::mul.Tensor", {x, x});
  b.output(b.one("aten::mm", {made, x.t()}));
  b.output(b.one("aten::add.Tensor", {made.select(0, 2), x.select(0, 1).expand({3, 6})}));
  b.output(b.one("aten::neg", {made.slice(1, 1, 6, 2)}));
  b.output(b.one("aten::mul.Tensor", {made.view(at::kInt).select(0, 1), x.view(at::kInt).select(0, 0)}));
  check(name(), b);
}

TEST_P(Conformance, WritesThroughViews) {
  GraphBuilder b;
  const auto x = b.input(at::randn({3, 4}));
  const auto made = b.one("aten::add.Tensor", {x, x});
  b.call("aten::mul_.Tensor", {made.t().select(0, 1), wrapped(3)});
  b.call("aten::copy_", {made.slice(1, 2, 4), x.slice(1, 0, 2)});
  b.call("aten::fill_.Scalar", {made.select(0, 2), 7.5});
  b.output(b.one("aten::cumsum", {made, 0}));
  b.output(made);
  check(name(), b);
}

TEST_P(Conformance, InPlaceChain) {
  GraphBuilder b;
  const auto x = b.input(at::randn({100}));
  const auto made = b.one("aten::exp", {x});
  for (const char* op : {"aten::sqrt_", "aten::neg_", "aten::sigmoid_", "aten::tanh_"}) {
    b.call(op, {made});
    b.call("aten::addcmul_", {made, x, made, 0.5});
  }
  b.output(made);
  check(name(), b);
}

TEST_P(Conformance, OperandAndTargetOfOneStorage) {
  GraphBuilder b;
  const auto x = b.input(at::randn({8}));
  const auto made = b.one("aten::abs", {x});
  b.call("aten::mul_.Tensor", {made, made});
  b.call("aten::add_.Tensor", {made.slice(0, 0, 4), made.slice(0, 4, 8)});
  b.output(made);
  check(name(), b);
}

TEST_P(Conformance, MutatedInputKeepsItsMemory) {
  GraphBuilder b;
  const auto parameter = b.input(at::randn({16, 16}));
  const auto momentum = b.input(at::randn({16, 16}));
  const auto gradient = b.input(at::randn({16, 16}));
  b.call("aten::mul_.Tensor", {momentum, wrapped(0.9)});
  b.call("aten::add_.Tensor", {momentum, gradient});
  b.call("aten::add_.Tensor", {parameter, momentum, -0.1});
  b.output(parameter, 0);
  b.output(momentum, 1);
  const auto result = check(name(), b);
  EXPECT_EQ(result.output_addresses[0], result.input_addresses[0]);
  EXPECT_EQ(result.output_addresses[1], result.input_addresses[1]);
}

TEST_P(Conformance, OldValueOfMutatedInputIsKept) {
  GraphBuilder b;
  const auto x = b.input(at::randn({32}));
  b.output(x);  // as it is on entry
  b.call("aten::mul_.Tensor", {x, x});
  b.output(x, 0);
  check(name(), b);
}

TEST_P(Conformance, OldValueIsReadAfterItsMutation) {
  // The recorder never makes such a graph; a pass may.
  GraphBuilder b;
  const auto x = b.input(at::randn({32}));
  const auto made = b.one("aten::exp", {x});
  const auto old = made.clone();
  const ValueId old_value = b.graph.nodes.back().results[0];
  b.call("aten::neg_", {made});
  b.one("aten::add.Tensor", {made, x});
  b.output(b.one("aten::mul.Tensor", {made, x}));
  Arg& read = b.graph.nodes.back().args[0];
  read.value = old_value;
  const at::Tensor expected = at::mul(old, x);
  std::memcpy(b.expected[0].data(), expected.const_data_ptr(), b.expected[0].size());
  b.output(made);
  check(name(), b);
}

TEST_P(Conformance, InputAsOutput) {
  GraphBuilder b;
  const auto x = b.input(at::randn({5}));
  const auto y = b.one("aten::neg", {x});
  b.output(x);
  b.output(y);
  b.output(y);
  const auto result = check(name(), b);
  EXPECT_NE(result.output_addresses[0], result.input_addresses[0]);
  EXPECT_NE(result.output_addresses[1], result.output_addresses[2]);
}

TEST_P(Conformance, ListOperands) {
  GraphBuilder b;
  const auto x = b.input(at::randn({2, 3}));
  const auto y = b.input(at::randn({2, 3}));
  const auto row = b.input(at::arange(2).flip(0).contiguous());
  const c10::List<at::Tensor> both({x, y});
  b.output(b.one("aten::cat", {both, 1}));
  b.output(b.one("aten::stack", {both, 0}));
  c10::List<std::optional<at::Tensor>> indices;
  indices.push_back(std::nullopt);
  indices.push_back(row);
  b.output(b.one("aten::index.Tensor", {x, indices}));
  for (const at::Tensor& result : b.call("aten::_foreach_mul.Scalar", {both, 3.0})) {
    b.output(result);
  }
  check(name(), b);
}

TEST_P(Conformance, MutatedLists) {
  GraphBuilder b;
  const auto x = b.input(at::randn({2, 3}));
  const auto y = b.input(at::randn({4}));
  const c10::List<at::Tensor> both({x, y});
  b.call("aten::_foreach_add_.List", {both, both, 2.0});
  b.call("aten::_foreach_mul_.ScalarList", {both, c10::List<at::Scalar>({at::Scalar(2.5), at::Scalar(-1.0)})});
  b.output(x, 0);
  b.output(y, 1);
  check(name(), b);
}

GraphBuilder with_numbers(double rate, double factor, std::int64_t added) {
  at::manual_seed(5);
  GraphBuilder b;
  const auto x = b.input(at::randn({10}));
  const auto y = b.input(at::arange(10));
  const auto scaled = b.one("aten::mul.Tensor", {x, wrapped(factor)});
  b.call("aten::add_.Tensor", {scaled, x, rate});
  b.output(b.one("aten::leaky_relu", {scaled, rate}));
  b.output(b.one("aten::add.Tensor", {y, at::scalar_tensor(added, at::kLong)}));
  b.output(b.one("aten::add.Scalar", {y, added}));
  b.output(b.one("aten::full_like", {x, factor}));
  return b;
}

TEST_P(Conformance, NumbersAreParameters) {
  const auto first = with_numbers(0.1, 2.0, 3);
  const auto second = with_numbers(-0.7, 1e-3, -40);
  Engine& tested = engine(name());
  const auto plan = tested.compile(first.graph, {.exact = true});
  test::expect_equal(test::run(tested, *plan, first), first);
  test::expect_equal(test::run(tested, *plan, second), second);
  test::expect_equal(test::run(tested, *plan, first), first);
}

/// Puts this run's numbers into the graph.
void make_constant(Arg& arg, const std::vector<Number>& numbers) {
  if (arg.tag == Tag::Number) {
    const Number& number = numbers.at(static_cast<std::size_t>(arg.parameter));
    arg.integer = number.integer;
    arg.real = number.real;
    arg.parameter = -1;
  }
  for (Arg& element : arg.elements) {
    make_constant(element, numbers);
  }
}

TEST_P(Conformance, NumbersMayBeConstants) {
  GraphBuilder b;
  const auto x = b.input(at::randn({6}));
  const auto y = b.one("aten::mul.Tensor", {x, wrapped(0.3)});
  b.output(b.one("aten::add.Tensor", {x, y, -2.5}));
  b.output(b.one("aten::clamp", {x, at::Scalar(-1), at::Scalar(1)}));
  b.output(b.call("aten::_foreach_add.ScalarList",
                  {c10::List<at::Tensor>({x, y}), c10::List<c10::Scalar>({at::Scalar(2), at::Scalar(0.5)})})
               .at(1));
  for (Node& node : b.graph.nodes) {
    for (Arg& arg : node.args) {
      make_constant(arg, b.numbers);
    }
  }
  b.numbers.clear();
  b.graph.numbers = 0;
  verify(b.graph);
  check(name(), b);
}

TEST_P(Conformance, RandomOpsStartFromTheGivenState) {
  GraphBuilder b;
  at::Generator generator = at::detail::createCPUGenerator(42);
  const auto x = b.input(at::zeros({50}));
  b.call("aten::normal_", {x, 0.0, 1.0, generator});
  const auto other = b.one("aten::bernoulli", {b.one("aten::sigmoid", {x}), generator});
  b.call("aten::uniform_", {other, -1.0, 2.0, generator});
  b.output(x, 0);
  b.output(other);
  check(name(), b);  // runs twice: the states must not have moved
}

TEST_P(Conformance, UndefinedResults) {
  for (const auto& mask : {c10::List<bool>({false, true, false}), c10::List<bool>({true, false, true})}) {
    GraphBuilder b;
    const auto x = b.input(at::randn({2, 3, 8, 8}));
    const auto weight = b.input(at::randn({4, 3, 3, 3}));
    const auto gradient = b.input(at::randn({2, 4, 6, 6}));
    using Ints = std::vector<std::int64_t>;
    const auto results = b.call("aten::convolution_backward",
                                {gradient, x, weight, Ints{4}, Ints{1, 1}, Ints{0, 0}, Ints{1, 1}, false, Ints{0, 0}, 1, mask});
    ASSERT_EQ(results.size(), 3);
    for (const at::Tensor& result : results) {
      if (result.defined()) {
        b.output(result);
      }
    }
    check(name(), b);
  }
}

TEST_P(Conformance, EmptyTensors) {
  GraphBuilder b;
  const auto x = b.input(at::empty({0, 4}));
  const auto y = b.input(at::randn({4, 0}));
  b.output(b.one("aten::mm", {x, b.input(at::randn({4, 3}))}));
  b.output(b.one("aten::mm", {y, x}));
  b.output(b.one("aten::sum", {x}));
  const auto made = b.one("aten::exp", {x});
  b.call("aten::neg_", {made});
  b.output(made);
  check(name(), b);
}

TEST_P(Conformance, DTypes) {
  for (const auto type : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kFloat, at::kDouble,
                          at::kBFloat16, at::kComplexFloat, at::kComplexDouble, at::kBool}) {
    GraphBuilder b;
    const auto x = b.input(at::randint(0, 5, {17}).to(type));
    const auto y = b.input(at::randint(1, 5, {17}).to(type));
    b.output(b.one("aten::mul.Tensor", {x, y}));
    b.output(b.one("aten::_to_copy", {x, at::kFloat}));
    b.output(b.one("aten::eq.Tensor", {x, y}));
    const auto changed = b.one("aten::clone", {x});
    b.call("aten::copy_", {changed, y});
    b.output(changed);
    check(name(), b);
  }
}

TEST_P(Conformance, UndefinedContent) {
  GraphBuilder b;
  const auto x = b.input(at::randn({4, 4}));
  // As the recorder notes storage that nothing has written: a node with no arguments.
  const auto made = b.one("aten::clone", {x});
  b.graph.nodes.back().op = &ops::empty;
  b.graph.nodes.back().args.clear();
  b.call("aten::zero_", {made});
  b.call("aten::copy_", {made.select(1, 3), x.select(0, 1)});
  b.output(made);
  check(name(), b);
}

TEST_P(Conformance, ValuesThatDieInside) {
  GraphBuilder b;
  auto value = b.input(at::randn({64, 64}));
  for (int i = 0; i < 20; ++i) {
    const auto product = b.one("aten::mm", {value, value.t()});
    const auto bounded = b.one("aten::tanh", {product});
    value = b.one("aten::add.Tensor", {bounded, value, 0.5});
  }
  b.output(value);
  check(name(), b);
}

TEST_P(Conformance, FailingOpNamesOpAndLineAndLeavesTheEngineUsable) {
  GraphBuilder good;
  const auto x = good.input(at::randn({4}));
  good.output(good.one("aten::exp", {x}));
  Engine& tested = engine(name());
  const auto good_plan = tested.compile(good.graph, {.exact = true});

  GraphBuilder bad;
  const auto y = bad.input(at::randn({4}));
  const auto where = bad.input(at::arange(3, 6));
  const auto scaled = bad.one("aten::mul.Tensor", {y, y});
  const auto picked = bad.note("aten::index_select", {scaled, 0, where}, {at::empty({3})}, 12);
  bad.output(scaled);
  bad.output(picked[0]);
  const auto bad_plan = tested.compile(bad.graph, {.exact = true});
  const std::size_t used = tested.memory().used;
  for (int i = 0; i < 2; ++i) {
    try {
      test::run(tested, *bad_plan, bad);
      FAIL() << "expected an error";
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.rfind("[aten::index_select] ", 0), 0) << message;
      EXPECT_NE(message.find("out of range"), std::string::npos) << message;
      EXPECT_NE(message.find("train.py:12"), std::string::npos) << message;
      EXPECT_EQ(message.find("C++ CapturedTraceback"), std::string::npos) << message;
      EXPECT_TRUE(error.kind() == ErrorKind::Index || error.kind() == ErrorKind::Runtime);
    }
    test::expect_equal(test::run(tested, *good_plan, good), good);
  }
  EXPECT_LE(tested.memory().used, used + (std::size_t{4} << 20U));
}

TEST_P(Conformance, IndexErrorKeepsItsKind) {
  GraphBuilder bad;
  const auto x = bad.input(at::randn({4, 4}));
  c10::List<std::optional<at::Tensor>> indices;
  indices.push_back(bad.input(at::arange(7, 9)));
  bad.output(bad.note("aten::index.Tensor", {x, indices}, {at::empty({2, 4})}, 3)[0]);
  Engine& tested = engine(name());
  const auto plan = tested.compile(bad.graph, {.exact = true});
  try {
    test::run(tested, *plan, bad);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Index) << error.what();
  }
}

TEST_P(Conformance, OutOfMemoryIsAnError) {
  GraphBuilder bad;
  const auto x = bad.input(at::ones({1}));
  // 1 EiB, more than any address space.
  const std::int64_t many = std::int64_t{1} << 58;
  bad.note("aten::repeat", {x, std::vector<std::int64_t>{many}}, {at::empty({1})}, 9);
  Value& made = bad.graph.values.back();
  made.geometry.sizes = {many};
  made.nbytes = static_cast<std::size_t>(many) * 4;
  bad.output(x);
  bad.graph.outputs[0].value = static_cast<ValueId>(bad.graph.values.size()) - 1;
  Engine& tested = engine(name());
  for (const bool inside : {false, true}) {
    GraphBuilder graph = bad;
    if (inside) {
      graph.graph.outputs.clear();
      graph.expected.clear();
    }
    const auto plan = tested.compile(graph.graph, {.exact = true});
    try {
      test::run(tested, *plan, graph);
      FAIL() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::OutOfMemory) << error.what();
    }
  }
  EXPECT_THROW(tested.allocate(std::size_t{1} << 60U), Error);
}

TEST_P(Conformance, ConvolutionalNetForwardAndBackward) {
  using Ints = std::vector<std::int64_t>;
  for (const bool channels_last : {false, true}) {
    GraphBuilder b;
    auto image = at::randn({2, 3, 16, 16});
    if (channels_last) {
      image = image.contiguous(at::MemoryFormat::ChannelsLast);
    }
    const auto x = b.input(image);
    const auto weight = b.input(at::randn({8, 3, 3, 3}));
    const auto gamma = b.input(at::rand({8}));
    const auto beta = b.input(at::randn({8}));
    const auto mean = b.input(at::zeros({8}));
    const auto variance = b.input(at::ones({8}));
    const auto y =
        b.one("aten::convolution", {x, weight, c10::IValue(), Ints{1, 1}, Ints{1, 1}, Ints{1, 1}, false, Ints{0, 0}, 1});
    const auto norm = b.call("aten::native_batch_norm", {y, gamma, beta, mean, variance, true, 0.1, 1e-5}, {3, 4});
    const auto active = b.one("aten::relu", {norm[0]});
    const auto pooled = b.call("aten::max_pool2d_with_indices", {active, Ints{2, 2}, Ints{2, 2}, Ints{0, 0}, Ints{1, 1}, false});
    const auto gradient = b.one("aten::full_like", {pooled[0], 0.25});
    const auto to_active = b.one("aten::max_pool2d_with_indices_backward",
                                 {gradient, active, Ints{2, 2}, Ints{2, 2}, Ints{0, 0}, Ints{1, 1}, false, pooled[1]});
    const auto to_norm = b.one("aten::threshold_backward", {to_active, active, 0});
    const auto back = b.call("aten::native_batch_norm_backward", {to_norm, y, gamma, mean, variance, norm[1], norm[2], true, 1e-5,
                                                                  c10::List<bool>({true, true, true})});
    const auto to_weight =
        b.call("aten::convolution_backward", {back[0], x, weight, c10::IValue(), Ints{1, 1}, Ints{1, 1}, Ints{1, 1}, false,
                                              Ints{0, 0}, 1, c10::List<bool>({true, true, false})});
    b.call("aten::add_.Tensor", {weight, to_weight[1], -0.1});
    b.call("aten::add_.Tensor", {gamma, back[1], -0.1});
    b.call("aten::add_.Tensor", {beta, back[2], -0.1});
    b.output(weight, 1);
    b.output(gamma, 2);
    b.output(beta, 3);
    b.output(mean, 4);
    b.output(variance, 5);
    b.output(to_weight[0]);
    b.output(pooled[0]);
    check(name(), b);
  }
}

TEST_P(Conformance, MemoryIsCounted) {
  Engine& tested = engine(name());
  const std::size_t before = tested.memory().used;
  {
    const Memory memory = tested.allocate(1000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 64, 0U);
    EXPECT_EQ(tested.memory().used, before + 1000);
    const Memory copy = tested.clone(memory);
    EXPECT_NE(copy.data(), memory.data());
    EXPECT_EQ(copy.nbytes(), 1000);
    EXPECT_GE(tested.memory().peak, before + 2000);
  }
  EXPECT_EQ(tested.memory().used, before);
}

}  // namespace
}  // namespace spool
