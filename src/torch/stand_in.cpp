#include "src/torch/stand_in.h"

#include "src/torch/encode.h"
#include "src/torch/rules.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace spool::torch_side {
namespace {

// Calls the function for each Meta tensor in the argument.
template <class F>
void visit(const c10::IValue& argument, F&& function) {
  visit_tensors(argument, [&](const at::Tensor& tensor) {
    if (tensor.is_meta()) {
      function(tensor);
    }
  });
}

class StandIns {
 public:
  explicit StandIns(c10::ArrayRef<c10::IValue> arguments) {
    // Arguments may share a storage, whose stand-in must hold all of them.
    for (const auto& argument : arguments) {
      visit(argument, [this](const at::Tensor& tensor) {
        const size_t bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                                              static_cast<size_t>(tensor.storage_offset()));
        auto& wanted = bytes_[tensor.storage().unsafeGetStorageImpl()];
        wanted = std::max(wanted, bytes);
      });
    }
  }

  c10::IValue stand_in(const c10::IValue& argument) {
    return map_tensors(argument, [this](const at::Tensor& tensor) { return stand_in(tensor); });
  }

  // The argument that a result is, resized as the op resized its stand-in; or a new Meta tensor.
  c10::IValue original(const c10::IValue& result) const {
    return map_tensors(result, [this](const at::Tensor& tensor) { return original(tensor); });
  }

 private:
  at::Tensor stand_in(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_meta()) {
      return tensor;
    }
    auto& known = stand_ins_[tensor.unsafeGetTensorImpl()];
    if (known.second.defined()) {
      return known.second;
    }
    auto* key = tensor.storage().unsafeGetStorageImpl();
    auto it = storages_.find(key);
    if (it == storages_.end()) {
      const size_t bytes = bytes_.at(key);
      c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::GetCPUAllocator(), /*resizable=*/true);
      std::memset(storage.mutable_data(), 0, bytes);
      it = storages_.emplace(key, std::move(storage)).first;
    }
    auto copy = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(it->second), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                         tensor.dtype());
    copy.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    known = {tensor, copy};
    return copy;
  }

  at::Tensor original(const at::Tensor& result) const {
    if (!result.defined()) {
      return result;
    }
    for (const auto& [impl, pair] : stand_ins_) {
      if (!pair.second.is_same(result)) {
        continue;
      }
      if (pair.first.sizes() != result.sizes()) {
        resize_out(pair.first, result.sizes());
        pair.first.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides());
      }
      return pair.first;
    }
    return make_meta_strided(result.sizes(), result.strides(), result.scalar_type());
  }

  std::unordered_map<const c10::StorageImpl*, size_t> bytes_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;
  std::unordered_map<const c10::TensorImpl*, std::pair<at::Tensor, at::Tensor>> stand_ins_; // argument and stand-in
};

// Combinations of op and dtypes that a CPU kernel has taken, or that could not be tried.
class Tried {
 public:
  static Tried& get() {
    static auto* tried = new Tried();
    return *tried;
  }
  bool has(const std::string& combination) {
    const std::shared_lock lock(mutex_);
    return combinations_.count(combination) != 0;
  }
  void add(const std::string& combination) {
    const std::unique_lock lock(mutex_);
    combinations_.insert(combination);
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_set<std::string> combinations_;
};

bool complains_of_dtypes(const std::string& message) {
  for (const char* words : {"not implemented for '", "dtype", "scalar type"}) {
    if (message.find(words) != std::string::npos) {
      return true;
    }
  }
  return false;
}

bool complains_of_overlap(const std::string& message) { return message.find("unsupported operation") != std::string::npos; }

// Strings name a variant of the op; a message about one begins with or quotes the argument's name.
bool complains_of_strings(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, const std::string& message) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isString() && message.find(op.schema().arguments()[i].name()) != std::string::npos) {
      return true;
    }
  }
  return false;
}

bool small(c10::ArrayRef<c10::IValue> arguments, int64_t most_bytes) {
  int64_t bytes = 0;
  for (const auto& argument : arguments) {
    visit(argument, [&](const at::Tensor& tensor) { bytes += static_cast<int64_t>(tensor.nbytes()); });
  }
  return bytes <= most_bytes;
}

// The trial's warnings are about numbers that nobody has asked for.
class Silent final : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

// Ops for integers only: float is no safe dtype for them.
bool takes_integers_only(const std::string& name) {
  for (const char* prefix : {"aten::bitwise_", "aten::__", "aten::gcd", "aten::lcm"}) {
    if (name.rfind(prefix, 0) == 0) {
      return true;
    }
  }
  return false;
}

// Dtypes and strings. Empty where all tensors are float, the op takes those, and there are no strings.
std::string dtype_combination(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  std::string dtypes;
  bool all_float = true;
  for (const auto& argument : arguments) {
    visit(argument, [&](const at::Tensor& tensor) {
      const char dtype = static_cast<char>('A' + static_cast<int>(tensor.scalar_type()));
      all_float = all_float && tensor.scalar_type() == at::kFloat;
      // Long lists of tensors of one dtype count once.
      if (dtypes.empty() || dtypes.back() != dtype) {
        dtypes.push_back(dtype);
      }
    });
    if (argument.isString()) {
      dtypes += argument.toStringRef();
      all_float = false;
    }
    dtypes.push_back(',');
  }
  return all_float && !takes_integers_only(op.operator_name().name) ? std::string()
                                                                    : c10::toString(op.operator_name()) + " " + dtypes;
}

}  // namespace

void run_on_stand_ins(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const torch::jit::Stack arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  StandIns stand_ins(arguments);
  torch::jit::Stack local;
  for (size_t i = 0; i < count; ++i) {
    // A trial run must not move the default generator on.
    const bool draws = schema.arguments()[i].type()->str() == "Generator?" || schema.arguments()[i].type()->str() == "Generator";
    local.push_back(draws ? c10::IValue(at::detail::createCPUGenerator()) : stand_ins.stand_in(arguments[i]));
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &local);
  torch::jit::drop(stack, count);
  for (const auto& result : local) {
    stack.push_back(stand_ins.original(result));
  }
}

// Runs the op on stand-ins of small arguments to see whether it refuses them; throws its error if `concerns` says that the message
// is one that counts. False: the arguments are too large for a trial.
template <class Concerns>
static bool try_on_stand_ins(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, int64_t most_bytes,
                             const Concerns& concerns) {
  if (!small(arguments, most_bytes)) {
    return false;
  }
  Silent handler;
  const c10::WarningUtils::WarningHandlerGuard no_warnings(&handler);
  torch::jit::Stack stack = arguments;
  try {
    run_on_stand_ins(op, stack);
  } catch (const c10::Error& error) {
    if (concerns(error.msg())) {
      throw;
    }
    // Zeros are not always good values (a division, a distribution); what the values are is not the question here.
  }
  return true;
}

bool has_untried_dtypes(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  const std::string combination = dtype_combination(op, arguments);
  return !combination.empty() && !Tried::get().has(combination);
}

void check_dtypes(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  const bool tried = try_on_stand_ins(op, arguments, 1 << 20, [&](const std::string& message) {
    return complains_of_dtypes(message) || complains_of_strings(op, arguments, message);
  });
  if (tried) {
    Tried::get().add(dtype_combination(op, arguments));
  }
}

void check_overlap(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  try_on_stand_ins(op, arguments, 64 << 20, complains_of_overlap);
}

}  // namespace spool::torch_side
