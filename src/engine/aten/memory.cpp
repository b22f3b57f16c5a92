#include "src/engine/aten/memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <new>

#include "src/base/error.h"

namespace spool::aten {
namespace {

/// Stands before the data; as large as the alignment, so that the data stays aligned.
struct alignas(64) Header {
  MemoryCounter* counter;
  std::size_t nbytes;
};

void release(void* context) {
  auto* header = static_cast<Header*>(context);
  header->counter->subtract(header->nbytes);
  c10::GetDefaultCPUAllocator()->raw_deallocate(header);
}

}  // namespace

Memory allocate(std::size_t nbytes, MemoryCounter& counter) {
  void* base = nullptr;
  try {
    base = c10::GetDefaultCPUAllocator()->raw_allocate(sizeof(Header) + nbytes);
  } catch (const c10::Error&) {
    fail(ErrorKind::OutOfMemory, "[allocate] expected room for ", nbytes,
         " bytes, but the system has no memory left; use smaller tensors or free some (", counter.info().used,
         " bytes are held)");
  }
  auto* header = new (base) Header{&counter, nbytes};
  counter.add(nbytes);
  return {header + 1, nbytes, header, &release};
}

Memory clone(const Memory& from, MemoryCounter& counter) {
  Memory copy = allocate(from.nbytes(), counter);
  copy_bytes(copy.data(), from.data(), from.nbytes());
  return copy;
}

void copy_bytes(void* to, const void* from, std::size_t nbytes) {
  if (nbytes != 0) {
    std::memcpy(to, from, nbytes);
  }
}

}  // namespace spool::aten
