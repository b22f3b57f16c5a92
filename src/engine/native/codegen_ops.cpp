#include "src/engine/native/codegen_ops.h"

#include <llvm/IR/Intrinsics.h>

#include <bit>

#include "src/base/error.h"
#include "src/engine/native/vector_math.h"

namespace spool::native {
namespace {

/// Integer powers as ATen's: wrap around; a negative exponent gives 0 unless the base is 1 or -1.
std::int64_t power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  }
  std::uint64_t result = 1;
  for (auto factor = static_cast<std::uint64_t>(base); exponent != 0; exponent /= 2, factor *= factor) {
    if (exponent % 2 != 0) {
      result *= factor;
    }
  }
  return static_cast<std::int64_t>(result);
}

bool is_signed(DType dtype) { return dtype != DType::UInt8 && dtype != DType::Bool; }

}  // namespace

llvm::Type* Ops::held(DType dtype) const {
  if (dtype == DType::Bool) {
    return b_.getInt1Ty();
  }
  if (dtype == DType::Float64) {
    return b_.getDoubleTy();
  }
  return is_floating(dtype) ? b_.getFloatTy() : b_.getIntNTy(static_cast<unsigned>(8 * element_size(dtype)));
}

llvm::Type* Ops::stored(DType dtype) const {
  switch (dtype) {
    case DType::Bool: return b_.getInt8Ty();
    case DType::Float16: return b_.getHalfTy();
    case DType::BFloat16: return b_.getInt16Ty();
    default: return held(dtype);
  }
}

llvm::Type* Ops::like(llvm::Value* value, llvm::Type* scalar) const {
  auto* vector = llvm::dyn_cast<llvm::VectorType>(value->getType());
  return vector == nullptr ? scalar : llvm::VectorType::get(scalar, vector->getElementCount());
}

llvm::Value* Ops::intrinsic(llvm::Intrinsic::ID id, llvm::ArrayRef<llvm::Value*> operands) {
  return b_.CreateIntrinsic(id, {operands[0]->getType()}, operands);
}

llvm::Value* Ops::from_stored(llvm::Value* value, DType dtype) {
  switch (dtype) {
    case DType::Bool: return b_.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
    case DType::Float16: return b_.CreateFPExt(value, like(value, b_.getFloatTy()));
    case DType::BFloat16: {
      llvm::Type* wide = like(value, b_.getInt32Ty());
      return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(value, wide), llvm::ConstantInt::get(wide, 16)),
                              like(value, b_.getFloatTy()));
    }
    default: return value;
  }
}

llvm::Value* Ops::to_stored(llvm::Value* value, DType dtype) {
  switch (dtype) {
    case DType::Bool: return b_.CreateZExt(value, like(value, b_.getInt8Ty()));
    case DType::Float16: return b_.CreateFPTrunc(value, like(value, b_.getHalfTy()));
    case DType::BFloat16: {
      llvm::Type* wide = like(value, b_.getInt32Ty());
      return b_.CreateTrunc(b_.CreateLShr(b_.CreateBitCast(value, wide), llvm::ConstantInt::get(wide, 16)),
                            like(value, b_.getInt16Ty()));
    }
    default: return value;
  }
}

/// A float, rounded to nearest even to what the dtype can hold.
llvm::Value* Ops::round(llvm::Value* value, DType dtype) {
  if (dtype == DType::Float16) {
    return b_.CreateFPExt(b_.CreateFPTrunc(value, like(value, b_.getHalfTy())), value->getType());
  }
  if (dtype != DType::BFloat16) {
    return value;
  }
  llvm::Type* wide = like(value, b_.getInt32Ty());
  const auto number = [&](std::uint64_t n) { return llvm::ConstantInt::get(wide, n); };
  llvm::Value* bits = b_.CreateBitCast(value, wide);
  llvm::Value* odd = b_.CreateAnd(b_.CreateLShr(bits, number(16)), number(1));
  llvm::Value* rounded = b_.CreateAnd(b_.CreateAdd(b_.CreateAdd(bits, number(0x7FFF)), odd), number(0xFFFF0000U));
  return b_.CreateBitCast(b_.CreateSelect(b_.CreateFCmpUNO(value, value), number(0x7FC00000U), rounded), value->getType());
}

