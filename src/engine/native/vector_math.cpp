#include "src/engine/native/vector_math.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "src/base/error.h"
#include "src/engine/native/polynomials.h"

namespace spool::native {
namespace {

struct Row {
  KernelOp op;
  const char* name;  ///< the C library's, of doubles
  const char* ulp;   ///< suffix of Sleef's, or null where only the C library's is used
  void* f32;
  void* f64;
};

template <class T, T (*function)(T)>
T unary(T x) {
  return function(x);
}

#define SPOOL_UNARY(op, name, ulp)                                                              \
  Row {                                                                                         \
    KernelOp::op, #name, ulp, reinterpret_cast<void*>(static_cast<float (*)(float)>(&name##f)), \
        reinterpret_cast<void*>(static_cast<double (*)(double)>(&name))                         \
  }
#define SPOOL_BINARY(op, name, ulp)                                                                    \
  Row {                                                                                                \
    KernelOp::op, #name, ulp, reinterpret_cast<void*>(static_cast<float (*)(float, float)>(&name##f)), \
        reinterpret_cast<void*>(static_cast<double (*)(double, double)>(&name))                        \
  }

const auto& rows() {
  static const std::array made{
      SPOOL_UNARY(Exp, exp, "u10"),       SPOOL_UNARY(Exp2, exp2, "u10"),    SPOOL_UNARY(Expm1, expm1, "u10"),
      SPOOL_UNARY(Log, log, "u10"),       SPOOL_UNARY(Log2, log2, "u10"),    SPOOL_UNARY(Log10, log10, "u10"),
      SPOOL_UNARY(Log1p, log1p, "u10"),   SPOOL_UNARY(Sin, sin, "u10"),      SPOOL_UNARY(Cos, cos, "u10"),
      SPOOL_UNARY(Tan, tan, "u10"),       SPOOL_UNARY(Asin, asin, "u10"),    SPOOL_UNARY(Acos, acos, "u10"),
      SPOOL_UNARY(Atan, atan, "u10"),     SPOOL_UNARY(Sinh, sinh, "u10"),    SPOOL_UNARY(Cosh, cosh, "u10"),
      SPOOL_UNARY(Tanh, tanh, "u10"),     SPOOL_UNARY(Asinh, asinh, "u10"),  SPOOL_UNARY(Acosh, acosh, "u10"),
      SPOOL_UNARY(Atanh, atanh, "u10"),   SPOOL_UNARY(Erf, erf, "u10"),      SPOOL_UNARY(Erfc, erfc, "u15"),
      SPOOL_UNARY(Lgamma, lgamma, "u10"), SPOOL_BINARY(Pow, pow, "u10"),     SPOOL_BINARY(Atan2, atan2, "u10"),
      SPOOL_BINARY(Hypot, hypot, "u05"),  SPOOL_BINARY(Fmod, fmod, nullptr),
  };
  return made;
}

const Row* find(KernelOp op) {
  const auto* row = std::find_if(rows().begin(), rows().end(), [&](const Row& candidate) { return candidate.op == op; });
  return row == rows().end() ? nullptr : row;
}

/// PyTorch's library, by one of its functions: names are looked up there, whatever scope it was loaded into.
void* library() {
  static void* const handle = []() -> void* {
    Dl_info info{};
    if (dladdr(reinterpret_cast<void*>(&at::init_num_threads), &info) == 0) {
      return RTLD_DEFAULT;
    }
    void* found = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    return found != nullptr ? found : RTLD_DEFAULT;
  }();
  return handle;
}

/// Sleef's function for so many lanes, or null.
std::pair<std::string, void*> sleef(const Row& row, bool f64, unsigned lanes) {
  if (row.ulp == nullptr) {
    return {};
  }
  const unsigned bytes = lanes * (f64 ? 8 : 4);
  if (bytes > static_cast<unsigned>(jit::host().vector_bytes) || bytes < 16) {
    return {};
  }
  const std::string plain = "Sleef_" + std::string(row.name) + (f64 ? "d" : "f") + std::to_string(lanes) + "_" + row.ulp;
  for (const char* suffix : {bytes == 64 ? "avx512f" : bytes == 32 ? "avx2" : "", ""}) {
    const std::string name = plain + suffix;
    if (void* address = dlsym(library(), name.c_str())) {
      return {name, address};
    }
  }
  return {};
}

llvm::FunctionCallee declare(llvm::IRBuilder<>& builder, jit::Symbols& symbols, const std::string& name, void* address,
                             llvm::Type* type, std::size_t operands) {
  const std::vector<llvm::Type*> types(operands, type);
  auto* module = builder.GetInsertBlock()->getModule();
  auto callee = module->getOrInsertFunction(name, llvm::FunctionType::get(type, types, false));
  auto* function = llvm::cast<llvm::Function>(callee.getCallee());
  function->setDoesNotAccessMemory();
  function->setDoesNotThrow();
  function->setWillReturn();
  if (std::none_of(symbols.begin(), symbols.end(), [&](const auto& symbol) { return symbol.first == name; })) {
    symbols.emplace_back(name, address);
  }
  return callee;
}

unsigned length(llvm::Value* value) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector == nullptr ? 0 : vector->getNumElements();
}

llvm::Value* part(llvm::IRBuilder<>& builder, llvm::Value* value, unsigned from, unsigned lanes) {
  std::vector<int> mask;
  for (unsigned i = 0; i < lanes; ++i) {
    mask.push_back(static_cast<int>(from + i));
  }
  return builder.CreateShuffleVector(value, mask);
}

llvm::Value* join(llvm::IRBuilder<>& builder, std::vector<llvm::Value*> parts) {
  while (parts.size() > 1) {
    std::vector<llvm::Value*> joined;
    for (std::size_t i = 0; i < parts.size(); i += 2) {
      std::vector<int> mask;
      for (unsigned k = 0; k < 2 * length(parts[i]); ++k) {
        mask.push_back(static_cast<int>(k));
      }
      joined.push_back(builder.CreateShuffleVector(parts[i], parts[i + 1], mask));
    }
    parts = std::move(joined);
  }
  return parts.front();
}

}  // namespace

