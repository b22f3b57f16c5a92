// Encode: an operator's arguments on PyTorch's stack → a Call.
#pragma once

#include <ATen/core/stack.h>

#include "src/tape/call.h"
#include "src/torch/op_info.h"

namespace spool::torch_side {

/// Fills `call` from the last arguments on `stack`. Throws PyTorch's device error where an argument is on another device (0-dim
/// CPU tensors that are only read are numbers). Takes no lock.
void encode(const OpInfo& info, const torch::jit::Stack& stack, Call& call);

/// The error for tensors on two devices, as eager PyTorch words it.
[[noreturn]] void throw_device_error(const at::Tensor& other);

/// Replaces every tensor in `value`, also in lists, by what `map` makes of it.
template <class Map>
c10::IValue map_tensors(const c10::IValue& value, const Map& map) {
  if (value.isTensor()) {
    return map(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(map(tensor));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() ? std::optional(map(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

/// Calls `visit` for every defined tensor in `value`, also in lists.
template <class Visit>
void visit_tensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& element : value.toListRef()) {
      visit_tensors(element, visit);
    }
  }
}

}  // namespace spool::torch_side
