// Running an op on small-lived CPU tensors of the arguments' geometry. It serves two ends: where a rule sees bad arguments, the op itself
// throws eager's own error; where the rule was wrong to refuse them, the op's results give the geometry.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace spool::torch_side {

// Replaces op's arguments on `stack`, whose tensors are Meta or CPU ones, by its results as infer() describes them, found by running op's
// CPU kernel on zeros. Costs memory and time like the op itself, so it is for refused arguments only. Throws what the op throws. Thread-safe.
void run_on_stand_ins(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace spool::torch_side
