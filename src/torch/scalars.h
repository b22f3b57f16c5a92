// Scalars: the value of a 0-dim CPU tensor as a number of the tape.
#pragma once

#include <ATen/core/Tensor.h>

#include "src/tape/call.h"

namespace spool::torch_side {

/// What kind of number a 0-dim CPU tensor is, and its value now.
NumberType number_type_of(const at::TensorImpl& tensor);
Number number_of(const at::TensorImpl& tensor);
inline Number number_of(const at::Tensor& tensor) { return number_of(*tensor.unsafeGetTensorImpl()); }

}  // namespace spool::torch_side
