#include "src/torch/recorder.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/AutogradState.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <unordered_map>

#include "src/runtime/device.h"
#include "src/runtime/metrics.h"
#include "src/torch/encode.h"
#include "src/torch/infer.h"
#include "src/torch/lazy.h"
#include "src/torch/op_info.h"
#include "src/torch/run_at_once.h"
#include "src/torch/stand_in.h"

namespace spool::torch_side {
namespace {

std::atomic<std::uint64_t> ops_recorded{0};
std::atomic<std::uint64_t> ops_followed{0};
std::atomic<std::uint64_t> recorder_time{0};
std::atomic<bool> timing{false};

/// Counters are written under the device's lock only, so no read-modify-write is needed.
void increment(std::atomic<std::uint64_t>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

using Clock = std::chrono::steady_clock;

class RecorderTimer {
 public:
  RecorderTimer() : on_(timing.load(std::memory_order_relaxed)), start_(on_ ? Clock::now() : Clock::time_point()) {}
  RecorderTimer(const RecorderTimer&) = delete;
  RecorderTimer& operator=(const RecorderTimer&) = delete;
  ~RecorderTimer() {
    if (on_) {
      recorder_time += static_cast<std::uint64_t>((Clock::now() - start_) / std::chrono::nanoseconds(1));
    }
  }

 private:
  bool on_;
  Clock::time_point start_;
};

/// Stand-ins on key Meta for lazy tensors: same geometry; those that share a storage share it here too.
class MetaTwins {
 public:
  at::Tensor operator()(const at::Tensor& tensor) {
    if (!is_lazy(tensor)) {
      return tensor;
    }
    const at::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    at::Tensor& storage = storages_[&slot_of(impl)];
    if (!storage.defined()) {
      storage = at::detail::empty_meta({static_cast<int64_t>(slot_of(impl).nbytes)}, at::kByte);
    }
    at::Tensor twin = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage.storage()),
                                                               c10::DispatchKeySet(c10::DispatchKey::Meta), impl.dtype());
    twin.unsafeGetTensorImpl()->set_sizes_and_strides(impl.sizes(), impl.strides(), impl.storage_offset());
    return twin;
  }

 private:
  std::unordered_map<const Slot*, at::Tensor> storages_;
};

torch::jit::Stack meta_arguments(const OpInfo& info, const torch::jit::Stack& stack) {
  MetaTwins twins;
  torch::jit::Stack arguments;
  arguments.reserve(info.is_number.size());
  for (auto it = stack.end() - static_cast<std::ptrdiff_t>(info.is_number.size()); it != stack.end(); ++it) {
    if (it->isDevice()) {
      arguments.emplace_back(c10::Device(c10::DeviceType::Meta));
    } else {
      arguments.push_back(map_tensors(*it, [&](const at::Tensor& tensor) { return twins(tensor); }));
    }
  }
  return arguments;
}

void drop_arguments(const OpInfo& info, torch::jit::Stack& stack) { torch::jit::drop(stack, info.is_number.size()); }

const c10::IValue& argument(const OpInfo& info, const torch::jit::Stack& stack, std::size_t index) {
  return stack[stack.size() - info.is_number.size() + index];
}

std::optional<FreshResult> fresh_result(const at::Tensor& inferred) {
  if (!inferred.defined()) {
    return std::nullopt;
  }
  Geometry geometry = geometry_of(inferred);
  geometry.offset = 0;
  const std::size_t nbytes = geometry.storage_bytes();
  return FreshResult{std::move(geometry), nbytes};
}

/// A tensor of an out= argument that inference resized: the lazy one follows. Returns whether there was any.
bool follow_resizes(const OpInfo& info, const torch::jit::Stack& stack, const torch::jit::Stack& inferred) {
  bool resized = false;
  for (std::size_t i = 0; i < info.returns.size(); ++i) {
    if (info.returns[i].kind != ReturnInfo::Kind::Argument || !inferred[i].isTensor()) {
      continue;
    }
    const at::Tensor& twin = inferred[i].toTensor();
    const at::Tensor& tensor = argument(info, stack, info.returns[i].argument).toTensor();
    if (twin.defined() && tensor.defined() && twin.sizes() != tensor.sizes()) {
      resize(tensor, twin.sizes(), twin.strides());
      resized = true;
    }
  }
  return resized;
}

/// Eager looks for elements that share their place by strides of 0 only.
bool is_expanded(const at::Tensor& tensor) {
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) > 1 && tensor.stride(i) == 0) {
      return true;
    }
  }
  return false;
}