llvm::Value* Ops::constant(DType dtype, std::int64_t bits) {
  if (is_floating(dtype)) {
    const auto value = std::bit_cast<double>(bits);
    if (dtype == DType::Float64) {
      return llvm::ConstantFP::get(b_.getDoubleTy(), value);
    }
    return round(llvm::ConstantFP::get(b_.getContext(), llvm::APFloat(static_cast<float>(value))), dtype);
  }
  return dtype == DType::Bool ? b_.getInt1(bits != 0)
                              : llvm::ConstantInt::get(held(dtype), static_cast<std::uint64_t>(bits), is_signed(dtype));
}

llvm::Value* Ops::identity(KernelOp reduction, DType dtype) {
  llvm::Type* type = held(dtype);
  const unsigned bits = type->getScalarSizeInBits();
  switch (reduction) {
    case KernelOp::ReduceSum: return llvm::Constant::getNullValue(type);
    case KernelOp::ReduceProduct:
      return is_floating(dtype) ? llvm::ConstantFP::get(type, 1) : static_cast<llvm::Value*>(llvm::ConstantInt::get(type, 1));
    default: break;
  }
  const bool maximum = reduction == KernelOp::ReduceMaximum;
  if (is_floating(dtype)) {
    return llvm::ConstantFP::getInfinity(type, maximum);
  }
  if (!is_signed(dtype)) {
    return llvm::ConstantInt::get(type, maximum ? llvm::APInt::getMinValue(bits) : llvm::APInt::getMaxValue(bits));
  }
  return llvm::ConstantInt::get(type, maximum ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getSignedMaxValue(bits));
}

llvm::Value* Ops::combine(KernelOp reduction, DType dtype, llvm::Value* a, llvm::Value* b) {
  // Halves are summed up as floats; the result is rounded once.
  const DType in = is_half(dtype) ? DType::Float32 : dtype;
  switch (reduction) {
    case KernelOp::ReduceSum: return compute(KernelOp::Add, in, {a, b});
    case KernelOp::ReduceProduct: return compute(KernelOp::Mul, in, {a, b});
    case KernelOp::ReduceMaximum: return compute(KernelOp::Maximum, in, {a, b});
    case KernelOp::ReduceMinimum: return compute(KernelOp::Minimum, in, {a, b});
    default: fail(ErrorKind::Internal, "[compile] ", name(reduction), " is no reduction.");
  }
}

llvm::Value* Ops::cast(llvm::Value* value, DType from, DType to) {
  llvm::Type* target = like(value, held(to));
  if (to == DType::Bool) {
    return from == DType::Bool ? value : b_.CreateNot(compute(KernelOp::Not, from, {value}));
  }
  if (is_floating(from)) {
    if (to == DType::Float64) {
      return from == DType::Float64 ? value : b_.CreateFPExt(value, target);
    }
    if (is_floating(to)) {
      llvm::Value* narrow = from == DType::Float64 ? b_.CreateFPTrunc(value, target) : value;
      return from == to ? narrow : round(narrow, to);
    }
    // As the processor does it, also for what does not fit: through a wider integer, then cut off.
    llvm::Type* wide = to == DType::Int64 || to == DType::UInt8 ? b_.getInt64Ty() : b_.getInt32Ty();
    llvm::Value* whole = b_.CreateFreeze(b_.CreateFPToSI(value, like(value, wide)));
    return b_.CreateTrunc(whole, target);
  }
  if (is_floating(to)) {
    llvm::Value* floating = is_signed(from) ? b_.CreateSIToFP(value, target) : b_.CreateUIToFP(value, target);
    return round(floating, to);
  }
  return is_signed(from) ? b_.CreateSExtOrTrunc(value, target) : b_.CreateZExtOrTrunc(value, target);
}

llvm::Value* Ops::compute(KernelOp op, DType dtype, llvm::ArrayRef<llvm::Value*> operands) {
  if (op == KernelOp::Where) {
    return b_.CreateSelect(operands[0], operands[1], operands[2]);
  }
  if (is_comparison(op)) {
    return compare(op, dtype, operands[0], operands[1]);
  }
  if (is_floating(dtype)) {
    llvm::Value* result = floating(op, dtype, operands);
    const bool exact = op == KernelOp::Not || op == KernelOp::IsNan;
    return exact ? result : round(result, dtype);
  }
  if (op == KernelOp::IsNan) {
    return llvm::Constant::getNullValue(like(operands[0], b_.getInt1Ty()));
  }
  return dtype == DType::Bool ? boolean(op, operands) : integer(op, dtype, operands);
}

