// Kernel cache: machine code by form, compiled once per process and shared by all plans.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/engine/native/codegen.h"

namespace spool::native {

/// Machine code of one form. Immutable.
struct KernelCode {
  using Function = void (*)(const KernelCall*);
  Function run = nullptr;
  Function finish = nullptr;       ///< null if there is nothing to finish
  std::vector<Partial> partials;
  std::shared_ptr<void> memory;    ///< holds the code
};
using KernelCodePtr = std::shared_ptr<const KernelCode>;

/// Code for each of the forms, in order; what is not in the cache is compiled, on several threads if there is much of it. The cache
/// keeps the latest ones; plans keep what they use. Where a persistent cache is open, object code is looked for and kept there. Thread-safe. Throws Error(Internal) with LLVM's reason, Error(OutOfMemory).
std::vector<KernelCodePtr> compile_kernels(std::span<const Form> forms);

/// What machine code depends on beside its form: LLVM's version and the processor.
std::string kernel_build();

struct KernelCacheStats {
  std::uint64_t hits = 0;
  std::uint64_t compiled = 0;
  std::uint64_t loaded = 0;  ///< found in the persistent cache
  double seconds = 0;  ///< spent compiling, summed over threads
};
KernelCacheStats kernel_cache_stats();

}  // namespace spool::native
