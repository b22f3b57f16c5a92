// Code for single instructions of a kernel, on scalars or vectors.
//
// Values of bool are i1. Values of float16 and bfloat16 are held as floats that have been rounded to that type: that is exact, and
// arithmetic on them is arithmetic on floats that is rounded again, as in ATen.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "src/engine/native/jit.h"
#include "src/engine/native/kernel_form.h"

namespace spool::native {

/// Emits instructions at the builder's place. Throws Error(Internal) for what no kernel may contain.
class Ops {
 public:
  Ops(llvm::IRBuilder<>& builder, jit::Symbols& symbols) : b_(builder), symbols_(symbols) {}

  /// What a value of that dtype is held in, in registers and in memory.
  llvm::Type* held(DType dtype) const;
  llvm::Type* stored(DType dtype) const;
  llvm::Value* from_stored(llvm::Value* value, DType dtype);
  llvm::Value* to_stored(llvm::Value* value, DType dtype);

  llvm::Value* constant(DType dtype, std::int64_t bits);
  /// What a reduction starts from.
  llvm::Value* identity(KernelOp reduction, DType dtype);
  /// Two partial results of a reduction, put together.
  llvm::Value* combine(KernelOp reduction, DType dtype, llvm::Value* a, llvm::Value* b);

  llvm::Value* cast(llvm::Value* value, DType from, DType to);
  /// An op with operands that computes: all but sources, casts, reductions and stores. Operands are all scalars or all vectors of
  /// one length.
  llvm::Value* compute(KernelOp op, DType dtype, llvm::ArrayRef<llvm::Value*> operands);

 private:
  llvm::Value* round(llvm::Value* value, DType dtype);
  llvm::Value* floating(KernelOp op, DType dtype, llvm::ArrayRef<llvm::Value*> operands);
  llvm::Value* integer(KernelOp op, DType dtype, llvm::ArrayRef<llvm::Value*> operands);
  llvm::Value* boolean(KernelOp op, llvm::ArrayRef<llvm::Value*> operands);
  llvm::Value* compare(KernelOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* divide(KernelOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* floor_div(llvm::Value* a, llvm::Value* b);
  llvm::Value* intrinsic(llvm::Intrinsic::ID id, llvm::ArrayRef<llvm::Value*> operands);
  llvm::Type* like(llvm::Value* value, llvm::Type* scalar) const;

  llvm::IRBuilder<>& b_;
  jit::Symbols& symbols_;
};

}  // namespace spool::native
