// Recording a call that is to be replayed. The call runs as always: its ops are recorded, its end is a cut that launches them.
// Beside that, this notes what a replay (replay.h) has to do in its place: every op of CPU tensors, random draw, upload and number,
// through a kernel on a dispatch key of its own, which only the recording thread includes. What it notes is what the recorder gets,
// so the plan is that of a call that nobody watches.
//
// Threading: made, opened, closed and finished on one thread.
#pragma once

#include <c10/core/SymNodeImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/runtime/watch.h"
#include "src/torch/op_info.h"
#include "src/torch/replay.h"

namespace spool::torch_side {

/// A number whose origin is known: the register that holds it, its value in this call.
struct Followed {
  std::uint32_t at = 0;
  double value = 0;
};

/// How the caller's language tells such numbers: from a symbolic number, and from the tensor that PyTorch wraps one in.
struct FollowHooks {
  std::optional<Followed> (*number)(const c10::SymNode& node) = nullptr;
  std::optional<Followed> (*tensor)(const at::Tensor& wrapped) = nullptr;
};
void set_follow_hooks(const FollowHooks& hooks);

class ReplayRecording final : public Watch {
 public:
  /// `args` are the call's tensors, `leaves` the tensors whose gradients it may change.
  ReplayRecording(std::vector<at::Tensor> args, const std::vector<at::Tensor>& leaves);
  ReplayRecording(const ReplayRecording&) = delete;
  ReplayRecording& operator=(const ReplayRecording&) = delete;
  ~ReplayRecording() override;

  /// Begins to watch, after the entry of the region.
  void start();
  /// Ends with the function's body: from here on its ops are of no interest, only the cut.
  void end_body();
  /// Ends it, after the region's cut.
  void stop();
  /// Why this call can't be replayed; empty as long as it can.
  const std::string& problem() const { return problem_; }
  /// Notes the first reason.
  void refuse(const std::string& why);

  // Numbers. Each gives a register.
  std::uint32_t step(HostStep::Kind kind, std::uint32_t a, std::uint32_t b = 0, double value = 0);
  std::optional<Followed> item(const at::Tensor& tensor);
  /// The register's value was used as a plain number: a replay holds only while it is the same.
  void same(const Followed& number);
  /// The comparison came out as `value`.
  void compared(HostStep::Kind kind, std::uint32_t a, std::uint32_t b, bool value);

  /// The program, with these results: a tensor, or the register of a number (where the tensor is undefined). nullptr where the
  /// call can't be replayed; `problem` says why. After `stop`, while the results are still held.
  std::shared_ptr<Replay> finish(const std::vector<at::Tensor>& results, const std::vector<std::uint32_t>& numbers);

  /// An op of the recording thread, on its way to the backend.
  void op(const c10::OperatorHandle& handle, c10::DispatchKeySet below, torch::jit::Stack& stack);

  void cut(Cut cause, Tape& tape, const std::shared_ptr<Executable>& executable) override;
  void filled(Slot& slot, const Geometry& geometry) override;
  void ran_at_once(const Op& op) override;

 private:
  struct Seen {
    SlotPtr slot;  ///< keeps the address from being used again; says nothing about who holds it
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;
    bool born = false;  ///< made by the call
    const Op* by = nullptr;
    LocationPtr where;
  };
  struct Entry {
    SlotPtr slot;  ///< of the gradient, where there was one
    std::optional<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> tensor;  ///< keeps its address its own
    bool is(const at::Tensor& other) const {
      return tensor.has_value() && tensor->_unsafe_get_target() == other.unsafeGetTensorImpl();
    }
  };

  std::vector<std::pair<std::size_t, Followed>> take_numbers(const OpInfo& info, torch::jit::Stack& stack);
  void host_op(const OpInfo& info, c10::DispatchKeySet below, torch::jit::Stack& stack,
               const std::vector<std::pair<std::size_t, Followed>>& followed);
  void lazy_op(const OpInfo& info, c10::DispatchKeySet below, torch::jit::Stack& stack,
               const std::vector<std::pair<std::size_t, Followed>>& followed);
  void note_numbers(const OpInfo& info, const torch::jit::Stack& arguments, std::size_t before, std::size_t after,
                    const std::vector<std::pair<std::size_t, Followed>>& followed);
  std::uint32_t place_of(const at::Tensor& host);
  HostStep host_call(const OpInfo& info, const torch::jit::Stack& stack,
                     const std::vector<std::pair<std::size_t, Followed>>& followed);
  void see(const at::Tensor& lazy);
  void born(const at::Tensor& lazy, const OpInfo& info);

  std::uint32_t storage_at(Slot& slot);
  bool is_external(Slot& slot) const;
  void place_externals();
  void describe_results(const std::vector<at::Tensor>& results, const std::vector<std::uint32_t>& numbers);
  void describe_leaves();
  void find_keepers();
  /// Notes a way in which the state of PyTorch's generator changed without a draw.
  void check_generator();

  std::shared_ptr<Replay> replay_ = std::make_shared<Replay>();
  std::vector<at::Tensor> args_;
  std::vector<Entry> entries_;
  std::unordered_map<const Slot*, Seen> seen_;
  std::unordered_map<const at::TensorImpl*, std::uint32_t> place_;
  /// Keeps their addresses from being used again. Not the tensors: PyTorch's factories look whether they are the only holders.
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> hosts_;
  std::unordered_map<const Slot*, std::uint32_t> storage_;
  std::vector<SlotPtr> tape_slots_;
  std::vector<const Slot*> claimed_;
  std::vector<std::pair<std::size_t, SlotPtr>> filled_;  ///< by step
  std::shared_ptr<Executable> executable_;
  std::optional<HostStep> pending_;
  std::string problem_;
  at::Tensor generator_;  ///< state of PyTorch's default generator after the last draw
  std::size_t length_ = 0;  ///< ops that this thread has put on the tape
  std::size_t cuts_ = 0;
  bool backward_ = false;
  bool open_ = false;
};

}  // namespace spool::torch_side
