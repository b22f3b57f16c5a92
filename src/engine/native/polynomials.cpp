#include "src/engine/native/polynomials.h"

#include <llvm/IR/Intrinsics.h>

#include <initializer_list>
#include <limits>

namespace spool::native {
namespace {

using llvm::Value;

/// Coefficients are minimax fits to the relative error of the result, rounded to float from the lowest power on.
class Polynomials {
 public:
  Polynomials(llvm::IRBuilder<>& builder, Value* x) : b_(builder), type_(x->getType()), bits_(b_.getInt32Ty()) {
    if (auto* vector = llvm::dyn_cast<llvm::VectorType>(type_)) {
      bits_ = llvm::VectorType::get(bits_, vector->getElementCount());
    }
  }

  /// x = q ln2 + r, exp(x) = 2^q exp(r), r at most half of ln2.
  Value* exp(Value* x) {
    Value* clamped = b_.CreateSelect(b_.CreateFCmpOGT(x, number(89)), number(89), x);
    clamped = b_.CreateSelect(b_.CreateFCmpOLT(clamped, number(-104)), number(-104), clamped);  // NaN stays
    const auto [q, power] = exp_parts(clamped);
    // In two steps: 2^q alone may not be a float though the result is.
    Value* half = b_.CreateAShr(q, integer(1));
    return b_.CreateFMul(b_.CreateFMul(power, power_of_two(half)), power_of_two(b_.CreateSub(q, half)));
  }

  /// x = 2^e (1 + f), f between -1/3 and 1/3.
  Value* log(Value* x) {
    Value* small = b_.CreateFCmpOLT(x, number(std::numeric_limits<float>::min()));
    Value* normal = b_.CreateSelect(small, b_.CreateFMul(x, number(0x1p23F)), x);
    Value* bits = b_.CreateBitCast(normal, bits_);
    Value* exponent = b_.CreateAnd(b_.CreateSub(bits, integer(0x3F2AAAAB)), integer(0xFF800000U));
    Value* f = b_.CreateFSub(b_.CreateBitCast(b_.CreateSub(bits, exponent), type_), number(1));
    Value* e = fma(b_.CreateSIToFP(exponent, type_), number(0x1p-23F), b_.CreateSelect(small, number(-23), number(0)));
    Value* p = horner(f, {0.3333321511745453F, -0.24999800324440002F, 0.2001044601202011F, -0.1668037623167038F,
                          0.14005306363105774F, -0.12185712158679962F, 0.13986898958683014F, -0.12885671854019165F});
    Value* square = b_.CreateFMul(f, f);
    Value* tail = fma(fma(p, f, number(-0.5F)), square, fma(e, number(-1.904654323148236e-09F), number(0)));
    Value* result = fma(e, number(0.693147182464599609375F), b_.CreateFAdd(f, tail));
    Value* special = b_.CreateSelect(b_.CreateFCmpOEQ(x, number(0)), number(-infinity), number(nan));
    result = b_.CreateSelect(b_.CreateFCmpOGT(x, number(0)), result, special);
    return b_.CreateSelect(b_.CreateFCmpOEQ(x, number(infinity)), x, result);
  }

  /// Near 0 x + x P(x^2), further out 1 - exp(-Q(|x|)), where Q is -log(erfc).
  Value* erf(Value* x) {
    Value* a = abs(x);
    Value* t = b_.CreateFMul(x, x);
    Value* near = horner(t, {0.12837916612625122F, -0.3761262893676758F, 0.11283625662326813F, -0.026855727657675743F,
                             0.005192381329834461F, -0.0008049304015003145F, 7.99378685769625e-05F});
    near = fma(near, x, x);
    Value* far = b_.CreateSelect(b_.CreateFCmpOGT(a, number(4)), number(4), a);
    Value* q = horner(far, {0.00019566653645597398F, 1.1276756525039673F, 0.6371822357177734F, 0.10393156111240387F,
                            -0.022226868197321892F, 0.003043190808966756F, -0.0001959324727067724F});
    far = b_.CreateFSub(number(1), small_exp(b_.CreateFNeg(q)));
    far = b_.CreateIntrinsic(llvm::Intrinsic::copysign, {type_}, {far, x});
    return b_.CreateSelect(b_.CreateFCmpOGT(a, number(0.921875F)), far, near);
  }

