// Matrix products straight through BLAS: the call that ATen's kernel ends in, without the way there.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "src/engine/aten/call.h"
#include "src/engine/native/plan.h"

namespace spool::native {

/// A step for a node that is `aten::mm` or `aten::addmm` of non-empty float32 or float64 matrices, each of which has a dimension of
/// stride 1, into `result`, which is row-major. The same bits as ATen's: the same BLAS routine gets the same operands.
/// nullptr: ATen has to do it (other types and layouts, or float32 products that were allowed to be less precise).
std::unique_ptr<Step> gemm_step(const Node& node, const aten::AtenCall::Operand& operand, const at::Tensor& result);

}  // namespace spool::native
