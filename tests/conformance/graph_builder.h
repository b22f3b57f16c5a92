// Builds graphs for the conformance suite by running the same calls eagerly: what ATen gave is what engines must give, bit for bit.
//
// Tensors are ordinary CPU tensors. The builder tells values apart by their storages, so views, writes through views and in-place
// chains are written as one would write them in PyTorch.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/engine/engine.h"
#include "src/graph/graph.h"

namespace spool::test {

inline Geometry geometry_of(const at::Tensor& tensor) {
  return {static_cast<DType>(tensor.scalar_type()), static_cast<std::uint8_t>(tensor.itemsize()), tensor.storage_offset(),
          tensor.sizes().vec(), tensor.strides().vec()};
}

/// The operator of that full name ("aten::add.Tensor") as the core sees it; lives as long as the process.
inline const Op& op_named(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Op>> ops;
  auto& op = ops[name];
  if (op == nullptr) {
    const std::size_t dot = name.find('.');
    const auto schema = c10::Dispatcher::singleton().findSchemaOrThrow(
        name.substr(0, dot).c_str(), dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
    op = std::make_unique<Op>();
    op->name = name;
    op->handle = new c10::OperatorHandle(schema);
    for (const c10::Argument& argument : schema.schema().arguments()) {
      op->mutates.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite() ? 1 : 0);
      op->has_mutation |= op->mutates.back() != 0;
    }
  }
  return *op;
}

class GraphBuilder {
 public:
  /// A graph input with the content that `tensor` has now.
  at::Tensor input(const at::Tensor& tensor) {
    graph.inputs.push_back({next_slot_++, enter(tensor)});
    input_bytes.push_back(bytes_of(tensor));
    return tensor;
  }

  /// Calls an op eagerly and notes it. `writes`: arguments that it writes to though its schema does not say so. `line` is the user's.
  std::vector<at::Tensor> call(const std::string& name, std::vector<c10::IValue> args,
                               const std::vector<std::size_t>& writes = {}, int line = 1) {
    const Op& op = op_named(name);
    const auto& handle = *static_cast<const c10::OperatorHandle*>(op.handle);
    const auto& schema = handle.schema();
    while (args.size() < schema.arguments().size()) {
      args.push_back(*schema.arguments()[args.size()].default_value());
    }
    Node node{.op = &op, .args = {}, .results = {}, .fresh = 0, .location = {}};
    node.location = std::make_shared<const Location>(Location{"train.py", line, ""});
    for (std::size_t i = 0; i < args.size(); ++i) {
      const bool mutates = op.mutates[i] != 0 || std::find(writes.begin(), writes.end(), i) != writes.end();
      node.args.push_back(encode(args[i], *schema.arguments()[i].type(), mutates));
    }
    std::vector<at::Tensor> results;
    if (!poisoned) {
      run_eagerly(handle, args, results);
    }
    for (const at::Tensor& result : results) {
      node.results.push_back(result.defined() ? enter(result) : no_value);
    }
    node.fresh = static_cast<std::int32_t>(results.size());
    finish(std::move(node));
    return results;
  }

  /// For calls that ATen refuses: notes the op with results that look like `expected`, without running it.
  std::vector<at::Tensor> note(const std::string& name, std::vector<c10::IValue> args, const std::vector<at::Tensor>& expected,
                               int line) {
    poisoned = true;
    call(name, std::move(args), {}, line);
    poisoned = false;
    Node& node = graph.nodes.back();
    node.fresh = static_cast<std::int32_t>(expected.size());
    for (const at::Tensor& tensor : expected) {
      node.results.push_back(enter(tensor));
    }
    return expected;
  }

  at::Tensor one(const std::string& name, std::vector<c10::IValue> args) { return call(name, std::move(args)).at(0); }

  /// Makes the storage under `tensor` an output; `input`: the graph input that it replaces.
  void output(const at::Tensor& tensor, std::int32_t input = -1) {
    graph.outputs.push_back({next_slot_++, value_of(tensor), input});
    expected.push_back(bytes_of(tensor));
  }

  Graph graph;
  std::vector<std::vector<char>> input_bytes;
  std::vector<std::vector<char>> expected;  ///< per output, taken when it was declared
  std::vector<Number> numbers;
  std::vector<GeneratorState> generators;
  bool poisoned = false;

