#include "src/torch/run_at_once.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <c10/util/strides.h>

#include <unordered_map>

#include "src/runtime/device.h"
#include "src/runtime/metrics.h"
#include "src/runtime/watch.h"
#include "src/torch/encode.h"
#include "src/torch/generator.h"
#include "src/torch/lazy.h"

namespace spool::torch_side {
namespace {

void copy_bits(const at::Tensor& from, const at::Tensor& to) {
  to._set_conj(from.is_conj());
  to._set_neg(from.is_neg());
}

BufferPtr new_buffer(std::size_t nbytes) {
  auto buffer = std::make_shared<Buffer>();
  buffer->nbytes = nbytes;
  buffer->memory = Device::get().engine().allocate(nbytes);
  return buffer;
}

/// A buffer that takes over a CPU storage.
BufferPtr adopt_host(const c10::Storage& storage) {
  auto buffer = std::make_shared<Buffer>();
  buffer->nbytes = storage.nbytes();
  auto* kept = new c10::Storage(storage);
  buffer->memory =
      Memory(storage.mutable_data(), storage.nbytes(), kept, [](void* context) { delete static_cast<c10::Storage*>(context); });
  return buffer;
}

/// The content of a slot for reading, or for writing in place (`mutable_content`). Uninitialised content is made.
BufferPtr content(Slot& slot, const char* op, bool mutable_content) {
  Device& device = Device::get();
  BufferPtr buffer = device.read(slot, op);
  const bool kept_elsewhere = buffer != nullptr && buffer.use_count() > 2;  // beside the slot and this reference
  if (buffer == nullptr || (mutable_content && kept_elsewhere)) {
    const BufferPtr fresh = new_buffer(slot.nbytes);
    if (buffer != nullptr) {
      fresh->memory = device.engine().clone(buffer->memory);
    }
    const auto lock = device.lock();
    slot.buffer = fresh;
    return fresh;
  }
  return buffer;
}

/// CPU tensors over the content of an op's lazy arguments; those that share a storage share it here.
class HostTwins {
 public:
  explicit HostTwins(const char* op) : op_(op) {}

  at::Tensor make(const at::Tensor& tensor, bool writes) {
    if (!is_lazy(tensor)) {
      return tensor;
    }
    Slot& slot = slot_of(tensor);
    auto known = by_slot_.find(&slot);
    if (known == by_slot_.end()) {
      const at::Tensor whole = cpu_alias(content(slot, op_, writes), {DType::UInt8, 1, 0, {0}, {1}});
      known = by_slot_.emplace(&slot, whole.storage()).first;
      lazy_of_[whole.storage().unsafeGetStorageImpl()] = tensor.storage();
    }
    at::Tensor twin = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(known->second),
                                                               c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
    twin.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    copy_bits(tensor, twin);
    return twin;
  }

  /// The lazy tensor for a result: on its argument's storage if it aliases one, on new storage otherwise.
  at::Tensor to_lazy(const at::Tensor& result) {
    if (!result.defined() || is_lazy(result)) {
      return result;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(result.layout() == at::kStrided && !result.is_quantized(), "[", op_,
                                "] gives a tensor of layout ", result.layout(), ", which device ", lazy_device(),
                                " does not have; move its arguments to the CPU first");
    const Geometry geometry = geometry_of(result);
    c10::Storage& lazy = lazy_of_[result.storage().unsafeGetStorageImpl()];
    if (!lazy) {
      Slot& slot = *new Slot(result.storage().nbytes());
      slot.buffer = adopt_host(result.storage());
      lazy = adopt(slot);
    }
    return make_tensor(lazy, geometry);
  }

 private:
  const char* op_;
  std::unordered_map<const Slot*, c10::Storage> by_slot_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> lazy_of_;
};

/// A CPU kernel may have resized or re-stored an argument (out=, set_): the lazy tensor follows.
void follow_changes(const at::Tensor& lazy, const at::Tensor& twin, const void* before) {
  if (twin.storage().data() != before) {
    Slot& slot = *new Slot(twin.storage().nbytes());
    slot.buffer = adopt_host(twin.storage());
    rebind(lazy.storage(), slot);
  }
  if (twin.sizes() != lazy.sizes() || twin.strides() != lazy.strides()) {
    lazy.unsafeGetTensorImpl()->set_sizes_and_strides(twin.sizes(), twin.strides(), twin.storage_offset());
  }
}

/// A random fill of one tensor by numbers that don't depend on its content: no need to know or to cut what it held.
bool is_fill(const OpInfo& info, const torch::jit::Stack& arguments) {
  std::size_t tensors = 0;
  for (const c10::IValue& value : arguments) {
    visit_tensors(value, [&](const at::Tensor& /*tensor*/) { ++tensors; });
  }
  return info.random && tensors == 1 && info.returns.size() == 1 && info.returns[0].kind == ReturnInfo::Kind::Argument &&
         info.returns[0].argument == 0 && arguments[0].isTensor() && is_lazy(arguments[0].toTensor());
}

void use_host_generator(const OpInfo& info, torch::jit::Stack& arguments) {
  const auto& schema = info.handle.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isGenerator()) {
      arguments[i] = cpu_generator(arguments[i].toGenerator());
    } else if (arguments[i].isDevice() && schema[i].name() == "device") {
      arguments[i] = c10::Device(c10::DeviceType::CPU);
    }
  }
}

void call_on_host(const OpInfo& info, torch::jit::Stack& arguments) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  info.handle.callBoxed(arguments);
}

}  // namespace

