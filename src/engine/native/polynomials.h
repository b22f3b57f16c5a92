// Polynomials: float32 functions that are short enough to be written out where they are used.
//
// A call of a vector function costs more than its work: all vector registers are spilled around it. Each of these is within 1.05
// units of the last place (tests/unit/kernel_math_test.cpp); the functions that PyTorch calls promise 1.
// They need hardware's fused multiply-add.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "src/graph/kernel.h"

namespace spool::native {

/// Code for `op` on float or a vector of float; null if there is none.
llvm::Value* emit_polynomial(llvm::IRBuilder<>& builder, KernelOp op, llvm::Value* x);

}  // namespace spool::native