 private:
  static std::vector<char> bytes_of(const at::Tensor& tensor) {
    const auto* data = static_cast<const char*>(tensor.storage().data());
    return data == nullptr ? std::vector<char>() : std::vector<char>(data, data + tensor.storage().nbytes());
  }

  ValueId new_value(Geometry geometry, std::size_t nbytes) {
    graph.values.push_back({std::move(geometry), nbytes});
    return static_cast<ValueId>(graph.values.size()) - 1;
  }

  ValueId enter(const at::Tensor& tensor) {
    keep_.push_back(tensor);
    Geometry geometry = geometry_of(tensor);
    const std::size_t nbytes = tensor.storage().nbytes();
    if (!geometry.covers(nbytes)) {
      geometry = flat(geometry, nbytes);
    }
    return values_[tensor.storage().unsafeGetStorageImpl()] = new_value(geometry, nbytes);
  }

  ValueId value_of(const at::Tensor& tensor) const { return values_.at(tensor.storage().unsafeGetStorageImpl()); }

  Arg tensor(const at::Tensor& tensor, bool writes) {
    Arg arg;
    if (!tensor.defined()) {
      return arg;
    }
    if (values_.count(tensor.storage().unsafeGetStorageImpl()) == 0) {
      arg.tag = Tag::Number;
      arg.number = {tensor.is_floating_point() ? NumberKind::Double : NumberKind::Int, true,
                    tensor.unsafeGetTensorImpl()->is_wrapped_number(), static_cast<DType>(tensor.scalar_type())};
      arg.parameter = graph.numbers++;
      numbers.push_back(tensor.is_floating_point() ? Number{.real = tensor.item().toDouble()}
                                                   : Number{.integer = tensor.item().toLong()});
      return arg;
    }
    arg.tag = Tag::Tensor;
    arg.geometry = geometry_of(tensor);
    arg.value = value_of(tensor);
    arg.writes = writes;
    return arg;
  }

  Arg scalar(const at::Scalar& value) {
    Arg arg;
    arg.tag = Tag::Number;
    arg.parameter = graph.numbers++;
    Number number;
    if (value.isFloatingPoint()) {
      arg.number.kind = NumberKind::Double;
      number.real = value.toDouble();
    } else if (value.isComplex()) {
      arg.number.kind = NumberKind::Complex;
      number.real = value.toComplexDouble().real();
      number.imag = value.toComplexDouble().imag();
    } else {
      arg.number.kind = value.isBoolean() ? NumberKind::Bool : NumberKind::Int;
      number.integer = value.toLong();
    }
    numbers.push_back(number);
    return arg;
  }

  Arg encode(const c10::IValue& value, const c10::Type& declared, bool writes) {
    const auto* optional = declared.castRaw<c10::OptionalType>();
    const c10::Type& type = optional == nullptr ? declared : *optional->getElementType();
    Arg arg;
    if (value.isTensor()) {
      return tensor(value.toTensor(), writes);
    }
    if (value.isNone()) {
      return arg;
    }
    if (type.kind() == c10::TypeKind::NumberType || type.kind() == c10::TypeKind::FloatType) {
      return scalar(value.toScalar());
    }
    if (value.isInt() || value.isBool()) {
      arg.tag = value.isInt() ? Tag::Int : Tag::Bool;
      arg.integer = value.isInt() ? value.toInt() : static_cast<std::int64_t>(value.toBool());
    } else if (value.isIntList()) {
      arg.tag = Tag::IntList;
      arg.list = value.toIntVector();
    } else if (value.isBoolList()) {
      arg.tag = Tag::BoolList;
      for (const bool element : value.toBoolList()) {
        arg.list.push_back(static_cast<std::int64_t>(element));
      }
    } else if (value.isDoubleList()) {
      arg.tag = Tag::DoubleList;
      arg.reals = value.toDoubleVector();
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      arg.tag = Tag::TensorList;
      for (const c10::IValue& element : value.toListRef()) {
        arg.elements.push_back(element.isNone() ? Arg{} : tensor(element.toTensor(), writes));
      }
    } else if (value.isList()) {
      arg.tag = Tag::NumberList;
      for (const c10::IValue& element : value.toListRef()) {
        arg.elements.push_back(scalar(element.toScalar()));
      }
    } else if (value.isString()) {
      arg.tag = Tag::String;
      arg.text = value.toStringRef();
    } else if (value.isDevice()) {
      arg.tag = Tag::Device;
    } else if (value.isGenerator()) {
      arg.tag = Tag::Generator;
      arg.parameter = graph.generators++;
      generators.push_back(std::make_shared<at::Generator>(value.toGenerator().clone()));
    } else {
      ADD_FAILURE() << "the builder has no argument of type " << value.tagKind();
    }
    return arg;
  }

