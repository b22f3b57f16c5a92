#include "src/engine/native/kernel_cache.h"

#include <llvm/Config/llvm-config.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <list>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "src/base/error.h"
#include "src/cache/persistent.h"
#include "src/engine/native/jit.h"
#include "src/engine/native/vector_math.h"

namespace spool::native {
namespace {

constexpr std::size_t capacity = 4096;

/// The latest kernels by their form's key.
class Cache {
 public:
  KernelCodePtr find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end()) {
      return nullptr;
    }
    ++stats_.hits;
    order_.splice(order_.begin(), order_, found->second);
    return found->second->second;
  }

  /// Keeps `code`, unless another thread was first; returns what is kept.
  KernelCodePtr insert(const std::string& key, KernelCodePtr code, bool loaded, double seconds) {
    const std::lock_guard lock(mutex_);
    ++(loaded ? stats_.loaded : stats_.compiled);
    stats_.seconds += seconds;
    if (const auto found = index_.find(key); found != index_.end()) {
      return found->second->second;
    }
    order_.emplace_front(key, std::move(code));
    index_.emplace(key, order_.begin());
    if (order_.size() > capacity) {
      index_.erase(order_.back().first);
      order_.pop_back();
    }
    return order_.front().second;
  }

  KernelCacheStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  using Entry = std::pair<std::string, KernelCodePtr>;
  std::mutex mutex_;
  std::list<Entry> order_;
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
  KernelCacheStats stats_;
};

/// Never destroyed: plans may outlive static objects.
Cache& cache() {
  static auto* const made = new Cache;
  return *made;
}

// An entry of the persistent cache: one character for `finish`, the symbols' names, one a line, an empty line, the object code.

std::string stored_key(const std::string& key) { return kernel_build() + '\n' + key; }

bool can_be_stored(const GeneratedCode& code) {
  return std::all_of(code.symbols.begin(), code.symbols.end(),
                     [](const auto& symbol) { return math_symbol(symbol.first) == symbol.second; });
}

std::string to_store(const GeneratedCode& code) {
  std::string bytes(1, code.finish ? '1' : '0');
  for (const auto& [name, address] : code.symbols) {
    bytes += name + '\n';
  }
  return (bytes += '\n').append(code.object.begin(), code.object.end());
}

std::optional<GeneratedCode> stored(const std::optional<std::string>& bytes) {
  if (!bytes.has_value() || bytes->empty()) {
    return std::nullopt;
  }
  GeneratedCode code;
  code.finish = bytes->front() == '1';
  std::size_t at = 1;
  for (std::size_t end = bytes->find('\n', at); end != at; end = bytes->find('\n', at)) {
    if (end == std::string::npos) {
      return std::nullopt;
    }
    const std::string name = bytes->substr(at, end - at);
    void* const address = math_symbol(name);
    if (address == nullptr) {
      return std::nullopt;  // another library than the one it was compiled for
    }
    code.symbols.emplace_back(name, address);
    at = end + 1;
  }
  code.object.assign(bytes->begin() + static_cast<std::ptrdiff_t>(at) + 1, bytes->end());
  return code;
}

KernelCodePtr compile(const Form& form, const std::string& key) {
  const auto begin = std::chrono::steady_clock::now();
  const auto disk = persistent_cache();
  std::optional<GeneratedCode> found = disk != nullptr ? stored(disk->find("kernel", stored_key(key))) : std::nullopt;
  const bool loaded = found.has_value();
  GeneratedCode generated = loaded ? std::move(*found) : generate(form);
  std::vector<std::string> entries{"run"};
  if (generated.finish) {
    entries.emplace_back("finish");
  }
  jit::Linked linked = jit::link(generated.object, generated.symbols, entries);
  auto code = std::make_shared<KernelCode>();
  code->run = reinterpret_cast<KernelCode::Function>(linked.entries[0]);
  code->finish = generated.finish ? reinterpret_cast<KernelCode::Function>(linked.entries[1]) : nullptr;
  code->partials = partials(form);
  if (disk != nullptr && !loaded && can_be_stored(generated)) {
    disk->put("kernel", stored_key(key), to_store(generated));
  }
  code->memory = std::move(linked.memory);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return cache().insert(key, std::move(code), loaded, taken.count());
}

}  // namespace

std::vector<KernelCodePtr> compile_kernels(std::span<const Form> forms) {
  std::vector<KernelCodePtr> result(forms.size());
  std::vector<std::string> keys;
  std::unordered_map<std::string, std::size_t> first;  // of those to compile: where the key occurs first
  std::vector<std::size_t> missing;
  keys.reserve(forms.size());
  for (std::size_t i = 0; i < forms.size(); ++i) {
    keys.push_back(forms[i].key());
    if (first.count(keys[i]) == 0 && (result[i] = cache().find(keys[i])) == nullptr) {
      first.emplace(keys[i], i);
      missing.push_back(i);
    }
  }
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t at = next++; at < missing.size(); at = next++) {
      const std::size_t i = missing[at];
      try {
        result[i] = compile(forms[i], keys[i]);
      } catch (const std::bad_alloc&) {
        const std::lock_guard lock(mutex);
        failure = std::make_exception_ptr(Error(ErrorKind::OutOfMemory, "[compile] Out of memory while compiling a kernel."));
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    }
  };
  std::vector<std::thread> helpers;
  const std::size_t threads = std::min<std::size_t>(missing.size(), std::max(1U, std::thread::hardware_concurrency()));
  for (std::size_t i = 1; i < threads; ++i) {
    try {
      helpers.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // no more threads to be had: this one does the rest
    }
  }
  work();
  for (std::thread& helper : helpers) {
    helper.join();
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  for (std::size_t i = 0; i < forms.size(); ++i) {
    if (result[i] == nullptr) {
      result[i] = result[first.at(keys[i])];
    }
  }
  return result;
}

std::string kernel_build() {
  return str("LLVM " LLVM_VERSION_STRING ", ", jit::host().triple, ' ', jit::host().cpu, ' ', jit::host().features);
}

KernelCacheStats kernel_cache_stats() { return cache().stats(); }

}  // namespace spool::native