llvm::Value* Ops::compare(KernelOp op, DType dtype, llvm::Value* a, llvm::Value* b) {
  using P = llvm::CmpInst;
  const int which = static_cast<int>(op) - static_cast<int>(KernelOp::Eq);
  constexpr P::Predicate floats[] = {P::FCMP_OEQ, P::FCMP_UNE, P::FCMP_OLT, P::FCMP_OLE, P::FCMP_OGT, P::FCMP_OGE};
  constexpr P::Predicate integers[] = {P::ICMP_EQ, P::ICMP_NE, P::ICMP_SLT, P::ICMP_SLE, P::ICMP_SGT, P::ICMP_SGE};
  constexpr P::Predicate naturals[] = {P::ICMP_EQ, P::ICMP_NE, P::ICMP_ULT, P::ICMP_ULE, P::ICMP_UGT, P::ICMP_UGE};
  return is_floating(dtype) ? b_.CreateFCmp(floats[which], a, b)
                            : b_.CreateICmp(is_signed(dtype) ? integers[which] : naturals[which], a, b);
}

llvm::Value* Ops::floating(KernelOp op, DType /*dtype*/, llvm::ArrayRef<llvm::Value*> v) {
  llvm::Value* a = v[0];
  llvm::Type* type = a->getType();
  llvm::Value* zero = llvm::ConstantFP::get(type, 0);
  llvm::Value* one = llvm::ConstantFP::get(type, 1);
  switch (op) {
    case KernelOp::Neg: return b_.CreateFNeg(a);
    case KernelOp::Abs: return intrinsic(llvm::Intrinsic::fabs, {a});
    case KernelOp::Sign: {
      llvm::Value* negative = b_.CreateSelect(b_.CreateFCmpOLT(a, zero), llvm::ConstantFP::get(type, -1), zero);
      return b_.CreateSelect(b_.CreateFCmpOGT(a, zero), one, negative);
    }
    case KernelOp::Not: return b_.CreateFCmpOEQ(a, zero);
    case KernelOp::IsNan: return b_.CreateFCmpUNO(a, a);
    case KernelOp::Floor: return intrinsic(llvm::Intrinsic::floor, {a});
    case KernelOp::Ceil: return intrinsic(llvm::Intrinsic::ceil, {a});
    case KernelOp::Round: return intrinsic(llvm::Intrinsic::nearbyint, {a});
    case KernelOp::Trunc: return intrinsic(llvm::Intrinsic::trunc, {a});
    case KernelOp::Sqrt: return intrinsic(llvm::Intrinsic::sqrt, {a});
    case KernelOp::Rsqrt: return b_.CreateFDiv(one, intrinsic(llvm::Intrinsic::sqrt, {a}));
    case KernelOp::Reciprocal: return b_.CreateFDiv(one, a);
    case KernelOp::Add: return b_.CreateFAdd(a, v[1]);
    case KernelOp::Sub: return b_.CreateFSub(a, v[1]);
    case KernelOp::Mul: return b_.CreateFMul(a, v[1]);
    case KernelOp::Div: return b_.CreateFDiv(a, v[1]);
    case KernelOp::FloorDiv: return floor_div(a, v[1]);
    case KernelOp::Remainder: {
      llvm::Value* mod = emit_math(b_, symbols_, KernelOp::Fmod, {a, v[1]});
      llvm::Value* opposite = b_.CreateXor(b_.CreateFCmpOLT(v[1], zero), b_.CreateFCmpOLT(mod, zero));
      return b_.CreateSelect(b_.CreateAnd(b_.CreateFCmpUNE(mod, zero), opposite), b_.CreateFAdd(mod, v[1]), mod);
    }
    case KernelOp::CopySign: return intrinsic(llvm::Intrinsic::copysign, {a, v[1]});
    case KernelOp::Maximum:
      return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, b_.CreateSelect(b_.CreateFCmpOGT(a, v[1]), a, v[1]));
    case KernelOp::Minimum:
      return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, b_.CreateSelect(b_.CreateFCmpOLT(a, v[1]), a, v[1]));
    case KernelOp::Fmax:
    case KernelOp::Fmin: {
      llvm::Value* first = op == KernelOp::Fmax ? b_.CreateFCmpOGT(a, v[1]) : b_.CreateFCmpOLT(a, v[1]);
      return b_.CreateSelect(b_.CreateFCmpUNO(v[1], v[1]), a, b_.CreateSelect(first, a, v[1]));
    }
    case KernelOp::Fma: return intrinsic(llvm::Intrinsic::fma, v);
    default:
      SPOOL_CHECK(is_math(op), Internal, "[compile] ", name(op), " of floating point can't be in a kernel.");
      return emit_math(b_, symbols_, op, v);
  }
}