  void run_eagerly(const c10::OperatorHandle& handle, const std::vector<c10::IValue>& args, std::vector<at::Tensor>& results) {
    const c10::InferenceMode below_autograd;
    torch::jit::Stack stack(args);
    handle.callBoxed(&stack);
    const auto& returns = handle.schema().returns();
    for (std::size_t i = 0; i < returns.size(); ++i) {
      if (returns[i].alias_info() != nullptr) {
        continue;
      }
      if (stack[i].isTensorList()) {
        for (const at::Tensor& element : stack[i].toTensorVector()) {
          results.push_back(element);
        }
      } else {
        results.push_back(stack[i].toTensor());
      }
    }
  }

  void finish(Node node) {
    for (const ValueId old : mutated(node)) {
      const Value before = graph.values[static_cast<std::size_t>(old)];
      const ValueId next = new_value(before.geometry, before.nbytes);
      node.results.push_back(next);
      for (auto& [storage, value] : values_) {
        value = value == old ? next : value;
      }
    }
    graph.nodes.push_back(std::move(node));
  }

  std::map<const c10::StorageImpl*, ValueId> values_;
  std::vector<at::Tensor> keep_;  ///< so that no storage's address comes twice
  std::uint32_t next_slot_ = 0;
};

/// One run of a plan on memory of its engine, filled with what `builder` was given.
struct RunResult {
  std::vector<std::vector<char>> outputs;
  std::vector<const void*> input_addresses;
  std::vector<const void*> output_addresses;
};

/// Plans of these tests are exact, since results are compared to the last bit; fused ones have tests of their own (kernel_*, fuse_test).
inline RunResult run(Engine& engine, Plan& plan, const GraphBuilder& builder) {
  std::vector<Memory> inputs;
  std::vector<Memory> outputs(builder.graph.outputs.size());
  std::vector<Memory*> input_pointers;
  std::vector<Memory*> output_pointers;
  RunResult result;
  inputs.reserve(builder.input_bytes.size());
  for (const auto& bytes : builder.input_bytes) {
    inputs.push_back(engine.allocate(bytes.size()));
    if (!bytes.empty()) {
      std::memcpy(inputs.back().data(), bytes.data(), bytes.size());
    }
    input_pointers.push_back(&inputs.back());
    result.input_addresses.push_back(inputs.back().data());
  }
  for (Memory& output : outputs) {
    output_pointers.push_back(&output);
  }
  engine.run(plan, {input_pointers, output_pointers, builder.numbers, builder.generators});
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::size_t nbytes = builder.expected[i].size();
    EXPECT_GE(outputs[i].nbytes(), nbytes) << "output " << i;
    const auto* data = static_cast<const char*>(outputs[i].data());
    result.outputs.emplace_back(data, data + std::min(nbytes, outputs[i].nbytes()));
    result.output_addresses.push_back(outputs[i].data());
  }
  return result;
}

inline void expect_equal(const RunResult& result, const GraphBuilder& builder) {
  ASSERT_EQ(result.outputs.size(), builder.expected.size());
  for (std::size_t i = 0; i < result.outputs.size(); ++i) {
    EXPECT_TRUE(result.outputs[i] == builder.expected[i]) << "output " << i << " differs from ATen's; the graph:\n"
                                                          << builder.graph;
  }
}

/// Compiles and runs twice (the second run meets memory that the first has used), each time comparing all outputs with ATen's.
inline RunResult check(const std::string& engine_name, const GraphBuilder& builder) {
  Engine& tested = engine(engine_name);
  const auto plan = tested.compile(builder.graph, {.exact = true});
  expect_equal(run(tested, *plan, builder), builder);
  RunResult second = run(tested, *plan, builder);
  expect_equal(second, builder);
  return second;
}

}  // namespace spool::test
