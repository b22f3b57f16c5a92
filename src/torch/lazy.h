// Lazy tensors: ordinary TensorImpls on xla:0 with an ordinary Storage that has no bytes; the storage's context is a slot.
// Thread-safe as PyTorch's tensors are: const operations from any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include "src/base/error.h"
#include "src/tape/geometry.h"
#include "src/tape/slot.h"

namespace spool::torch_side {

inline c10::Device lazy_device() { return {c10::DeviceType::XLA, 0}; }

inline bool is_lazy(const at::TensorImpl& tensor) { return tensor.key_set().has_backend(c10::BackendComponent::XLABit); }
inline bool is_lazy(const at::Tensor& tensor) { return tensor.defined() && is_lazy(*tensor.unsafeGetTensorImpl()); }

/// The slot behind a lazy tensor's storage.
Slot& slot_of(const at::TensorImpl& tensor);
inline Slot& slot_of(const at::Tensor& tensor) { return slot_of(*tensor.unsafeGetTensorImpl()); }

/// A new storage that owns the reference to `slot` which the caller holds.
c10::Storage adopt(Slot& slot);

/// Makes `storage` stand for `slot` (owning the caller's reference) instead of what it stood for.
void rebind(const c10::Storage& storage, Slot& slot);

/// Makes `to` stand for the slot that `from` stands for; `from` stands for none afterwards.
void move_slot(const c10::Storage& from, const c10::Storage& to);

/// A tensor with `geometry` on `storage`.
at::Tensor make_tensor(c10::Storage storage, const Geometry& geometry);

/// A new tensor that nothing has written yet.
at::Tensor make_empty(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype);

Geometry geometry_of(const at::TensorImpl& tensor);
inline Geometry geometry_of(const at::Tensor& tensor) { return geometry_of(*tensor.unsafeGetTensorImpl()); }

/// The lazy tensor without its conjugate and negative bits: what lies in its storage.
at::Tensor plain(const at::Tensor& tensor);

/// A CPU tensor with `geometry` over `buffer`'s memory, which it keeps alive.
at::Tensor cpu_alias(const BufferPtr& buffer, const Geometry& geometry);

/// Throws the PyTorch exception that stands for `error`.
[[noreturn]] void throw_as_torch(const Error& error);

/// Runs `body`, turning an Error into PyTorch's exception of that kind.
template <class Body>
auto with_torch_errors(Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw_as_torch(error);
  }
}

}  // namespace spool::torch_side
