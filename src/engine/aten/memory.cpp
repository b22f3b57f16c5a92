#include "src/engine/aten/memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <iterator>
#include <limits>
#include <mutex>
#include <new>

#include "src/base/error.h"

namespace spool::aten {
namespace {

/// Stands before the data; as large as the alignment, so that the data stays aligned.
struct alignas(64) Header {
  MemoryCounter* counter;
  std::size_t nbytes;
};

/// Blocks that were freed and may be wanted again at once: a training step frees last step's results just before it makes its own, and
/// fresh memory costs a page fault for every 4 KiB. What is held never exceeds what was once in use: before memory is taken from
/// the system, as much is given back from here.
class FreeBlocks {
 public:
  /// Never destroyed: tensors may be freed while the process ends.
  static FreeBlocks& instance() {
    static auto* const made = new FreeBlocks;
    return *made;
  }

  /// A block of just that size, the one freed last; null if there is none.
  void* take(std::size_t nbytes) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(), [&](const Block& block) { return block.nbytes == nbytes; });
    if (found == blocks_.rend()) {
      return nullptr;
    }
    void* const base = found->base;
    bytes_ -= nbytes;
    blocks_.erase(std::next(found).base());
    return base;
  }

  void put(void* base, std::size_t nbytes) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back({base, nbytes});
    bytes_ += nbytes;
    shrink(most);
  }

  /// Gives back blocks of `nbytes` bytes in all, the oldest first.
  void make_room(std::size_t nbytes) {
    const std::lock_guard lock(mutex_);
    shrink(bytes_ > nbytes ? bytes_ - nbytes : 0);
  }

 private:
  static constexpr std::size_t most = std::size_t{1} << 30U;

  struct Block {
    void* base;
    std::size_t nbytes;
  };

  FreeBlocks() {
    // A forked child must find the lock free.
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); }, [] { instance().mutex_.unlock(); });
  }

  void shrink(std::size_t nbytes) {
    while (bytes_ > nbytes) {
      bytes_ -= blocks_.front().nbytes;
      c10::GetDefaultCPUAllocator()->raw_deallocate(blocks_.front().base);
      blocks_.pop_front();
    }
  }

  std::mutex mutex_;
  std::deque<Block> blocks_;  ///< the oldest first
  std::size_t bytes_ = 0;
};

/// Smaller ones come from the heap's own lists, which don't fault.
constexpr std::size_t least_kept = std::size_t{1} << 20U;

void release(void* context) {
  auto* header = static_cast<Header*>(context);
  header->counter->subtract(header->nbytes);
  if (header->nbytes >= least_kept) {
    FreeBlocks::instance().put(header, header->nbytes);
  } else {
    c10::GetDefaultCPUAllocator()->raw_deallocate(header);
  }
}

void* take(std::size_t nbytes) {
  if (nbytes >= least_kept) {
    FreeBlocks& free = FreeBlocks::instance();
    if (void* kept = free.take(nbytes)) {
      return kept;
    }
    free.make_room(nbytes);
  }
  try {
    return c10::GetDefaultCPUAllocator()->raw_allocate(sizeof(Header) + nbytes);
  } catch (const c10::Error&) {
    FreeBlocks::instance().make_room(std::numeric_limits<std::size_t>::max());
    return c10::GetDefaultCPUAllocator()->raw_allocate(sizeof(Header) + nbytes);
  }
}

}  // namespace

Memory allocate(std::size_t nbytes, MemoryCounter& counter) {
  void* base = nullptr;
  try {
    base = take(nbytes);
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
