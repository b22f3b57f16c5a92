// A graph's node as a call of an ATen kernel: what the engines that run on PyTorch's kernels share.
//
// Calls are made on the CPU key, below autograd: run them under c10::InferenceMode. Not thread-safe: an AtenCall belongs to one
// plan, and a plan runs on one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/graph/graph.h"

namespace spool::aten {

/// A CPU storage of `nbytes` bytes at `data`, which it does not own.
c10::Storage storage_at(void* data, std::size_t nbytes);

/// A tensor of that geometry on `storage`, which it shares; `shift` bytes (a multiple of the element size) are added to its offset.
at::Tensor tensor_on(const c10::Storage& storage, const Geometry& geometry, std::size_t shift = 0);

/// The dispatcher's operator behind an op that has one.
const c10::OperatorHandle& handle(const Op& op);

class AtenCall {
 public:
  /// Gives the tensor for a Tensor argument; called once for each while an AtenCall is made.
  using Operand = std::function<at::Tensor(const Arg&)>;

  /// A call of the node's own op. Throws Error(Internal) if arguments and schema don't match.
  AtenCall(const Node& node, const Operand& operand);

  /// A call of `out`, the out overload of the node's functional op, that writes its results into `outs`, in order.
  AtenCall(const Node& node, c10::OperatorHandle out, const Operand& operand, std::span<const at::Tensor> outs);

  /// Calls with this run's numbers and generators and leaves what the kernel returned on `stack`. Generators are copied, so that
  /// the given states stay what they are. Throws what the kernel throws.
  void run(torch::jit::Stack& stack, std::span<const Number> numbers, std::span<const GeneratorState> generators);

  /// Appends the op's fresh results (see Node) from `stack` to `results`; undefined tensors where it returned none.
  void take_fresh(torch::jit::Stack& stack, std::vector<at::Tensor>& results) const;

 private:
  /// Numbers and generators of this run go to `position` of the stack, or into `tensor` where they are passed as 0-dim tensors.
  struct Patch {
    std::size_t position = 0;
    c10::TypeKind kind = c10::TypeKind::NumberType;
    Arg arg;
    at::Tensor tensor;
  };

  c10::IValue convert(const Arg& arg, const c10::Type& type, std::size_t position, const Operand& operand);
  c10::IValue convert_list(const Arg& arg, const c10::Type& type, std::size_t position, const Operand& operand);
  at::Tensor number_tensor(const Arg& arg);
  void patch(torch::jit::Stack& stack, std::span<const Number> numbers, std::span<const GeneratorState> generators);

  c10::OperatorHandle op_;
  torch::jit::Stack arguments_;  ///< the stack before the call, but for what is patched
  std::vector<Patch> patches_;
};

/// Throws Error(Internal) unless `result` has the sizes and element type of `expected`. True if it lies as `expected` lies, so
/// that its bytes can be read with those strides.
bool check_result(const Op& op, const at::Tensor& result, const Geometry& expected);

/// To be called while an exception is being handled: throws it as an Error of the kind that eager would have raised, with the op
/// and the user's line in its message.
[[noreturn]] void rethrow_as_error(const Op& op, const LocationPtr& location);

}  // namespace spool::aten