/// Whether two tensors share a storage. As in-place operand and operand of one op, those of one geometry are all the same element by element.
bool may_clash(const at::Tensor& written, const at::Tensor& other, bool is_out) {
  return is_lazy(other) && other.unsafeGetTensorImpl()->unsafe_storage().is_alias_of(written.storage()) &&
         (is_out || geometry_of(written) != geometry_of(other));
}

/// Whether all lazy arguments have a storage each: then nothing clashes. Quick, since lists may be long.
bool all_apart(const OpInfo& info, const torch::jit::Stack& stack) {
  std::vector<const c10::StorageImpl*> storages;
  for (std::size_t i = 0; i < info.is_number.size(); ++i) {
    visit_tensors(argument(info, stack, i), [&](const at::Tensor& tensor) {
      if (is_lazy(tensor)) {
        storages.push_back(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
      }
    });
  }
  std::sort(storages.begin(), storages.end());
  return std::adjacent_find(storages.begin(), storages.end()) == storages.end();
}

/// Whether something that is written shares its storage with another argument, or elements of it their place: kernels may refuse that.
bool overlaps(const OpInfo& info, const torch::jit::Stack& stack) {
  const auto& schema = info.handle.schema().arguments();
  const bool apart = all_apart(info, stack);
  for (std::size_t i = 0; i < schema.size(); ++i) {
    if (info.op.mutates[i] == 0) {
      continue;
    }
    bool overlapping = false;
    visit_tensors(argument(info, stack, i), [&](const at::Tensor& written) {
      if (!is_lazy(written) || overlapping) {
        return;
      }
      overlapping = is_expanded(written) || (schema[i].is_out() && !written.is_non_overlapping_and_dense());
      for (std::size_t j = 0; j < schema.size() && !overlapping && !apart; ++j) {
        visit_tensors(argument(info, stack, j), [&](const at::Tensor& other) {
          const bool itself = other.is_same(written) && i == j;
          overlapping = overlapping || (!itself && may_clash(written, other, schema[i].is_out()));
        });
      }
    });
    if (overlapping) {
      return true;
    }
  }
  return false;
}

Results results_of(const OpInfo& info, const torch::jit::Stack& inferred) {
  Results results;
  for (std::size_t i = 0; i < info.returns.size(); ++i) {
    if (info.returns[i].kind == ReturnInfo::Kind::Fresh) {
      results.tensors.push_back(fresh_result(inferred[i].isNone() ? at::Tensor() : inferred[i].toTensor()));
    } else if (info.returns[i].kind == ReturnInfo::Kind::FreshList) {
      const auto list = inferred[i].toTensorVector();
      results.list_lengths.push_back(static_cast<std::uint32_t>(list.size()));
      for (const at::Tensor& tensor : list) {
        results.tensors.push_back(fresh_result(tensor));
      }
    }
  }
  return results;
}

/// Pushes tensors on the slots of the node just recorded, behind the arguments. With the device's lock held.
void push_results(const OpInfo& info, const TapeNode& node, Tape& tape, torch::jit::Stack& stack) {
  const std::size_t first = stack.size() - info.is_number.size();
  const Results& made = node.signature->results;
  std::size_t at = 0;
  std::size_t slot = 0;
  std::size_t list_at = 0;
  const auto next = [&]() -> at::Tensor {
    const auto& result = made.tensors[at++];
    return result.has_value() ? make_tensor(adopt(tape.result(slot++)), result->geometry) : at::Tensor();
  };
  for (const ReturnInfo& returned : info.returns) {
    switch (returned.kind) {
      case ReturnInfo::Kind::Fresh: stack.emplace_back(next()); break;
      case ReturnInfo::Kind::FreshList: {
        c10::List<at::Tensor> list;
        for (std::uint32_t i = 0; i < made.list_lengths[list_at]; ++i) {
          list.push_back(next());
        }
        ++list_at;
        stack.emplace_back(std::move(list));
        break;
      }
      default: stack.push_back(c10::IValue(stack[first + returned.argument]));
    }
  }
}

/// Index tensors may be on the CPU, on every device; they go over as they are.
void upload_cpu_tensors(const OpInfo& info, torch::jit::Stack& stack) {
  for (auto it = stack.end() - static_cast<std::ptrdiff_t>(info.is_number.size()); it != stack.end(); ++it) {
    *it = map_tensors(*it, [](const at::Tensor& tensor) {
      const bool host = tensor.defined() && tensor.device().is_cpu() && tensor.dim() != 0;
      return host ? tensor.to(lazy_device()) : tensor;
    });
  }
}

/// A kernel that takes conjugate and negative views as they are would read them from the bits, which the tape doesn't carry: such
/// operands are resolved by ops of their own.
void resolve_bits(const OpInfo& info, torch::jit::Stack& stack) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  for (auto it = stack.end() - static_cast<std::ptrdiff_t>(info.is_number.size()); it != stack.end(); ++it) {
    *it = map_tensors(*it, [](const at::Tensor& tensor) {
      if (!tensor.defined() || !is_lazy(tensor)) {
        return tensor;
      }
      at::Tensor resolved = tensor.is_conj() || tensor.is_neg() ? plain(tensor) : tensor;
      if (tensor.is_conj()) {
        resolved = resolved.conj_physical();
      }
      return tensor.is_neg() ? resolved.neg() : resolved;
    });
  }
}

