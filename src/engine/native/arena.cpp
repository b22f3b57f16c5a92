#include "src/engine/native/arena.h"

#include <sys/mman.h>

#include "src/base/error.h"
#include "src/engine/aten/call.h"

namespace spool::native {
namespace {

constexpr std::size_t granule = std::size_t{2} << 20U;  ///< size of a huge page

}  // namespace

Arena::Arena(aten::MemoryCounter& counter) : counter_(counter), storage_(aten::storage_at(nullptr, 0)) {}

Arena::~Arena() { unmap(); }

void Arena::unmap() {
  if (base_ != nullptr) {
    munmap(base_, capacity_);
    counter_.subtract(capacity_);
    base_ = nullptr;
    capacity_ = 0;
  }
}

void Arena::reserve(std::size_t nbytes) {
  if (nbytes <= capacity_) {
    return;
  }
  const std::size_t wanted = (nbytes + granule - 1) / granule * granule;
  void* base = mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  SPOOL_CHECK(base != MAP_FAILED, OutOfMemory, "[run] expected room for a graph's ", nbytes,
              " bytes of intermediate results, but the system has no memory left; use smaller batches or cut more often (",
              counter_.info().used, " bytes are held)");
  // Fewer page faults and fewer entries in the processor's page tables; where the kernel declines, nothing is lost.
  madvise(base, wanted, MADV_HUGEPAGE);
  unmap();
  base_ = base;
  capacity_ = wanted;
  counter_.add(wanted);
  auto* storage = storage_.unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(base, at::kCPU));
  storage->set_nbytes(wanted);
}

}  // namespace spool::native
