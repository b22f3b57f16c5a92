// Geometry of an operator's results without running it: sizes, strides, dtype, and which results are arguments.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <exception>
#include <string_view>

namespace spool::torch_side {

// How the results were found.
enum class InferredBy {
  Rule,           // a rule of Spool's own
  StructuredMeta, // one of PyTorch's C++ meta functions, called directly
  DispatcherMeta, // the kernel that the dispatcher has for the Meta key, which may be Python
  Nothing,        // not found
};

// Replaces op's arguments on `stack` by its results, as the op itself would, but computes only geometry.
//
// Every tensor argument on device xla must have been replaced by a Meta tensor of the same sizes, strides, offset and dtype; operands that
// share a storage must share it here too, so that overlap is noticed. CPU tensors may be left as they are where the op allows them
// (0-dim wrapped numbers, index tensors). Results are Meta tensors, undefined tensors where the op returns such, or the very argument where
// the op returns an argument (in-place, out=). An out= argument of another size is resized, with eager's warning.
//
// Nothing: the stack is as it was, and the op has to be run to know (its geometry depends on data, or nobody knows it).
// Throws what the op run eagerly would throw for bad arguments; the stack's content is then unspecified.
// Thread-safe. May take Python's lock (DispatcherMeta, where Python registered the kernel), so hold no lock while calling.
InferredBy infer(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// The out= overload of a structured op given by its full name, functional or in-place: "aten::add.Tensor" -> "aten::add.out".
// Null where there is none. Thread-safe.
const char* structured_out_overload(std::string_view op);

// Sets what tells whether an exception out of Python's Meta kernels means "not implemented" (infer() then answers Nothing) rather than
// bad arguments. The Python binding sets it; without it such exceptions pass through. Thread-safe.
void set_not_implemented_classifier(bool (*means_not_implemented)(std::exception_ptr));

}  // namespace spool::torch_side
