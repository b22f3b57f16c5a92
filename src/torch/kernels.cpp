// Registrations on key XLA: the recorder for every op, and the few ops that are not recorded: those that make tensors, change
// metadata only, or cross between host and device.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include "src/ops/op_table.h"
#include "src/torch/lazy.h"
#include "src/torch/op_info.h"
#include "src/torch/recorder.h"
#include "src/torch/rules.h"
#include "src/torch/run_at_once.h"

namespace spool::torch_side {
namespace {

using Record = torch::CppFunction;

Record recorder() { return torch::CppFunction::makeFromBoxedFunction<&record>(); }

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> /*device*/, std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided, "[empty] expected layout torch.strided on ",
                              lazy_device(), ", got ", *layout);
  TORCH_CHECK(!pin_memory.value_or(false), "[empty] pinned memory is for CPU tensors, got device ", lazy_device());
  at::detail::check_size_nonnegative(sizes);
  const at::ScalarType type = dtype.value_or(c10::get_default_dtype_as_scalartype());
  const at::MemoryFormat wanted = format.value_or(at::MemoryFormat::Contiguous);
  at::Tensor tensor = make_empty(sizes, c10::contiguous_strides(sizes), type);
  if (wanted != at::MemoryFormat::Contiguous) {
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(wanted);
  }
  return tensor;
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> /*device*/, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided, "[empty_strided] expected layout torch.strided on ",
                              lazy_device(), ", got ", *layout);
  TORCH_CHECK(!pin_memory.value_or(false), "[empty_strided] pinned memory is for CPU tensors, got device ", lazy_device());
  at::detail::check_size_nonnegative(sizes);
  return make_empty(sizes, strides, dtype.value_or(c10::get_default_dtype_as_scalartype()));
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  if (self.sizes() != sizes) {
    at::detail::check_size_nonnegative(sizes);
    resize(self, sizes, c10::contiguous_strides(sizes));
  }
  if (format.has_value() && *format != at::MemoryFormat::Preserve) {
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  TORCH_CHECK(source.device() == lazy_device(), "[set_] expected a storage on ", lazy_device(), ", got one on ", source.device());
  TORCH_CHECK(offset >= 0, "[set_] expected a storage offset of at least 0, got ", offset);
  at::detail::check_size_nonnegative(sizes);
  at::TensorImpl& impl = *self.unsafeGetTensorImpl();
  impl.set_storage_keep_dtype(std::move(source));
  impl.set_storage_offset(offset);
  // As the CPU's: without strides, a tensor that has the sizes already keeps its own.
  const auto rows =
      strides.data() == nullptr && impl.sizes() == sizes ? c10::DimVector(impl.strides()) : c10::contiguous_strides(sizes);
  resize(self, sizes, strides.empty() ? c10::IntArrayRef(rows) : strides);
  return self;
}

at::Tensor& set_nothing(at::Tensor& self) { return set_storage(self, adopt(*new Slot(0)), 0, {0}, {}); }

/// Whether all elements of an expanded tensor are one.
bool is_expanded_number(const at::Tensor& tensor) {
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) != 1 && tensor.stride(i) != 0) {
      return false;
    }
  }
  return tensor.dim() != 0 && tensor.numel() != 0;
}

