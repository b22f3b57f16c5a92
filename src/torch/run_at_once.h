// Run at once: ops that can't stay in a graph (results whose shape depends on data, random fills, ops that nobody can infer) run on
// the CPU's kernels when they are recorded; and the copies between host and device, which are the same thing.
//
// Only ops whose operands are pending cut the tape. Counted as `aten::<op>`, except plain reads; draws that fill a tensor, which never cut,
// as `RandomFill`.
#pragma once

#include <ATen/core/stack.h>

#include <functional>

#include "src/torch/op_info.h"

namespace spool::torch_side {

/// Runs the op on the content of its lazy arguments and replaces them by its results.
void run_at_once(const OpInfo& info, torch::jit::Stack& stack);

/// A CPU tensor over the content of a lazy one, for reading. Cuts and waits if need be; throws what computing it threw.
at::Tensor read_on_host(const at::Tensor& lazy, const char* op);

/// Gives a lazy tensor new content: `fill` writes it into a CPU tensor of the same sizes; of the same strides too if those matter to
/// it (`by_strides`), as they do to random fills.
void write_from_host(const at::Tensor& lazy, const std::function<void(const at::Tensor&)>& fill, bool by_strides = false);

}  // namespace spool::torch_side