  /// Near 0 x + x^3 P(x^2), further out 1 - 2 / (exp(2 |x|) + 1).
  Value* tanh(Value* x) {
    Value* a = abs(x);
    Value* t = b_.CreateFMul(x, x);
    Value* near = horner(
        t, {-0.3333328664302826F, 0.13331569731235504F, -0.05375058948993683F, 0.02067560702562332F, -0.0057470956817269325F});
    near = fma(b_.CreateFMul(near, t), x, x);
    Value* far = b_.CreateSelect(b_.CreateFCmpOGT(a, number(10)), number(10), a);
    Value* e = small_exp(b_.CreateFAdd(far, far));
    far = b_.CreateFSub(number(1), b_.CreateFDiv(number(2), b_.CreateFAdd(e, number(1))));
    far = b_.CreateIntrinsic(llvm::Intrinsic::copysign, {type_}, {far, x});
    return b_.CreateSelect(b_.CreateFCmpOGT(a, number(0.6F)), far, near);
  }

 private:
  static constexpr float infinity = std::numeric_limits<float>::infinity();
  static constexpr float nan = std::numeric_limits<float>::quiet_NaN();

  Value* number(float value) { return llvm::ConstantFP::get(type_, value); }
  Value* integer(std::uint32_t value) { return llvm::ConstantInt::get(bits_, value); }
  Value* fma(Value* a, Value* b, Value* c) { return b_.CreateIntrinsic(llvm::Intrinsic::fma, {type_}, {a, b, c}); }
  Value* abs(Value* x) { return b_.CreateIntrinsic(llvm::Intrinsic::fabs, {type_}, {x}); }
  /// Coefficients from the lowest power on.
  Value* horner(Value* x, std::initializer_list<float> coefficients) {
    const auto* at = coefficients.end() - 1;
    Value* sum = number(*at);
    while (at != coefficients.begin()) {
      sum = fma(sum, x, number(*--at));
    }
    return sum;
  }
  Value* power_of_two(Value* exponent) {
    return b_.CreateBitCast(b_.CreateShl(b_.CreateAdd(exponent, integer(127)), integer(23)), type_);
  }

  /// q and exp(r) of the header of `exp`.
  std::pair<Value*, Value*> exp_parts(Value* x) {
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
    Value* magic = number(0x1.8p23F);
    Value* shifted = fma(x, number(1.44269504F), magic);
    Value* q = b_.CreateFSub(shifted, magic);
    Value* r = fma(q, number(-0.693145751953125F), x);
    r = fma(q, number(-1.428606765330187e-06F), r);
    Value* p =
        horner(r, {0.4999999403953552F, 0.1666652113199234F, 0.04166826233267784F, 0.00836867094039917F, 0.001382104237563908F});
    Value* power = b_.CreateFAdd(fma(b_.CreateFMul(r, r), p, r), number(1));
    return {b_.CreateSub(b_.CreateBitCast(shifted, bits_), b_.CreateBitCast(magic, bits_)), power};
  }
  /// exp where the result is far from overflow and underflow.
  Value* small_exp(Value* x) {
    const auto [q, power] = exp_parts(x);
    return b_.CreateFMul(power, power_of_two(q));
  }

  llvm::IRBuilder<>& b_;
  llvm::Type* type_;
  llvm::Type* bits_;
};

}  // namespace

llvm::Value* emit_polynomial(llvm::IRBuilder<>& builder, KernelOp op, llvm::Value* x) {
  Polynomials polynomials(builder, x);
  switch (op) {
    case KernelOp::Exp: return polynomials.exp(x);
    case KernelOp::Log: return polynomials.log(x);
    case KernelOp::Erf: return polynomials.erf(x);
    case KernelOp::Tanh: return polynomials.tanh(x);
    default: return nullptr;
  }
}

}  // namespace spool::native
