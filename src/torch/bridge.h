// Bridge: extracted graphs (runtime/extract.h) as functions of lazy tensors.
//
// Threading: a BridgeRecording lives on one thread; a BridgeGraph may be run from any thread, also from several at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/runtime/extract.h"
#include "src/tape/geometry.h"

namespace spool::torch_side {

/// A compiled graph. Its inputs are lazy tensors whose geometry, and which of them share storage, is fixed.
class BridgeGraph {
 public:
  /// Launches the graph on the inputs' buffers; records nothing. nullopt where it was not made for tensors like these: lazy ones
  /// with the geometry and the aliasing of its inputs. What is pending for them is launched first. Inputs that the graph updates in
  /// place are updated; a buffer that nobody else holds is donated, so nothing is copied. Gives the outputs: new tensors, inputs
  /// themselves, or views of either. `unlocked` is called with the launch. Throws as a cut does.
  std::optional<std::vector<at::Tensor>> call(std::span<const at::Tensor* const> inputs,
                                              const std::function<void(const std::function<void()>&)>& unlocked) const;
  /// The same for inputs that must match.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const;

 private:
  friend class BridgeRecording;

  struct Input {
    Geometry geometry;
    std::size_t storage = 0;
    bool written = false;  ///< through this tensor: its version counts
  };
  struct Output {
    enum class Kind { Input, View, Made, Duplicate };
    Kind kind = Kind::Made;
    std::size_t index = 0;  ///< of the input; of the storage; of the storage; of the earlier output
    Geometry geometry;  ///< View, Made
  };

  /// The slots of the input storages; false where the inputs aren't those that the graph was made for.
  bool bind(std::span<const at::Tensor* const> inputs, std::vector<Slot*>& slots) const;
  /// Whether one of the slots that are replaced stands for more than one storage of the graph.
  bool shares_replaced(std::span<Slot* const> slots) const;

  std::vector<Input> inputs_;
  std::vector<std::size_t> first_;  ///< per input storage: the first input on it
  std::vector<std::size_t> nbytes_;  ///< per input storage
  std::vector<Output> outputs_;
  Extracted extracted_;
  bool replaces_ = false;  ///< it updates an input in place
};

/// Recording of one graph, open from its making to its end on the thread that made it.
class BridgeRecording {
 public:
  /// A tensor that stands for the graph's next input, which will be like `tensor`. Stand-ins share storage where the tensors do.
  at::Tensor stand_in(const at::Tensor& tensor);
  /// Compiles what was recorded into a graph with these outputs. Throws if the graph can't be one (`reason` says why).
  std::shared_ptr<BridgeGraph> finish(const std::vector<at::Tensor>& outputs);
  /// Why the graph can't be extracted; empty while it can.
  const std::string& reason() const { return extraction_.reason(); }

 private:
  Extraction extraction_;
  std::vector<at::Tensor> stand_ins_;
  std::vector<Slot*> storages_;  ///< of the stand-ins, as they were made
  std::unordered_map<const Slot*, std::size_t> known_;  ///< by the slot of the tensor that is stood for
  std::shared_ptr<BridgeGraph> graph_ = std::make_shared<BridgeGraph>();
};

/// Whether a graph can take this tensor as it is: dense, on the lazy device, no subclass, no conjugate or negative view.
bool can_bridge(const at::Tensor& tensor);

/// Launches what is pending for these tensors, as one graph; waits for nothing.
void launch_pending(const std::vector<at::Tensor>& tensors);

}  // namespace spool::torch_side
