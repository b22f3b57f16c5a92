#include "src/engine/native/jit.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/PassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SROA.h>
#if LLVM_VERSION_MAJOR >= 16
#include <llvm/TargetParser/Host.h>
#else
#include <llvm/Support/Host.h>
#endif

#include <atomic>
#include <mutex>

#include "src/base/error.h"

namespace spool::native::jit {
namespace {

std::string message(llvm::Error error) { return llvm::toString(std::move(error)); }

llvm::StringMap<bool> host_features() {
#if LLVM_VERSION_MAJOR >= 19
  return llvm::sys::getHostCPUFeatures();
#else
  llvm::StringMap<bool> features;
  llvm::sys::getHostCPUFeatures(features);
  return features;
#endif
}

Host make_host() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  Host host;
  host.triple = llvm::sys::getProcessTriple();
  host.cpu = llvm::sys::getHostCPUName().str();
  const llvm::StringMap<bool> features = host_features();
  for (const auto& feature : features) {
    host.features += (host.features.empty() ? "" : ",") + std::string(feature.getValue() ? "+" : "-") + feature.getKey().str();
  }
  const auto has = [&](const char* feature) { return features.lookup(feature); };
  host.vector_bytes = has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl") ? 64 : has("avx2") ? 32 : 16;
  host.fma = has("fma") || llvm::Triple(host.triple).isAArch64();
  return host;
}

/// The process's linker. Never destroyed: code may still run while the process ends.
llvm::orc::LLJIT& linker() {
  static llvm::orc::LLJIT* const made = [] {
    llvm::orc::JITTargetMachineBuilder builder{llvm::Triple(host().triple)};
    builder.setCPU(host().cpu);
    auto jit = llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(builder)).create();
    if (!jit) {
      fail(ErrorKind::Internal, "[compile] LLVM could not make its linker: ", message(jit.takeError()));
    }
    return jit->release();
  }();
  return *made;
}

}  // namespace

const Host& host() {
  static const Host* const made = new Host(make_host());
  return *made;
}

std::unique_ptr<llvm::TargetMachine> target_machine() {
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(host().triple, error);
  SPOOL_CHECK(target != nullptr, Internal, "[compile] LLVM has no code generator for ", host().triple, ": ", error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
#if LLVM_VERSION_MAJOR >= 18
  constexpr auto level = llvm::CodeGenOptLevel::Default;
#else
  constexpr auto level = llvm::CodeGenOpt::Default;
#endif
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(host().triple, host().cpu, host().features, options, llvm::Reloc::PIC_, std::nullopt, level));
  SPOOL_CHECK(machine != nullptr, Internal, "[compile] LLVM could not make a code generator for ", host().triple, '.');
  machine->setFastISel(false);
  return machine;
}

Object compile(llvm::Module& module, llvm::TargetMachine& machine) {
  std::string broken;
  llvm::raw_string_ostream out(broken);
  SPOOL_CHECK(!llvm::verifyModule(module, &out), Internal, "[compile] a kernel's code is not well formed: ", out.str());
  {
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager callers;
    llvm::ModuleAnalysisManager modules;
    llvm::PassBuilder builder(&machine);
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(callers);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, callers, modules);
    llvm::FunctionPassManager passes;
#if LLVM_VERSION_MAJOR >= 16
    passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
#else
    passes.addPass(llvm::SROAPass());
#endif
    passes.addPass(llvm::EarlyCSEPass());
    for (llvm::Function& function : module) {
      if (!function.isDeclaration()) {
        passes.run(function, functions);
      }
    }
  }
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager generate;
#if LLVM_VERSION_MAJOR >= 18
  constexpr auto kind = llvm::CodeGenFileType::ObjectFile;
#else
  constexpr auto kind = llvm::CGFT_ObjectFile;
#endif
  SPOOL_CHECK(!machine.addPassesToEmitFile(generate, stream, nullptr, kind), Internal,
              "[compile] LLVM can't write object code for ", host().triple, '.');
  generate.run(module);
  return {object.begin(), object.end()};
}

Linked link(const Object& object, const Symbols& symbols, const std::vector<std::string>& entries) {
  static std::atomic<std::uint64_t> count{0};
  llvm::orc::LLJIT& jit = linker();
  auto library = jit.createJITDylib("kernel" + std::to_string(count.fetch_add(1)));
  if (!library) {
    fail(ErrorKind::Internal, "[compile] LLVM could not make room for a kernel: ", message(library.takeError()));
  }
  Linked linked;
  linked.memory = std::shared_ptr<void>(&*library, [](void* made) {
    // What can't be removed stays until the process ends.
    llvm::consumeError(linker().getExecutionSession().removeJITDylib(*static_cast<llvm::orc::JITDylib*>(made)));
  });
  if (!symbols.empty()) {
    llvm::orc::SymbolMap map;
    for (const auto& [name, address] : symbols) {
#if LLVM_VERSION_MAJOR >= 17
      map[jit.mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
#else
      map[jit.mangleAndIntern(name)] =
          llvm::JITEvaluatedSymbol(llvm::pointerToJITTargetAddress(address), llvm::JITSymbolFlags::Exported);
#endif
    }
    if (auto error = library->define(llvm::orc::absoluteSymbols(std::move(map)))) {
      fail(ErrorKind::Internal, "[compile] LLVM could not define a kernel's functions: ", message(std::move(error)));
    }
  }
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(object.data(), object.size()), "kernel");
  if (auto error = jit.addObjectFile(*library, std::move(buffer))) {
    fail(ErrorKind::Internal, "[compile] LLVM could not link a kernel: ", message(std::move(error)));
  }
  for (const std::string& entry : entries) {
    auto address = jit.lookup(*library, entry);
    if (!address) {
      fail(ErrorKind::Internal, "[compile] LLVM could not link a kernel: ", message(address.takeError()));
    }
    linked.entries.push_back(address->toPtr<void*>());
  }
  return linked;
}

}  // namespace spool::native::jit
