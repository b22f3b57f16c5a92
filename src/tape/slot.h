// Slot: what a lazy storage points at: a device buffer, or the place on the tape that will produce it.
//
// Ownership: the lazy storage holds one reference and says `release` when it goes; the tape holds one for every slot it touches,
// so operands live until their plan has been launched. Liveness only decides which slots become outputs.
//
// Threading: reference count and `held` are atomic; everything else is guarded by the device's lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "src/runtime/buffer.h"

namespace spool {

class Slot {
 public:
  explicit Slot(std::size_t bytes) : nbytes(bytes) { live_count.fetch_add(1, std::memory_order_relaxed); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void drop() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete this;
    }
  }
  /// The lazy storage is gone: nothing outside the tape can ask for the content any more.
  void release() {
    held_.store(false, std::memory_order_release);
    drop();
  }
  bool held() const { return held_.load(std::memory_order_acquire); }

  /// Slots alive in the process.
  static std::size_t live() { return live_count.load(std::memory_order_relaxed); }

  std::size_t nbytes;
  BufferPtr buffer;             ///< the content as of the last cut; null: nothing was ever written
  std::uint64_t tape = 0;       ///< number of the tape that has touched it last
  std::uint32_t index = 0;      ///< its place on that tape
  bool dirty = false;           ///< that tape writes to it, so `buffer` is not its content

 private:
  ~Slot() { live_count.fetch_sub(1, std::memory_order_relaxed); }

  static inline std::atomic<std::size_t> live_count{0};
  std::atomic<std::uint32_t> references_{1};
  std::atomic<bool> held_{true};
};

/// Counted reference to a slot.
class SlotPtr {
 public:
  SlotPtr() = default;
  explicit SlotPtr(Slot& slot) : slot_(&slot) { slot.retain(); }
  SlotPtr(SlotPtr&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  SlotPtr& operator=(SlotPtr&& other) noexcept {
    std::swap(slot_, other.slot_);
    return *this;
  }
  SlotPtr(const SlotPtr&) = delete;
  SlotPtr& operator=(const SlotPtr&) = delete;
  ~SlotPtr() {
    if (slot_ != nullptr) {
      slot_->drop();
    }
  }

  Slot* operator->() const { return slot_; }
  Slot& operator*() const { return *slot_; }

 private:
  Slot* slot_ = nullptr;
};

}  // namespace spool