/// As c10::div_floor_floating.
llvm::Value* Ops::floor_div(llvm::Value* a, llvm::Value* b) {
  llvm::Type* type = a->getType();
  llvm::Value* zero = llvm::ConstantFP::get(type, 0);
  llvm::Value* one = llvm::ConstantFP::get(type, 1);
  llvm::Value* mod = emit_math(b_, symbols_, KernelOp::Fmod, {a, b});
  llvm::Value* quotient = b_.CreateFDiv(b_.CreateFSub(a, mod), b);
  llvm::Value* opposite = b_.CreateXor(b_.CreateFCmpOLT(b, zero), b_.CreateFCmpOLT(mod, zero));
  quotient = b_.CreateSelect(b_.CreateAnd(b_.CreateFCmpUNE(mod, zero), opposite), b_.CreateFSub(quotient, one), quotient);
  llvm::Value* down = intrinsic(llvm::Intrinsic::floor, {quotient});
  llvm::Value* off = b_.CreateFCmpOGT(b_.CreateFSub(quotient, down), llvm::ConstantFP::get(type, 0.5));
  down = b_.CreateSelect(off, b_.CreateFAdd(down, one), down);
  llvm::Value* plain = b_.CreateFDiv(a, b);
  llvm::Value* result =
      b_.CreateSelect(b_.CreateFCmpUNE(quotient, zero), down, intrinsic(llvm::Intrinsic::copysign, {zero, plain}));
  return b_.CreateSelect(b_.CreateFCmpOEQ(b, zero), plain, result);
}

llvm::Value* Ops::integer(KernelOp op, DType dtype, llvm::ArrayRef<llvm::Value*> v) {
  llvm::Value* a = v[0];
  llvm::Type* type = a->getType();
  const bool sign = is_signed(dtype);
  llvm::Value* zero = llvm::ConstantInt::get(type, 0);
  const auto less = [&](llvm::Value* x, llvm::Value* y) { return compare(KernelOp::Lt, dtype, x, y); };
  switch (op) {
    case KernelOp::Neg: return b_.CreateNeg(a);
    case KernelOp::Abs: return sign ? b_.CreateSelect(less(a, zero), b_.CreateNeg(a), a) : a;
    case KernelOp::Sign: {
      llvm::Value* positive = b_.CreateZExt(less(zero, a), type);
      return sign ? b_.CreateSelect(less(a, zero), llvm::Constant::getAllOnesValue(type), positive) : positive;
    }
    case KernelOp::Not: return b_.CreateICmpEQ(a, zero);
    case KernelOp::BitNot: return b_.CreateNot(a);
    case KernelOp::Floor:
    case KernelOp::Ceil:
    case KernelOp::Round:
    case KernelOp::Trunc: return a;
    case KernelOp::Add: return b_.CreateAdd(a, v[1]);
    case KernelOp::Sub: return b_.CreateSub(a, v[1]);
    case KernelOp::Mul: return b_.CreateMul(a, v[1]);
    case KernelOp::Fma: return b_.CreateAdd(b_.CreateMul(a, v[1]), v[2]);
    case KernelOp::Div:
    case KernelOp::FloorDiv:
    case KernelOp::Fmod:
    case KernelOp::Remainder: return divide(op, dtype, a, v[1]);
    case KernelOp::Pow: {
      llvm::Type* wide = like(a, b_.getInt64Ty());
      const auto widen = [&](llvm::Value* x) { return sign ? b_.CreateSExt(x, wide) : b_.CreateZExt(x, wide); };
      return b_.CreateTrunc(emit_lanes(b_, symbols_, "spool_power", reinterpret_cast<void*>(&power), {widen(a), widen(v[1])}),
                            type);
    }
    case KernelOp::Maximum:
    case KernelOp::Fmax: return b_.CreateSelect(less(v[1], a), a, v[1]);
    case KernelOp::Minimum:
    case KernelOp::Fmin: return b_.CreateSelect(less(a, v[1]), a, v[1]);
    case KernelOp::And: return b_.CreateAnd(a, v[1]);
    case KernelOp::Or: return b_.CreateOr(a, v[1]);
    case KernelOp::Xor: return b_.CreateXor(a, v[1]);
    case KernelOp::Shl:
    case KernelOp::Shr: {
      const unsigned bits = type->getScalarSizeInBits();
      llvm::Value* most = llvm::ConstantInt::get(type, bits - 1);
      llvm::Value* inside = b_.CreateICmpULE(v[1], most);  // as unsigned, negative amounts are too much as well
      llvm::Value* by = b_.CreateSelect(inside, v[1], most);
      if (op == KernelOp::Shr && sign) {
        return b_.CreateAShr(a, by);
      }
      return b_.CreateSelect(inside, op == KernelOp::Shl ? b_.CreateShl(a, by) : b_.CreateLShr(a, by), zero);
    }
    default: fail(ErrorKind::Internal, "[compile] ", name(op), " of ", spool::name(dtype), " can't be in a kernel.");
  }
}

