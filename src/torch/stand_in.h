// Running an op on small-lived CPU tensors of the arguments' geometry. It serves two ends: where a rule sees bad arguments, the op itself
// throws eager's own error; where the rule was wrong to refuse them, the op's results give the geometry.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace spool::torch_side {

// Replaces op's arguments on `stack`, whose tensors are Meta or CPU ones, by its results as infer() describes them, found by running op's
// CPU kernel on zeros. Costs memory and time like the op itself, so it is for refused arguments only. Throws what the op throws. Thread-safe.
void run_on_stand_ins(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// Throws eager's error if op's CPU kernel does not take the dtypes of these arguments ("… not implemented for 'Long'"): kernels find that out
// only when they run, and the user should hear of it at the line that records the op. Tries each combination of op and dtypes once, on
// arguments of up to a megabyte in all. Float is taken to be known everywhere. Thread-safe.
void check_dtypes(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

// Throws eager's error if an argument that is written overlaps with itself or with another argument in a way that op's CPU kernel refuses.
// For arguments of up to 64 megabytes in all; larger ones are refused when they run. Thread-safe.
void check_overlap(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

// Whether check_dtypes() would try these arguments.
bool has_untried_dtypes(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

}  // namespace spool::torch_side
