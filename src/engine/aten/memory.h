// Host memory for engines on the CPU, with its accounts. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>

#include "src/engine/engine.h"

namespace spool::aten {

/// Bytes held now, and the most that were ever held. Must outlive the memory that it counts.
class MemoryCounter {
 public:
  void add(std::size_t nbytes) {
    const std::size_t now = used_.fetch_add(nbytes, std::memory_order_relaxed) + nbytes;
    std::size_t peak = peak_.load(std::memory_order_relaxed);
    while (peak < now && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void subtract(std::size_t nbytes) { used_.fetch_sub(nbytes, std::memory_order_relaxed); }

  MemoryInfo info() const { return {used_.load(std::memory_order_relaxed), peak_.load(std::memory_order_relaxed)}; }

 private:
  std::atomic<std::size_t> used_{0};
  std::atomic<std::size_t> peak_{0};
};

/// Uninitialised memory from PyTorch's CPU allocator, aligned to 64 bytes; never null. Throws Error(OutOfMemory).
Memory allocate(std::size_t nbytes, MemoryCounter& counter);

/// A copy of `from` in memory of its own.
Memory clone(const Memory& from, MemoryCounter& counter);

/// memcpy that allows empty ranges at null.
void copy_bytes(void* to, const void* from, std::size_t nbytes);

}  // namespace spool::aten
