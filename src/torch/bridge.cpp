#include "src/torch/bridge.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "src/runtime/device.h"
#include "src/torch/lazy.h"

namespace spool::torch_side {
namespace {

bool has_geometry(const at::TensorImpl& tensor, const Geometry& geometry) {
  return static_cast<DType>(tensor.dtype().toScalarType()) == geometry.dtype && tensor.storage_offset() == geometry.offset &&
         tensor.sizes() == c10::IntArrayRef(geometry.sizes) && tensor.strides() == c10::IntArrayRef(geometry.strides);
}

}  // namespace

bool BridgeGraph::shares_replaced(std::span<Slot* const> slots) const {
  if (!replaces_) {
    return false;
  }
  std::vector<std::pair<Slot*, std::uint8_t>> sorted;
  sorted.reserve(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    sorted.emplace_back(slots[i], extracted_.replaced[i]);
  }
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    // Of equal slots, one that is replaced sorts last.
    if (sorted[i].first == sorted[i - 1].first && sorted[i].second != 0) {
      return true;
    }
  }
  return false;
}

bool BridgeGraph::bind(std::span<const at::Tensor* const> inputs, std::vector<Slot*>& slots) const {
  if (inputs.size() != inputs_.size()) {
    return false;
  }
  slots.reserve(first_.size() + extracted_.made.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Input& known = inputs_[i];
    if (!can_bridge(*inputs[i]) || !has_geometry(*inputs[i]->unsafeGetTensorImpl(), known.geometry)) {
      return false;
    }
    Slot& slot = slot_of(*inputs[i]);
    if (known.storage == slots.size()) {
      if (slot.nbytes != nbytes_[known.storage]) {
        return false;
      }
      slots.push_back(&slot);
    } else if (&slot != slots[known.storage]) {
      return false;
    }
  }
  return !shares_replaced(slots);
}

std::optional<std::vector<at::Tensor>> BridgeGraph::call(
    std::span<const at::Tensor* const> inputs, const std::function<void(const std::function<void()>&)>& unlocked) const {
  std::vector<Slot*> slots;
  if (!bind(inputs, slots)) {
    return std::nullopt;
  }
  std::vector<c10::Storage> made;
  made.reserve(extracted_.made.size());
  for (const std::size_t nbytes : extracted_.made) {
    slots.push_back(new Slot(nbytes));
    made.push_back(adopt(*slots.back()));
  }
  unlocked([&] { with_torch_errors([&] { Device::get().launch(extracted_, slots, extracted_.numbers); }); });
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs_[i].written && !inputs[i]->is_inference()) {
      inputs[i]->unsafeGetTensorImpl()->bump_version();
    }
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(outputs_.size());
  for (const Output& output : outputs_) {
    switch (output.kind) {
      case Output::Kind::Input: outputs.push_back(*inputs[output.index]); break;
      case Output::Kind::View: outputs.push_back(make_tensor(inputs[first_[output.index]]->storage(), output.geometry)); break;
      case Output::Kind::Made: outputs.push_back(make_tensor(made[output.index], output.geometry)); break;
      case Output::Kind::Duplicate: outputs.push_back(outputs[output.index]);
    }
  }
  return outputs;
}

std::vector<at::Tensor> BridgeGraph::run(const std::vector<at::Tensor>& inputs) const {
  std::vector<const at::Tensor*> borrowed;
  for (const at::Tensor& input : inputs) {
    borrowed.push_back(&input);
  }
  auto outputs = call(borrowed, [](const auto& launch) { launch(); });
  TORCH_CHECK(outputs.has_value(), "[extract] the graph was not made for tensors like these");
  return std::move(*outputs);
}

at::Tensor BridgeRecording::stand_in(const at::Tensor& tensor) {
  TORCH_CHECK(can_bridge(tensor), "[extract] expected a plain tensor on ", lazy_device(), " as input");
  const Slot& slot = slot_of(tensor);
  const auto [known, is_new] = known_.emplace(&slot, storages_.size());
  c10::Storage storage;
  if (is_new) {
    storages_.push_back(&extraction_.placeholder(slot.nbytes));
    storage = adopt(*storages_.back());
    graph_->first_.push_back(stand_ins_.size());
    graph_->nbytes_.push_back(slot.nbytes);
  } else {
    storage = stand_ins_[graph_->first_[known->second]].storage();
  }
  graph_->inputs_.push_back({.geometry = geometry_of(tensor), .storage = known->second});
  stand_ins_.push_back(make_tensor(std::move(storage), graph_->inputs_.back().geometry));
  return stand_ins_.back();
}

std::shared_ptr<BridgeGraph> BridgeRecording::finish(const std::vector<at::Tensor>& outputs) {
  return with_torch_errors([&] {
    SPOOL_ASSERT(graph_ != nullptr, "A recording is finished once.");
    for (std::size_t i = 0; i < stand_ins_.size(); ++i) {
      BridgeGraph::Input& input = graph_->inputs_[i];
      input.written = !stand_ins_[i].is_inference() && stand_ins_[i]._version() != 0;
      if (&slot_of(stand_ins_[i]) != storages_[input.storage] ||
          !has_geometry(*stand_ins_[i].unsafeGetTensorImpl(), input.geometry)) {
        extraction_.abandon("it changes the size, strides or storage of an input");
      }
    }
    std::unordered_map<const Slot*, std::size_t> made;
    std::vector<Slot*> results;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      using Kind = BridgeGraph::Output::Kind;
      if (!can_bridge(outputs[i])) {
        extraction_.abandon("an output is no plain tensor on the device");
      }
      const auto is_output = [&](const at::Tensor& other) { return other.is_same(outputs[i]); };
      const auto end = outputs.begin() + static_cast<std::ptrdiff_t>(i);
      if (const auto input = std::find_if(stand_ins_.begin(), stand_ins_.end(), is_output); input != stand_ins_.end()) {
        graph_->outputs_.push_back({Kind::Input, static_cast<std::size_t>(input - stand_ins_.begin()), {}});
        continue;
      }
      if (const auto earlier = std::find_if(outputs.begin(), end, is_output); earlier != end) {
        graph_->outputs_.push_back({Kind::Duplicate, static_cast<std::size_t>(earlier - outputs.begin()), {}});
        continue;
      }
      Slot* slot = &slot_of(outputs[i]);
      const auto storage = std::find(storages_.begin(), storages_.end(), slot);
      if (storage != storages_.end()) {
        graph_->outputs_.push_back({Kind::View, static_cast<std::size_t>(storage - storages_.begin()), geometry_of(outputs[i])});
        continue;
      }
      const auto [known, is_new] = made.emplace(slot, results.size());
      if (is_new) {
        results.push_back(slot);
      }
      graph_->outputs_.push_back({Kind::Made, known->second, geometry_of(outputs[i])});
    }
    graph_->extracted_ = extraction_.finish(storages_, results);
    const auto& replaced = graph_->extracted_.replaced;
    graph_->replaces_ = std::find(replaced.begin(), replaced.end(), 1) != replaced.end();
    return std::exchange(graph_, nullptr);
  });
}

bool can_bridge(const at::Tensor& tensor) {
  return is_lazy(tensor) && tensor.layout() == at::kStrided && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor.key_set().has(c10::DispatchKey::Python);
}

void launch_pending(const std::vector<at::Tensor>& tensors) {
  std::vector<Slot*> slots;
  for (const at::Tensor& tensor : tensors) {
    slots.push_back(&slot_of(tensor));
  }
  with_torch_errors([&] { Device::get().cut_for(slots, "extract", Cut::Extracted); });
}

}  // namespace spool::torch_side
