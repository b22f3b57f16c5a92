// PlannedAllocator: makes PyTorch's kernels put their results where the plan wants them, and their workspaces into memory that is
// already mapped.
//
// It stands in front of PyTorch's CPU allocator. On a thread that has a Session open, an allocation of the size of a result that
// the running call still owes is given that result's planned place; any other larger one is scratch from a small cache. On all
// other threads it only passes on. Nothing depends on it for being right: whoever plans checks where results lie, and copies
// those that lie elsewhere.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "src/engine/aten/memory.h"

namespace spool::native {

/// Where one result of a call is to be born.
struct Place {
  void* data = nullptr;
  std::size_t nbytes = 0;
  bool taken = false;
};

class PlannedAllocator final : public c10::Allocator {
 public:
  /// The process's one, put in front of PyTorch's CPU allocator at the first call; never freed.
  static PlannedAllocator& instance();

  /// While it lives, allocations of its thread are planned. One at a time in the process.
  class Session {
   public:
    Session();
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// The next call's results. `order[i]` is the place of the call's i-th allocation (-1: scratch); empty: places are found by
    /// size. Both must live until `end_call`.
    void begin_call(std::span<Place> places, std::span<const std::int16_t> order);
    /// The call has returned: nothing is given to its places any more. Returns what it allocated, in order; valid until the next
    /// `begin_call`.
    std::span<void* const> end_call();
  };

  c10::DataPtr allocate(std::size_t nbytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t nbytes) const override;

  /// Counts scratch, in use and cached, and all else that the engine counts here.
  aten::MemoryCounter& counter() { return counter_; }

 private:
  /// One allocation that was given out during a session, or a cached block (place < 0).
  struct Block {
    void* data = nullptr;
    std::size_t nbytes = 0;
    std::int32_t place = -1;
    std::uint64_t call = 0;
  };

  explicit PlannedAllocator(c10::Allocator* previous) : previous_(previous) {}

  static void release(void* data);
  void note(void* data);
  void* planned(std::size_t nbytes);
  void* cached(std::size_t nbytes);
  void give_back(void* data);
  void free_block(const Block& block);

  c10::Allocator* const previous_;
  aten::MemoryCounter counter_;

  std::mutex mutex_;  ///< guards all below; tensors may be freed by another thread than made them
  std::vector<Block> live_;
  std::vector<Block> free_;  ///< oldest first
  std::size_t free_bytes_ = 0;
  std::span<Place> places_;
  std::span<const std::int16_t> order_;
  std::vector<void*> allocated_;  ///< by the call that runs
  std::uint64_t call_ = 0;
};

}  // namespace spool::native
