// The second half of a recording: what was noted becomes a program.
#include <algorithm>

#include "src/runtime/device.h"
#include "src/torch/lazy.h"
#include "src/torch/replay_recording.h"

namespace spool::torch_side {

bool ReplayRecording::is_external(Slot& slot) const {
  const auto known = seen_.find(&slot);
  return known != seen_.end() && !known->second.born;
}

/// The number of the slot's storage. Externals have theirs already; all others are made anew by each run.
std::uint32_t ReplayRecording::storage_at(Slot& slot) {
  const auto [known, is_new] =
      storage_.emplace(&slot, static_cast<std::uint32_t>(replay_->externals_.size() + replay_->graph_.made.size()));
  if (is_new) {
    replay_->graph_.made.push_back(slot.nbytes);
  }
  return known->second;
}

/// Numbers the storages that were there before the call and that the program touches.
void ReplayRecording::place_externals() {
  using External = Replay::External;
  const auto place = [&](Slot& slot) {
    if (!is_external(slot) || storage_.contains(&slot)) {
      return;
    }
    External external{.nbytes = slot.nbytes};
    const auto argument = std::find_if(args_.begin(), args_.end(),
                                       [&](const at::Tensor& tensor) { return is_lazy(tensor) && &slot_of(tensor) == &slot; });
    const auto gradient = std::find_if(entries_.begin(), entries_.end(),
                                       [&](const Entry& entry) { return entry.tensor.has_value() && &*entry.slot == &slot; });
    if (argument != args_.end()) {
      external.kind = External::Kind::Argument;
      external.index = static_cast<std::size_t>(argument - args_.begin());
    } else if (gradient != entries_.end()) {
      external.kind = External::Kind::Gradient;
      external.index = static_cast<std::size_t>(gradient - entries_.begin());
    } else {
      const auto storage = seen_.at(&slot).storage->lock();
      if (storage == nullptr) {
        refuse("it uses a tensor that was there before the call and is gone after it");
        return;
      }
      external.storage = c10::Storage(storage);
    }
    storage_.emplace(&slot, static_cast<std::uint32_t>(replay_->externals_.size()));
    replay_->externals_.push_back(std::move(external));
  };
  if (executable_ != nullptr) {
    for (const GraphInput& input : executable_->inputs) {
      place(*tape_slots_[input.slot]);
    }
    for (const GraphOutput& output : executable_->outputs) {
      place(*tape_slots_[output.slot]);
    }
  }
  for (const auto& [step, slot] : filled_) {
    place(*slot);
  }
}

void ReplayRecording::describe_results(const std::vector<at::Tensor>& results, const std::vector<std::uint32_t>& numbers) {
  using Output = Replay::Output;
  std::size_t next = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const at::Tensor& tensor = results[i];
    const auto is_it = [&](const at::Tensor& other) { return other.defined() && other.is_same(tensor); };
    Output output;
    const auto argument = std::find_if(args_.begin(), args_.end(), is_it);
    const auto end = results.begin() + static_cast<std::ptrdiff_t>(i);
    const auto earlier = std::find_if(results.begin(), end, is_it);
    if (!tensor.defined()) {
      output.kind = Output::Kind::Number;
      output.index = numbers[next++];
    } else if (argument != args_.end()) {
      output.kind = Output::Kind::Argument;
      output.index = static_cast<std::size_t>(argument - args_.begin());
    } else if (earlier != end) {
      output.kind = Output::Kind::Earlier;
      output.index = static_cast<std::size_t>(earlier - results.begin());
    } else if (!is_lazy(tensor)) {
      const auto place = place_.find(tensor.unsafeGetTensorImpl());
      if (place == place_.end()) {
        refuse(
            "it returns a CPU tensor that no operation made (as torch.tensor(...) does); return the Python value, or make the "
            "tensor outside");
        return;
      }
      output.kind = Output::Kind::Host;
      output.index = place->second;
    } else if (tensor.is_conj() || tensor.is_neg()) {
      refuse("it returns a conjugate or negative view; resolve it with resolve_conj() or resolve_neg()");
      return;
    } else {
      const bool leaf = std::any_of(replay_->leaves_.begin(), replay_->leaves_.end(),
                                    [&](const Replay::Leaf& one) { return one.tensor.is_same(tensor); });
      if (leaf) {
        output.kind = Output::Kind::Kept;
        output.kept = tensor;
        replay_->outputs_.push_back(std::move(output));
        continue;
      }
      if (tensor.requires_grad() && !backward_) {
        refuse(
            "a result requires gradients: a replay builds no autograd graph. Call it under torch.no_grad(), return "
            "result.detach(), or do the backward pass inside");
        return;
      }
      Slot& slot = slot_of(tensor);
      if (!seen_.contains(&slot)) {
        refuse("it returns a tensor that is neither an argument nor made in it");
        return;
      }
      if (is_external(slot) && !storage_.contains(&slot)) {
        // Nothing else touches it: it is given as it is.
        output.kind = Output::Kind::Kept;
        output.kept = tensor;
      } else {
        output.made = {storage_at(slot), geometry_of(tensor)};
        claimed_.push_back(&slot);
      }
    }
    replay_->outputs_.push_back(std::move(output));
  }
}