/// Division by zero, for which ATen raises an error, gives 0 here and no trap; so does the lowest number by -1, which wraps around.
llvm::Value* Ops::divide(KernelOp op, DType dtype, llvm::Value* a, llvm::Value* b) {
  llvm::Type* type = a->getType();
  const bool sign = is_signed(dtype);
  llvm::Value* zero = llvm::ConstantInt::get(type, 0);
  llvm::Value* one = llvm::ConstantInt::get(type, 1);
  llvm::Value* by_zero = b_.CreateICmpEQ(b, zero);
  llvm::Value* special = by_zero;
  llvm::Value* by_minus = nullptr;
  if (sign) {
    by_minus = b_.CreateICmpEQ(b, llvm::Constant::getAllOnesValue(type));
    special = b_.CreateOr(by_zero, by_minus);
  }
  llvm::Value* divisor = b_.CreateFreeze(b_.CreateSelect(special, one, b));
  llvm::Value* quotient = sign ? b_.CreateSDiv(a, divisor) : b_.CreateUDiv(a, divisor);
  if (sign) {
    quotient = b_.CreateSelect(by_minus, b_.CreateNeg(a), quotient);
  }
  quotient = b_.CreateSelect(by_zero, zero, quotient);
  llvm::Value* rest = b_.CreateSelect(by_zero, zero, b_.CreateSub(a, b_.CreateMul(quotient, b)));
  llvm::Value* adjust = nullptr;
  if (sign) {
    llvm::Value* opposite = b_.CreateICmpSLT(b_.CreateXor(rest, b), zero);
    adjust = b_.CreateAnd(b_.CreateICmpNE(rest, zero), opposite);
  }
  switch (op) {
    case KernelOp::Div: return quotient;
    case KernelOp::FloorDiv: return sign ? b_.CreateSub(quotient, b_.CreateZExt(adjust, type)) : quotient;
    case KernelOp::Fmod: return rest;
    default: return sign ? b_.CreateSelect(adjust, b_.CreateAdd(rest, b), rest) : rest;
  }
}

llvm::Value* Ops::boolean(KernelOp op, llvm::ArrayRef<llvm::Value*> v) {
  switch (op) {
    case KernelOp::Abs:
    case KernelOp::Sign: return v[0];
    case KernelOp::Not:
    case KernelOp::BitNot: return b_.CreateNot(v[0]);
    case KernelOp::Add:
    case KernelOp::Or:
    case KernelOp::Fmax:
    case KernelOp::Maximum: return b_.CreateOr(v[0], v[1]);
    case KernelOp::Mul:
    case KernelOp::And:
    case KernelOp::Fmin:
    case KernelOp::Minimum: return b_.CreateAnd(v[0], v[1]);
    case KernelOp::Sub:
    case KernelOp::Xor: return b_.CreateXor(v[0], v[1]);
    case KernelOp::Pow: return b_.CreateOr(v[0], b_.CreateNot(v[1]));
    default: fail(ErrorKind::Internal, "[compile] ", name(op), " of bool can't be in a kernel.");
  }
}

}  // namespace spool::native
