// Arena: the one block of memory in which all plans of the native engine have their values.
#pragma once

#include <c10/core/Storage.h>

#include <cstddef>

#include "src/engine/aten/memory.h"

namespace spool::native {

/// Address space that grows to the largest plan. Pages that no value has touched cost nothing. Its content does not outlive a run,
/// so growing copies nothing. Used by the runtime thread only, but for `storage`.
class Arena {
 public:
  explicit Arena(aten::MemoryCounter& counter);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Makes room for `nbytes`. Throws Error(OutOfMemory) and keeps what it had.
  void reserve(std::size_t nbytes);
  /// What tensors in the arena lie on; stays the same object when the arena grows.
  const c10::Storage& storage() const { return storage_; }

 private:
  void unmap();

  aten::MemoryCounter& counter_;
  void* base_ = nullptr;
  std::size_t capacity_ = 0;
  c10::Storage storage_;
};

}  // namespace spool::native