at::Tensor read_on_host(const at::Tensor& lazy, const char* op) {
  return with_torch_errors([&] {
    const metrics::Timer timer("TransferFromDeviceTime");
    at::Tensor alias = cpu_alias(content(slot_of(lazy), op, false), geometry_of(lazy));
    copy_bits(lazy, alias);
    return alias;
  });
}

void write_from_host(const at::Tensor& lazy, const std::function<void(const at::Tensor&)>& fill, bool by_strides) {
  with_torch_errors([&] {
    const metrics::Timer timer("TransferToDeviceTime");
    Device& device = Device::get();
    Slot& slot = slot_of(lazy);
    const Geometry geometry = geometry_of(lazy);
    const auto replaceable = [&] { return !device.tape().touches(slot) && geometry.covers(slot.nbytes); };
    bool replace = [&] {
      const auto lock = device.lock();
      return replaceable();
    }();
    if (replace) {
      const BufferPtr buffer = new_buffer(slot.nbytes);
      const at::Tensor target = cpu_alias(buffer, geometry);
      copy_bits(lazy, target);
      fill(target);
      const auto lock = device.lock();
      if (replaceable()) {
        slot.buffer = buffer;
        if (Watch* watch = Watch::here(); watch != nullptr) {
          watch->filled(slot, geometry);
        }
        return;
      }
    }
    // The tape has used the old content, or only a part is written: record the write.
    const auto rows = c10::contiguous_strides(lazy.sizes());
    const at::Tensor source = make_empty(lazy.sizes(), by_strides ? lazy.strides() : c10::IntArrayRef(rows), lazy.scalar_type());
    const BufferPtr buffer = new_buffer(slot_of(source).nbytes);
    fill(cpu_alias(buffer, geometry_of(source)));
    slot_of(source).buffer = buffer;
    if (Watch* watch = Watch::here(); watch != nullptr) {
      watch->filled(slot_of(source), geometry_of(source));
    }
    const at::AutoDispatchBelowADInplaceOrView guard;
    lazy.copy_(source);
  });
}

void run_at_once(const OpInfo& info, torch::jit::Stack& stack) {
  if (Extraction* extraction = Extraction::here(); extraction != nullptr) {
    // Before anything is drawn or counted: the caller will run the graph in another way.
    with_torch_errors([&] { extraction->abandon(str(info.op.name, " can't be recorded")); });
  }
  const std::size_t count = info.is_number.size();
  torch::jit::Stack arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  torch::jit::Stack host = arguments;
  use_host_generator(info, host);

  if (is_fill(info, arguments)) {
    metrics::count("RandomFill");
    const auto fill = [&](const at::Tensor& target) {
      host[0] = target;
      call_on_host(info, host);
    };
    write_from_host(arguments[0].toTensor(), fill, /*by_strides=*/true);
    torch::jit::drop(stack, count);
    stack.push_back(arguments[0]);
    return;
  }

  metrics::count(info.handle.operator_name().name);
  if (Watch* watch = Watch::here(); watch != nullptr) {
    watch->ran_at_once(info.op);
  }
  with_torch_errors([&] {
    Device& device = Device::get();
    const char* op = info.op.name.c_str();
    std::vector<Slot*> read;
    std::vector<Slot*> written;
    for (std::size_t i = 0; i < count; ++i) {
      visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
        if (is_lazy(tensor)) {
          (info.op.mutates[i] != 0 ? written : read).push_back(&slot_of(tensor));
        } else if (tensor.dim() != 0 && !info.traits.takes_cpu_tensors) {
          throw_device_error(tensor);
        }
      });
    }
    device.cut_for(read, op, Cut::RunAtOnce);
    device.cut_for(written, op, Cut::RunAtOnce, /*touched=*/true);
    if (!written.empty()) {
      device.wait_idle();  // plans in flight may still read what is about to change
    }
    HostTwins twins(op);
    struct Written {
      at::Tensor lazy;
      at::Tensor twin;
    };
    std::vector<Written> changed;
    for (std::size_t i = 0; i < count; ++i) {
      const bool writes = info.op.mutates[i] != 0;
      host[i] = map_tensors(host[i], [&](const at::Tensor& tensor) {
        at::Tensor twin = twins.make(tensor, writes);
        if (writes && is_lazy(tensor)) {
          changed.push_back({tensor, twin});
        }
        return twin;
      });
    }
    std::vector<const void*> before;
    before.reserve(changed.size());
    for (const Written& pair : changed) {
      before.push_back(pair.twin.storage().data());
    }
    call_on_host(info, host);
    for (std::size_t i = 0; i < changed.size(); ++i) {
      follow_changes(changed[i].lazy, changed[i].twin, before[i]);
    }
    torch::jit::drop(stack, count);
    for (std::size_t i = 0; i < info.returns.size(); ++i) {
      const ReturnInfo& returned = info.returns[i];
      if (returned.kind == ReturnInfo::Kind::Argument) {
        stack.push_back(arguments[returned.argument]);
      } else {
        stack.push_back(map_tensors(host[i], [&](const at::Tensor& tensor) { return twins.to_lazy(tensor); }));
      }
    }
  });
}

}  // namespace spool::torch_side
