// The public C++ API (include/spool/spool.h) over the device.
#include <ATen/CPUGeneratorImpl.h>
#include <dlfcn.h>
#include <spool/spool.h>

#include <atomic>
#include <exception>
#include <filesystem>
#include <iostream>

#include "src/base/error.h"
#include "src/base/scope.h"
#include "src/cache/persistent.h"
#include "src/runtime/closures.h"
#include "src/runtime/device.h"
#include "src/torch/generator.h"
#include "src/torch/guard.h"
#include "src/torch/lazy.h"
#include "src/torch/recorder.h"

namespace spool {
namespace {

// torch.Stream(device="xla").synchronize() and the like wait as wait_device_ops() does.
const bool waiter_set = [] {
  torch_side::set_device_waiter(&wait_device_ops);
  return true;
}();

}  // namespace

using torch_side::with_torch_errors;

at::Device device(int index) {
  TORCH_CHECK(index >= 0 && index < device_count(), "[device] expected an index from 0 to ", device_count() - 1, ", got ", index);
  torch_side::record_backward_here();
  return {c10::DeviceType::XLA, static_cast<c10::DeviceIndex>(index)};
}

int device_count() { return 1; }

std::vector<at::Device> devices() { return {device()}; }

void sync(bool wait, bool reset_scope) {
  with_torch_errors([&] { Device::get().sync(wait); });
  if (reset_scope) {
    scope::reset();
  }
  closures::run();
}

void synchronize() {
  with_torch_errors([] { Device::get().synchronize(); });
}

void barrier() {
  with_torch_errors([] { Device::get().barrier(); });
}

void wait_device_ops() {
  with_torch_errors([] { Device::get().wait_for_all(); });
}

void add_step_closure(std::function<void()> fn, bool run_async) { closures::add(std::move(fn), run_async); }

void set_eager_mode(bool on) {
  with_torch_errors([&] { Device::get().set_eager_mode(on); });
}

bool is_eager_mode() { return Device::get().eager_mode(); }

void manual_seed(std::uint64_t seed) {
  at::Generator generator = torch_side::cpu_generator(std::nullopt);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

at::Tensor get_rng_state() {
  at::Generator generator = torch_side::cpu_generator(std::nullopt);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_rng_state(const at::Tensor& state) {
  at::Generator generator = torch_side::cpu_generator(std::nullopt);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void initialize_cache(const std::string& path, bool readonly) {
  // Another build of this library may compile the same graph in another way: its file stands for the build.
  Dl_info self{};
  std::error_code unknown;
  SPOOL_ASSERT(dladdr(reinterpret_cast<void*>(&initialize_cache), &self) != 0, "This library has no file.");
  const auto written = std::filesystem::last_write_time(self.dli_fname, unknown).time_since_epoch().count();
  const auto length = std::filesystem::file_size(self.dli_fname, unknown);
  with_torch_errors([&] { open_persistent_cache(std::filesystem::path(path), readonly, str(written, ' ', length)); });
}

std::string graph_text(const std::vector<at::Tensor>& tensors) {
  std::vector<Slot*> slots;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(torch_side::is_lazy(tensor), "[graph_text] expected tensors on ", device(), ", got one on ",
                tensor.defined() ? tensor.device().str() : "no device");
    slots.push_back(&torch_side::slot_of(tensor));
  }
  return with_torch_errors([&] { return Device::get().graph_text(slots); });
}

MemoryUse memory_use() {
  const MemoryInfo info = Device::get().engine().memory();
  return {info.used, info.peak};
}

void set_engine(const std::string& name) {
  with_torch_errors([&] { Device::get().set_engine(name); });
}

std::string engine_name() { return Device::get().engine_name(); }

namespace detail {

void begin_step() {
  with_torch_errors([] { Device::get().begin_step(); });
}

void end_step(bool failed) {
  with_torch_errors([&] { Device::get().end_step(failed); });
  scope::reset();
  closures::run();
}

std::uint64_t begin_compile(const std::string& name, const std::string& key, bool full_graph, std::int64_t max_graphs) {
  return with_torch_errors([&] {
    return Device::get().begin_compile({.name = name, .key = key, .full_graph = full_graph, .max_graphs = max_graphs});
  });
}

void end_compile(std::uint64_t id, bool failed) {
  with_torch_errors([&] { Device::get().end_compile(id, failed); });
}

std::string new_region_key() {
  static std::atomic<std::int64_t> next{1};
  return std::to_string(next++);
}

void tell_of_lost_exception() noexcept {
  std::string what = "an exception of unknown type";
  try {
    throw;
  } catch (const c10::Error& error) {
    what = error.what_without_backtrace();
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
  }
  std::cerr << "[step] launching what was recorded before an exception failed too: " << what << '\n';
}

}  // namespace detail
}  // namespace spool
