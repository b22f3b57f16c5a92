// Jit: from an LLVM module to machine code in this process. Everything here includes LLVM; only the code generator uses it.
#pragma once

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace spool::native::jit {

/// The machine that code is made for. Made once per process, at the first kernel.
struct Host {
  std::string triple;
  std::string cpu;
  std::string features;
  int vector_bytes = 16;  ///< of the vectors that code is written in
  bool fma = false;       ///< multiplies and adds in one instruction
};
const Host& host();

/// A machine that compiles; not thread-safe, so each compilation makes its own. Throws Error(Internal).
std::unique_ptr<llvm::TargetMachine> target_machine();

/// Functions outside the module that it calls, by name.
using Symbols = std::vector<std::pair<std::string, void*>>;

/// An object file in memory: position independent, so it may be kept and linked again.
using Object = std::vector<char>;

/// Runs the clean-up passes and the code generator. Throws Error(Internal) with LLVM's reason.
Object compile(llvm::Module& module, llvm::TargetMachine& machine);

/// Code in memory.
struct Linked {
  std::vector<void*> entries;    ///< addresses of the functions asked for
  std::shared_ptr<void> memory;  ///< holds the code: once the last copy is gone, so is the code
};

/// Links an object. Thread-safe. Throws Error(Internal).
Linked link(const Object& object, const Symbols& symbols, const std::vector<std::string>& entries);

}  // namespace spool::native::jit