/// An op that returns views and has no metadata kernel of its own: its geometry is inferred, its storage is its argument's.
void view(const OpInfo& info, torch::jit::Stack& stack) {
  torch::jit::Stack inferred = meta_arguments(info, stack);
  if (infer(info.handle, inferred) == InferredBy::Nothing) {
    run_at_once(info, stack);
    return;
  }
  torch::jit::Stack results;
  for (std::size_t i = 0; i < info.returns.size(); ++i) {
    const c10::IValue& base = argument(info, stack, info.returns[i].argument);
    TORCH_CHECK_NOT_IMPLEMENTED(base.isTensor() && is_lazy(base.toTensor()), "[", info.op.name,
                                "] can't be recorded: it returns a view of something that is no lazy tensor");
    const c10::Storage& storage = base.toTensor().storage();
    results.push_back(map_tensors(inferred[i], [&](const at::Tensor& twin) { return make_tensor(storage, geometry_of(twin)); }));
  }
  drop_arguments(info, stack);
  stack.insert(stack.end(), results.begin(), results.end());
}

/// What is recorded for the first time, or not where it was expected. Returns null if the op must run at once instead.
const TapeNode* record_plainly(const OpInfo& info, torch::jit::Stack& stack, Call& call, std::unique_lock<std::mutex>& lock) {
  Device& device = Device::get();
  SignaturePtr signature = device.signatures().find(call);
  lock.unlock();  // what follows may take Python's lock
  const LocationPtr location = current_location();
  if (info.op.has_mutation && overlaps(info, stack)) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    check_overlap(info.handle, meta_arguments(info, stack));
  }
  std::optional<Results> results;
  if (signature == nullptr) {
    torch::jit::Stack inferred = meta_arguments(info, stack);
    const InferredBy by = infer(info.handle, inferred);
    if (by == InferredBy::Nothing) {
      return nullptr;
    }
    if (by == InferredBy::DispatcherMeta) {
      metrics::count("DispatcherMeta");
    }
    if (info.op.has_mutation && follow_resizes(info, stack, inferred)) {
      encode(info, stack, call);
    }
    results = results_of(info, inferred);
  }
  lock.lock();
  if (signature == nullptr) {
    signature = device.signatures().intern(call, std::move(*results));
  }
  return device.tape().append(std::move(signature), call, location);
}

