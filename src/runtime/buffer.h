// Buffer: device memory that slots, launches and readers share. A buffer never changes what it means: an in-place update makes
// a new Buffer, which takes over (is donated) the old one's memory if nobody else holds it.
//
// Threading: `memory` and `failure` are written by the runtime thread before the launch's number is published as complete, and
// read by others only after waiting for it (runtime/queue.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "src/base/error.h"

namespace spool {

/// Owning handle of raw device memory. Move only; frees through its function.
class Memory {
 public:
  using Free = void (*)(void* context);

  Memory() = default;
  Memory(void* data, std::size_t nbytes, void* context, Free free)
      : data_(data), nbytes_(nbytes), context_(context), free_(free) {}
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    Memory taken(std::move(other));
    swap(taken);
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (free_ != nullptr) {
      free_(context_);
    }
  }

  void* data() const { return data_; }
  std::size_t nbytes() const { return nbytes_; }

 private:
  void swap(Memory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(nbytes_, other.nbytes_);
    std::swap(context_, other.context_);
    std::swap(free_, other.free_);
  }

  void* data_ = nullptr;
  std::size_t nbytes_ = 0;
  void* context_ = nullptr;
  Free free_ = nullptr;
};

struct Buffer {
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Memory memory;
  std::size_t nbytes = 0;
  std::uint64_t ready = 0;                ///< number of the launch that fills it; 0: it is filled
  std::atomic<std::uint32_t> readers{0};  ///< CPU tensors over `memory` that are alive: while there are any, nobody may take it
  std::shared_ptr<const Error> failure;  ///< why it holds nothing: the launch that should have filled it failed
};

using BufferPtr = std::shared_ptr<Buffer>;

}  // namespace spool