bool is_math(KernelOp op) { return find(op) != nullptr; }

void* math_symbol(const std::string& name) {
  if (name.starts_with("Sleef_")) {
    return dlsym(library(), name.c_str());
  }
  for (const Row& row : rows()) {
    const std::string own = std::string("spool_") + row.name;
    if (name == own || name == own + "f") {
      return name == own ? row.f64 : row.f32;
    }
  }
  return nullptr;
}

llvm::Value* emit_lanes(llvm::IRBuilder<>& builder, jit::Symbols& symbols, const char* name, void* address,
                        llvm::ArrayRef<llvm::Value*> operands) {
  llvm::Type* type = operands[0]->getType();
  const auto callee = declare(builder, symbols, name, address, type->getScalarType(), operands.size());
  const unsigned lanes = length(operands[0]);
  if (lanes == 0) {
    return builder.CreateCall(callee, operands);
  }
  llvm::Value* result = llvm::PoisonValue::get(type);
  for (unsigned i = 0; i < lanes; ++i) {
    std::vector<llvm::Value*> lane;
    for (llvm::Value* operand : operands) {
      lane.push_back(builder.CreateExtractElement(operand, i));
    }
    result = builder.CreateInsertElement(result, builder.CreateCall(callee, lane), i);
  }
  return result;
}

llvm::Value* emit_math(llvm::IRBuilder<>& builder, jit::Symbols& symbols, KernelOp op, llvm::ArrayRef<llvm::Value*> operands) {
  const Row* row = find(op);
  SPOOL_ASSERT(row != nullptr, name(op), " is no function of the math library.");
  llvm::Type* scalar = operands[0]->getType()->getScalarType();
  const bool f64 = scalar->isDoubleTy();
  if (!f64 && jit::host().fma) {
    if (llvm::Value* inlined = emit_polynomial(builder, op, operands[0])) {
      return inlined;
    }
  }
  const unsigned lanes = length(operands[0]);
  const unsigned native = static_cast<unsigned>(jit::host().vector_bytes) / (f64 ? 8 : 4);
  // A scalar goes the way of vectors, so that it gets the same bits.
  for (unsigned width = lanes == 0 ? native : std::min(lanes, native); width > 1; width /= 2) {
    const auto [symbol, address] = sleef(*row, f64, width);
    if (address == nullptr) {
      continue;
    }
    auto* type = llvm::FixedVectorType::get(scalar, width);
    const auto callee = declare(builder, symbols, symbol, address, type, operands.size());
    if (lanes == 0) {
      std::vector<llvm::Value*> wide;
      for (llvm::Value* operand : operands) {
        wide.push_back(builder.CreateVectorSplat(width, operand));
      }
      return builder.CreateExtractElement(builder.CreateCall(callee, wide), std::uint64_t{0});
    }
    std::vector<llvm::Value*> parts;
    for (unsigned from = 0; from < lanes; from += width) {
      std::vector<llvm::Value*> slice;
      for (llvm::Value* operand : operands) {
        slice.push_back(width == lanes ? operand : part(builder, operand, from, width));
      }
      parts.push_back(builder.CreateCall(callee, slice));
    }
    return join(builder, std::move(parts));
  }
  const std::string symbol = std::string(row->name) + (f64 ? "" : "f");
  return emit_lanes(builder, symbols, ("spool_" + symbol).c_str(), f64 ? row->f64 : row->f32, operands);
}

}  // namespace spool::native