/// Autograd counts writes to tensors, but not to lists of them: PyTorch's kernels of the ops on lists do that.
class CountsWritesToLists {
 public:
  CountsWritesToLists(const OpInfo& info, const torch::jit::Stack& stack) {
    if (info.returns.empty() && info.op.has_mutation && info.op.name.starts_with("aten::_foreach_")) {
      written_ = argument(info, stack, 0);
    }
  }
  void done() const {
    visit_tensors(written_, [](const at::Tensor& tensor) {
      if (!tensor.is_inference()) {
        tensor.unsafeGetTensorImpl()->bump_version();
      }
    });
  }

 private:
  c10::IValue written_;
};

}  // namespace

void record(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const RecorderTimer timer;
  record_backward_here();
  const OpInfo& info = op_info(op);
  const CountsWritesToLists writes(info, *stack);
  if (!info.recordable) {
    run_at_once(info, *stack);
    return;
  }
  if (info.has_view) {
    view(info, *stack);
    return;
  }
  if (info.traits.takes_cpu_tensors) {
    upload_cpu_tensors(info, *stack);
  }
  thread_local Call reused;
  Call call = std::move(reused);  // recording can nest, through inference
  encode(info, *stack, call);
  if (call.conjugated) {
    if (info.op.has_mutation) {
      run_at_once(info, *stack);
      return;
    }
    resolve_bits(info, *stack);
    encode(info, *stack, call);
  }

  const bool recorded = with_torch_errors([&] {
    Device& device = Device::get();
    auto lock = device.lock();
    device.bound_tape(call);
    const TapeNode* node = device.follows() ? device.tape().follow(call) : nullptr;
    if (node != nullptr) {
      increment(ops_followed);
    } else {
      node = record_plainly(info, *stack, call, lock);
    }
    if (node == nullptr) {
      return false;
    }
    increment(ops_recorded);
    const auto first = static_cast<std::ptrdiff_t>(stack->size() - info.is_number.size());
    push_results(info, *node, device.tape(), *stack);
    device.recorded();
    lock.unlock();
    stack->erase(stack->begin() + first, stack->begin() + first + static_cast<std::ptrdiff_t>(info.is_number.size()));
    return true;
  });
  reused = std::move(call);
  if (!recorded) {
    run_at_once(info, *stack);
  }
  writes.done();
}

void resize(const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  at::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  Geometry geometry = geometry_of(impl);
  geometry.sizes = sizes.vec();
  geometry.strides = strides.vec();
  const std::size_t needed = geometry.storage_bytes();
  Slot& old = slot_of(impl);
  if (needed > old.nbytes) {
    const bool written = [&] {
      const auto lock = Device::get().lock();
      return old.buffer != nullptr || (Device::get().tape().touches(old) && old.dirty);
    }();
    const at::Tensor grown = make_empty({static_cast<int64_t>(needed)}, {1}, at::kByte);
    if (written && old.nbytes != 0) {
      // The bytes that were there stay at the start of the larger storage.
      const Geometry bytes{DType::UInt8, 1, 0, {static_cast<std::int64_t>(old.nbytes)}, {1}};
      make_tensor(grown.storage(), bytes).copy_(make_tensor(tensor.storage(), bytes));
    }
    move_slot(grown.storage(), tensor.storage());
  }
  impl.set_sizes_and_strides(sizes, strides, impl.storage_offset());
}

void record_backward_here() {
  thread_local const bool done = [] {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    return true;
  }();
  static_cast<void>(done);
}

RecorderStats recorder_stats() { return {ops_recorded.load(), ops_followed.load(), recorder_time.load()}; }

void set_recorder_timing(bool on) { timing = on; }

}  // namespace spool::torch_side
