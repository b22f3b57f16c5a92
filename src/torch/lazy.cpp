#include "src/torch/lazy.h"

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>

#include <ATen/EmptyTensor.h>

namespace spool::torch_side {
namespace {

// DType's numbers are c10::ScalarType's.
#define SPOOL_SAME(name, theirs) static_assert(static_cast<int>(DType::name) == static_cast<int>(c10::ScalarType::theirs))
SPOOL_SAME(UInt8, Byte);
SPOOL_SAME(Int8, Char);
SPOOL_SAME(Int16, Short);
SPOOL_SAME(Int32, Int);
SPOOL_SAME(Int64, Long);
SPOOL_SAME(Float16, Half);
SPOOL_SAME(Float32, Float);
SPOOL_SAME(Float64, Double);
SPOOL_SAME(ComplexHalf, ComplexHalf);
SPOOL_SAME(Complex64, ComplexFloat);
SPOOL_SAME(Complex128, ComplexDouble);
SPOOL_SAME(Bool, Bool);
SPOOL_SAME(BFloat16, BFloat16);
#undef SPOOL_SAME

void release_slot(void* context) { static_cast<Slot*>(context)->release(); }

/// The address that PyTorch sees is the slot's: nothing to read there, but different for different storages, as libraries that
/// look for tied weights expect.
c10::DataPtr slot_pointer(Slot& slot) { return {&slot, &slot, &release_slot, lazy_device()}; }

/// What PyTorch allocates lazy storage with (storages that grow, deserialisation).
class LazyAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t nbytes) override { return slot_pointer(*new Slot(nbytes)); }
  void copy_data(void* /*dest*/, const void* /*src*/, std::size_t /*count*/) const override {
    TORCH_CHECK(false, "[storage] a lazy storage has no bytes to copy; copy tensors instead");
  }
};

LazyAllocator& allocator() {
  static auto* instance = new LazyAllocator;
  return *instance;
}

const bool registered = [] {
  c10::SetAllocator(c10::DeviceType::XLA, &allocator());
  return true;
}();

constexpr c10::DispatchKeySet lazy_keys(c10::DispatchKey::XLA);

}  // namespace

Slot& slot_of(const at::TensorImpl& tensor) {
  const c10::DataPtr& pointer = tensor.unsafe_storage().unsafeGetStorageImpl()->data_ptr();
  TORCH_CHECK(pointer.get_deleter() == &release_slot, "[spool] expected a tensor whose storage was made on ", lazy_device(),
              ", got one with foreign storage");
  return *static_cast<Slot*>(pointer.get_context());
}

c10::Storage adopt(Slot& slot) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(slot.nbytes),
                                               slot_pointer(slot), &allocator(), /*resizable=*/true);
}

void rebind(const c10::Storage& storage, Slot& slot) {
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(slot_pointer(slot));
  storage.unsafeGetStorageImpl()->set_nbytes(slot.nbytes);
}

void move_slot(const c10::Storage& from, const c10::Storage& to) {
  const std::size_t nbytes = from.nbytes();
  c10::DataPtr taken = from.unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, lazy_device()));
  from.unsafeGetStorageImpl()->set_nbytes(0);
  to.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(taken));
  to.unsafeGetStorageImpl()->set_nbytes(nbytes);
}

at::Tensor make_tensor(c10::Storage storage, const Geometry& geometry) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), lazy_keys, c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(geometry.dtype)));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
  return tensor;
}

at::Tensor make_empty(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype) {
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  const std::size_t nbytes = at::detail::computeStorageNbytes(sizes, strides, type.itemsize());
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(adopt(*new Slot(nbytes)), lazy_keys, type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

Geometry geometry_of(const at::TensorImpl& tensor) {
  return {static_cast<DType>(tensor.dtype().toScalarType()), static_cast<std::uint8_t>(tensor.itemsize()),
          tensor.storage_offset(), tensor.sizes().vec(), tensor.strides().vec()};
}

at::Tensor plain(const at::Tensor& tensor) { return make_tensor(tensor.storage(), geometry_of(tensor)); }

at::Tensor cpu_alias(const BufferPtr& buffer, const Geometry& geometry) {
  auto* kept = new BufferPtr(buffer);
  buffer->readers.fetch_add(1, std::memory_order_relaxed);
  const auto release = [](void* context) {
    auto* held = static_cast<BufferPtr*>(context);
    (*held)->readers.fetch_sub(1, std::memory_order_relaxed);
    delete held;
  };
  c10::DataPtr pointer(buffer->memory.data(), kept, release, c10::Device(c10::DeviceType::CPU));
  c10::Storage storage =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(buffer->nbytes),
                                            std::move(pointer), c10::GetAllocator(c10::DeviceType::CPU), /*resizable=*/true);
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                               c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(geometry.dtype)));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
  return tensor;
}

void throw_as_torch(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::Value: C10_THROW_ERROR(ValueError, error.what());
    case ErrorKind::Type: C10_THROW_ERROR(TypeError, error.what());
    case ErrorKind::Index: C10_THROW_ERROR(IndexError, error.what());
    case ErrorKind::NotImplemented: C10_THROW_ERROR(NotImplementedError, error.what());
    case ErrorKind::Runtime:
    case ErrorKind::OutOfMemory:
    case ErrorKind::Internal: break;
  }
  C10_THROW_ERROR(Error, error.what());
}

}  // namespace spool::torch_side