void record_copy(const at::Tensor& target, const at::Tensor& source, bool non_blocking) {
  static const c10::OperatorHandle copy = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  static const c10::OperatorHandle clone = c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
  torch::jit::Stack stack{target, source, non_blocking};
  // x[:] = x[0] is a fill on the CPU, which reads the number before it writes; for other devices Python makes it a copy.
  if (source.storage().is_alias_of(target.storage()) && is_expanded_number(source)) {
    const at::Tensor number = at::native::as_strided_tensorimpl(source, {}, {}, source.storage_offset());
    torch::jit::Stack cloned{number, c10::IValue()};
    record(clone, &cloned);
    stack[1] = cloned[0];
  }
  record(copy, &stack);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  TORCH_CHECK(source.defined(), "[copy_] expected a defined tensor to copy from");
  if (self.is_same(source)) {
    return self;
  }
  if (is_lazy(self) && is_lazy(source)) {
    // As the CPU's copy does: the values first, then what the two tensors' bits differ in.
    const at::AutoDispatchBelowADInplaceOrView guard;
    const bool bits = self.is_conj() || self.is_neg() || source.is_conj() || source.is_neg();
    const at::Tensor target = bits ? plain(self) : self;
    record_copy(target, bits ? plain(source) : source, non_blocking);
    if (self.is_conj() != source.is_conj()) {
      target.conj_physical_();
    }
    if (self.is_neg() != source.is_neg()) {
      target.neg_();
    }
  } else if (is_lazy(self)) {
    TORCH_CHECK(source.device().is_cpu() && source.layout() == at::kStrided, "[copy_] expected a dense tensor on cpu or ",
                lazy_device(), ", got one on ", source.device(), " with layout ", source.layout());
    write_from_host(self, [&](const at::Tensor& target) { target.copy_(source); });
  } else {
    self.copy_(read_on_host(source, "aten::copy_"));
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  at::Tensor to = target;
  copy_(to, source, non_blocking);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  target.resize_(source.sizes());
  return copy_from(source, target, false);
}

/// The strides that copies on the CPU have: those of a dense tensor, the order of its dimensions of any other. For devices of this name
/// ATen makes rows instead.
std::vector<int64_t> strides_like(const at::Tensor& self) {
  return self.is_non_overlapping_and_dense() ? self.strides().vec() : at::infer_dense_strides(self.sizes(), self.strides());
}

at::Tensor empty_like(const at::Tensor& self, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                      std::optional<at::Device> device, std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  if (!device.value_or(self.device()).is_xla() || layout.value_or(at::kStrided) != at::kStrided ||
      format.value_or(at::MemoryFormat::Preserve) != at::MemoryFormat::Preserve) {
    return at::native::empty_like(self, dtype, layout, device, pin_memory, format);
  }
  return empty_strided(self.sizes(), strides_like(self), dtype.value_or(self.scalar_type()), layout, device, pin_memory);
}

/// ATen's own, from or to the device, but for the strides.
at::Tensor to_copy(const at::Tensor& self, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                   std::optional<at::Device> device, std::optional<bool> pin_memory, bool non_blocking,
                   std::optional<at::MemoryFormat> format) {
  const bool to_lazy = device.value_or(self.device()).is_xla() && layout.value_or(self.layout()) == at::kStrided;
  if (!to_lazy || format.value_or(at::MemoryFormat::Preserve) != at::MemoryFormat::Preserve || self.layout() != at::kStrided ||
      self.is_quantized()) {
    return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format);
  }
  at::Tensor result =
      empty_strided(self.sizes(), strides_like(self), dtype.value_or(self.scalar_type()), layout, device, pin_memory);
  return copy_(result, self, non_blocking);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  return at::native::_local_scalar_dense_cpu(read_on_host(self, "aten::_local_scalar_dense"));
}

/// So that module.to(device) swaps a parameter's data and keeps its identity, as for every dense device that PyTorch knows.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto dense = [](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && !tensor.is_quantized() && !tensor.is_nested() &&
           (tensor.device().is_cpu() || tensor.device().type() == c10::DeviceType::XLA);
  };
  return dense(self) && dense(from);
}

/// Composite ops that have a CPU kernel of their own: recorded whole, so that the same kernel runs as in eager. And ops over lists, so that
/// they are one op on the tape.
std::vector<std::string> whole_ops() {
  std::vector<std::string> names = ops_recorded_whole();
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (name.name.starts_with("aten::_foreach_") && find_rule(c10::toString(name)) != nullptr) {
      names.push_back(c10::toString(name));
      continue;
    }
    if (op.has_value() && name.getNamespace() == "aten" && op->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
        (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
         op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) &&
        !op_info(*op).has_view) {
      names.push_back(c10::toString(name));
    }
  }
  return names;
}

}  // namespace

TORCH_LIBRARY_IMPL(_, XLA, m) { m.fallback(recorder()); }

TORCH_LIBRARY_IMPL(aten, XLA, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("empty_like", &empty_like);
  m.impl("resize_", &resize_);

  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("as_strided_", &at::native::as_strided__symint);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("set_", &set_nothing);
  m.impl("set_.source_Storage", static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(&at::native::set_));
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);

  m.impl("copy_", &copy_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_to_copy", &to_copy);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);

  for (const std::string& name : whole_ops()) {
    m.impl(name.c_str(), recorder());
  }
}

}  // namespace spool::torch_side