void ReplayRecording::describe_leaves() {
  for (std::size_t i = 0; i < replay_->leaves_.size(); ++i) {
    Replay::Leaf& leaf = replay_->leaves_[i];
    const at::Tensor& gradient = leaf.tensor.grad();
    if (!gradient.defined()) {
      leaf.after = Replay::Leaf::After::None;
    } else if (!entries_[i].is(gradient)) {
      if (!is_lazy(gradient) || gradient.is_conj() || gradient.is_neg() || gradient.requires_grad()) {
        refuse("it leaves a gradient behind that is no plain tensor of the device");
        return;
      }
      leaf.after = Replay::Leaf::After::New;
      leaf.made = {storage_at(slot_of(gradient)), geometry_of(gradient)};
      claimed_.push_back(&slot_of(gradient));
    }
  }
}

/// A result that someone holds and that is neither returned nor a gradient would be computed for nobody.
void ReplayRecording::find_keepers() {
  for (const GraphOutput& output : executable_->outputs) {
    Slot& slot = *tape_slots_[output.slot];
    if (!is_external(slot) && slot.held() && std::find(claimed_.begin(), claimed_.end(), &slot) == claimed_.end()) {
      const auto known = seen_.find(&slot);
      refuse(known == seen_.end() || known->second.by == nullptr
                 ? std::string("something keeps a tensor that it makes and does not return")
                 : str("something keeps a result of ", known->second.by->name, " at ", describe(known->second.where),
                       " that the call does not return: a replay would leave it as it is. Return it, or write it into a tensor "
                       "that is there before (copy_)"));
      return;
    }
  }
}

std::shared_ptr<Replay> ReplayRecording::finish(const std::vector<at::Tensor>& results,
                                                const std::vector<std::uint32_t>& numbers) {
  TORCH_CHECK(!open_ && replay_ != nullptr, "[compile] a recording is finished once, after its end");
  if (cuts_ > 1) {
    refuse("it is cut in two");
  }
  if (!problem_.empty()) {
    return nullptr;
  }
  Replay& replay = *replay_;
  place_externals();
  replay.graph_.read.resize(replay.externals_.size());
  replay.graph_.replaced.resize(replay.externals_.size());
  describe_results(results, numbers);
  describe_leaves();
  replay.graph_.executable = executable_;
  replay.graph_.storage_of.resize(tape_slots_.size(), 0);
  if (executable_ != nullptr) {
    for (const GraphInput& input : executable_->inputs) {
      const std::uint32_t storage = replay.graph_.storage_of[input.slot] = storage_at(*tape_slots_[input.slot]);
      if (storage < replay.externals_.size()) {
        replay.graph_.read[storage] = 1;
      } else if (std::none_of(filled_.begin(), filled_.end(),
                              [&](const auto& one) { return &*one.second == &*tape_slots_[input.slot]; })) {
        refuse("it uses a tensor of the device that it gets from nowhere a replay could (another thread, or an extension)");
      }
    }
    for (const GraphOutput& output : executable_->outputs) {
      const std::uint32_t storage = replay.graph_.storage_of[output.slot] = storage_at(*tape_slots_[output.slot]);
      if (storage < replay.externals_.size()) {
        replay.graph_.replaced[storage] = 1;
      }
    }
    find_keepers();
  }
  for (const auto& [step, slot] : filled_) {
    replay.steps_[step].to = storage_at(*slot);
    replay.fills_external_ = replay.fills_external_ || replay.steps_[step].to < replay.externals_.size();
  }
  for (std::size_t i = 0; i < replay.externals_.size(); ++i) {
    if (replay.graph_.replaced[i] == 0) {
      continue;
    }
    const Replay::External& external = replay.externals_[i];
    for (std::size_t j = 0; external.kind == Replay::External::Kind::Argument && j < args_.size(); ++j) {
      replay.args_[j].written = replay.args_[j].written || args_[j].storage().is_alias_of(args_[external.index].storage());
    }
  }
  for (Replay::Leaf& leaf : replay.leaves_) {
    leaf.written = std::any_of(replay.externals_.begin(), replay.externals_.end(), [&](const Replay::External& one) {
      return replay.graph_.replaced[static_cast<std::size_t>(&one - replay.externals_.data())] != 0 &&
             one.kind == Replay::External::Kind::Kept && one.storage.unsafeGetStorageImpl() == leaf.storage;
    });
  }
  seen_.clear();
  return problem_.empty() ? std::exchange(replay_, nullptr) : nullptr;
}

}  // namespace spool::torch_side
