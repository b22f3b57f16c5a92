// Spool's public C++ API. The same functions as Python's `torch_spool`, for programs on libtorch.
//
//   torch::Device device = spool::device();
//   model->to(device);
//   for (...) spool::step([&] { loss = train(model, batch.to(device)); });
//
// Threading: all functions may be called from any thread; ops of several threads go on one tape in the order in which they arrive.
// Errors: c10::Error and its subclasses, as eager PyTorch throws them. A plan that fails while it runs is reported by the next
// sync(), synchronize(), wait_device_ops() or read of what it should have written.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace spool {

/// The lazy device "xla:<index>". Throws c10::Error unless 0 <= index < device_count().
at::Device device(int index = 0);
int device_count();
std::vector<at::Device> devices();

/// Cuts and launches everything that is pending, then runs step closures; `wait` also waits for the results.
/// `reset_scope`: ops recorded afterwards carry no profiler scope that was open before.
void sync(bool wait = false, bool reset_scope = true);
/// Only waits for what has been launched; launches nothing. Throws inside compile(full_graph).
void synchronize();
/// Cuts without waiting and without resetting scopes. For breaking a graph by hand; not recommended.
void barrier();
/// Waits for all launched work, as synchronize() does, in any region.
void wait_device_ops();

/// Runs `fn` after the next cut by sync() or step(); with `run_async`, on a background thread, and an exception it throws comes out
/// of the next add_step_closure(), sync() or step().
void add_step_closure(std::function<void()> fn, bool run_async = false);

/// In eager mode each op is launched by itself as soon as it is recorded.
void set_eager_mode(bool on);
bool is_eager_mode();

/// Seeds the device's generator, which is PyTorch's default CPU generator: the same seed gives eager CPU's numbers.
void manual_seed(std::uint64_t seed);
/// State of that generator: a uint8 CPU tensor.
at::Tensor get_rng_state();
void set_rng_state(const at::Tensor& state);

/// Functional form of what is pending for `tensors`, one line a node. Launches nothing.
std::string graph_text(const std::vector<at::Tensor>& tensors);

/// Bytes held on the device, now and at most so far.
struct MemoryUse {
  std::size_t used = 0;
  std::size_t peak = 0;
};
MemoryUse memory_use();

/// Keeps what is compiled from now on in the folder `path`, and finds there what other processes of the same build of Spool,
/// PyTorch and LLVM compiled on such a processor (docs/caching.md). Made if it isn't there; `readonly`: nothing is written. Throws
/// c10::ValueError for a folder that can't be used.
void initialize_cache(const std::string& path, bool readonly = false);

/// The engine that compiles and runs graphs: "native" (default) or "reference". Cuts what is pending first.
void set_engine(const std::string& name);
std::string engine_name();

// --- regions ----------------------------------------------------------------------------------------------------------------
namespace detail {
void begin_step();
void end_step(bool failed);
std::uint64_t begin_compile(const std::string& name, const std::string& key, bool full_graph, std::int64_t max_graphs);
void end_compile(std::uint64_t id, bool failed);
std::string new_region_key();
/// Says on stderr what is being handled: it came while a body's exception was passing through.
void tell_of_lost_exception() noexcept;

/// Runs `body` between an entry and an exit. If it throws, its exception passes through unchanged, after the exit has launched what
/// was recorded before it; a failure of that launch stays with the tensors it should have written and is told on stderr.
template <class F, class Exit>
auto in_region(F&& body, const Exit& exit) {
  const auto failed = [&] {
    try {
      exit(true);
    } catch (...) {
      tell_of_lost_exception();  // the body's matters more
    }
  };
  if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
    try {
      std::forward<F>(body)();
    } catch (...) {
      failed();
      throw;
    }
    exit(false);
  } else {
    auto result = [&] {
      try {
        return std::forward<F>(body)();
      } catch (...) {
        failed();
        throw;
      }
    }();
    exit(false);
    return result;
  }
}
}  // namespace detail

/// Runs `body` as one step: cuts on entry, so that pending work is not mixed in, and on exit. Gives what `body` returns.
template <class F>
auto step(F&& body) {
  detail::begin_step();
  return detail::in_region(std::forward<F>(body), [](bool failed) { detail::end_step(failed); });
}

struct CompileOptions {
  bool full_graph = false;  ///< a graph break in the region is an error that names the line
  std::string name = "region";  ///< what messages call it
  std::optional<std::int64_t> num_different_graphs_allowed;  ///< an error, before compiling, where one more would be needed
};

/// Gives a callable that runs `body` as a region that is one graph: a cut before it, a cut at its end.
template <class F>
auto compile(F body, CompileOptions options = {}) {
  return [body = std::move(body), options = std::move(options), key = detail::new_region_key()](auto&&... args) mutable {
    const std::uint64_t id =
        detail::begin_compile(options.name, key, options.full_graph, options.num_different_graphs_allowed.value_or(-1));
    return detail::in_region([&] { return body(std::forward<decltype(args)>(args)...); },
                             [id](bool failed) { detail::end_compile(id, failed); });
  };
}

}  // namespace spool
