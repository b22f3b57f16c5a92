// Recorder: the boxed kernel that records any op on key XLA.
// Thread-safe: autograd's threads and the user's record on one tape, in the order in which they arrive.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>

namespace spool::torch_side {

/// Records the call of `op` with the arguments on `stack` and replaces them by its results. What can't be recorded is run at once
/// (run_at_once.h); views change metadata only.
void record(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Lets backward passes that this thread starts record on this thread, too: autograd has a thread for each device whose kernels
/// block, and ours don't, so the hand-over would only cost time and lose the user's line. Done once a thread, at its first op or
/// at `import`; a later torch.autograd.set_multithreading_enabled(True) of the user's holds.
void record_backward_here();

/// Grows or shrinks a lazy tensor to `sizes` (row-major, or as `strides` say), keeping what its storage holds.
void resize(const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides);

struct RecorderStats {
  std::uint64_t ops = 0;  ///< ops recorded
  std::uint64_t followed = 0;  ///< of them, by following a known tape
  std::uint64_t nanoseconds = 0;  ///< spent in `record`, while timing is on
};
RecorderStats recorder_stats();
/// Timing costs two clock reads an op, so it is off by default.
void set_recorder_timing(bool on);

}  // namespace spool::torch_side
