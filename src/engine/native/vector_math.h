// Vector math: functions that hardware has no instruction for, on vectors of any length.
//
// PyTorch's library exports the functions of Sleef that its own kernels call; generated code calls the same ones. Where one is
// missing, the C library's is called for each lane.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "src/engine/native/jit.h"
#include "src/graph/kernel.h"

namespace spool::native {

/// Whether `op` on floating point is such a function.
bool is_math(KernelOp op);

/// Emits a call. The operands are all float or double, all of the same length (a scalar or a vector). Adds what is called to
/// `symbols`. The bits of a lane's result depend on that lane alone, and not on the vector's length.
llvm::Value* emit_math(llvm::IRBuilder<>& builder, jit::Symbols& symbols, KernelOp op, llvm::ArrayRef<llvm::Value*> operands);

/// The address of what `emit_math` calls by that name; null for any other name.
void* math_symbol(const std::string& name);

/// Emits a call of a C function with scalar operands, for each lane. All operands and the result are of one type.
llvm::Value* emit_lanes(llvm::IRBuilder<>& builder, jit::Symbols& symbols, const char* name, void* address,
                        llvm::ArrayRef<llvm::Value*> operands);

}  // namespace spool::native
