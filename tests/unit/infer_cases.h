// What the tests of infer() share: each case runs an op on the CPU and infers it on Meta tensors of the same geometry, then compares sizes,
// strides, dtype, which results are arguments, and the error where there is one.
#pragma once

#include "src/torch/infer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <typeinfo>
#include <vector>

namespace spool::torch_side {

using c10::IValue;
using Sizes = std::vector<int64_t>;

inline at::Tensor tensor(const Sizes& sizes, at::ScalarType dtype = at::kFloat) { return at::ones(sizes, dtype); }
inline at::Tensor channels_last(const Sizes& sizes, at::ScalarType dtype = at::kFloat) {
  return tensor(sizes, dtype).contiguous(sizes.size() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast);
}
// Sizes given; the last two dimensions lie in memory the other way round.
inline at::Tensor transposed(Sizes sizes, at::ScalarType dtype = at::kFloat) {
  std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  return tensor(sizes, dtype).transpose(-1, -2);
}
// Every second element of a row: not dense.
inline at::Tensor strided(Sizes sizes, at::ScalarType dtype = at::kFloat) {
  sizes.back() *= 2;
  return tensor(sizes, dtype).slice(-1, 0, std::nullopt, 2);
}
inline at::Tensor indices(const Sizes& sizes) { return at::zeros(sizes, at::kLong); }
inline IValue list(const std::vector<at::Tensor>& tensors) { return c10::List<at::Tensor>(tensors); }
inline IValue optional_list(const std::vector<std::optional<at::Tensor>>& tensors) {
  c10::List<std::optional<at::Tensor>> result;
  for (const auto& each : tensors) {
    result.push_back(each);
  }
  return result;
}
inline IValue bools(const std::vector<bool>& values) {
  c10::List<bool> result;
  for (const bool value : values) {
    result.push_back(value);
  }
  return result;
}

inline const IValue none;

inline c10::OperatorHandle find(const std::string& full_name) {
  const size_t dot = full_name.find('.');
  const auto name = "aten::" + full_name.substr(0, dot);
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(),
                                                        dot == std::string::npos ? "" : full_name.substr(dot + 1).c_str());
}

// Meta tensors for the tensors among the arguments; those that share a storage still do.
class MetaArguments {
 public:
  IValue operator()(const IValue& argument) {
    if (argument.isTensor()) {
      return make(argument.toTensor());
    }
    if (argument.isTensorList()) {
      c10::List<at::Tensor> result;
      for (const at::Tensor& each : argument.toTensorVector()) {
        result.push_back(make(each));
      }
      return result;
    }
    if (argument.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> result;
      for (const std::optional<at::Tensor>& each : argument.toOptionalTensorVector()) {
        result.push_back(each.has_value() ? std::optional(make(*each)) : std::nullopt);
      }
      return result;
    }
    return argument;
  }

 private:
  at::Tensor make(const at::Tensor& original) {
    if (!original.defined() || original.unsafeGetTensorImpl()->is_wrapped_number()) {
      return original;
    }
    auto& known = tensors_[original.unsafeGetTensorImpl()];
    if (!known.defined()) {
      auto& storage = storages_[original.storage().unsafeGetStorageImpl()];
      if (!storage.defined()) {
        storage = at::empty({static_cast<int64_t>(original.storage().nbytes())}, at::TensorOptions(at::kMeta).dtype(at::kByte));
      }
      known = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage.storage()),
                                                       c10::DispatchKeySet(c10::DispatchKey::Meta), original.dtype());
      known.unsafeGetTensorImpl()->set_sizes_and_strides(original.sizes(), original.strides(), original.storage_offset());
    }
    return known;
  }

  std::map<const void*, at::Tensor> tensors_;
  std::map<const void*, at::Tensor> storages_;
};

struct Outcome {
  torch::jit::Stack results;
  std::string error;  // type and message, empty where there was none
};

inline Outcome attempt(const std::function<void(torch::jit::Stack&)>& run, torch::jit::Stack stack) {
  Outcome outcome;
  try {
    run(stack);
    outcome.results = std::move(stack);
  } catch (const c10::Error& error) {
    outcome.error = std::string(typeid(error).name()) + ": " + error.what_without_backtrace();
  }
  return outcome;
}

inline void compare(const IValue& eager, const IValue& inferred, const std::vector<IValue>& arguments,
                    const torch::jit::Stack& meta) {
  ASSERT_EQ(eager.isTensor(), inferred.isTensor());
  if (!eager.isTensor()) {
    ASSERT_TRUE(eager.isTensorList() && inferred.isTensorList());
    ASSERT_EQ(eager.toTensorVector().size(), inferred.toTensorVector().size());
    for (size_t i = 0; i < eager.toTensorVector().size(); ++i) {
      compare(eager.toTensorVector()[i], inferred.toTensorVector()[i], arguments, meta);
    }
    return;
  }
  const auto &expected = eager.toTensor(), &actual = inferred.toTensor();
  ASSERT_EQ(expected.defined(), actual.defined());
  if (!expected.defined()) {
    return;
  }
  EXPECT_EQ(expected.sizes(), actual.sizes());
  EXPECT_EQ(expected.strides(), actual.strides());
  EXPECT_EQ(expected.scalar_type(), actual.scalar_type());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor() && meta[i].isTensor()) {
      EXPECT_EQ(arguments[i].toTensor().is_same(expected), meta[i].toTensor().is_same(actual)) << "argument " << i;
    }
  }
}

// Arguments after the given ones take their defaults.
inline void check(const std::string& name, std::vector<IValue> arguments, std::optional<InferredBy> by = std::nullopt) {
  SCOPED_TRACE(name);
  const at::NoGradGuard no_grad;
  const auto op = find(name);
  const auto& schema = op.schema();
  for (size_t i = arguments.size(); i < schema.arguments().size(); ++i) {
    const auto& value = schema.arguments()[i].default_value();
    arguments.push_back(value.value_or(IValue()));
  }
  torch::jit::Stack meta;
  MetaArguments make_meta_argument;
  for (const auto& argument : arguments) {
    meta.push_back(make_meta_argument(argument));
  }
  InferredBy found = InferredBy::Nothing;
  const auto inferred = attempt([&](torch::jit::Stack& stack) { found = infer(op, stack); }, meta);
  const auto eager = attempt([&](torch::jit::Stack& stack) { op.callBoxed(stack); }, arguments);
  EXPECT_EQ(eager.error, inferred.error);
  if (!eager.error.empty() || !inferred.error.empty()) {
    return;
  }
  if (by.has_value()) {
    EXPECT_EQ(static_cast<int>(*by), static_cast<int>(found));
  } else {
    EXPECT_TRUE(found == InferredBy::Rule || found == InferredBy::StructuredMeta) << static_cast<int>(found);
  }
  ASSERT_EQ(eager.results.size(), inferred.results.size());
  for (size_t i = 0; i < eager.results.size(); ++i) {
    SCOPED_TRACE("result " + std::to_string(i));
    compare(eager.results[i], inferred.results[i], arguments, meta);
  }
}

}  // namespace spool::torch_side
