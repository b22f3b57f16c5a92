#include "src/runtime/trace.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <mutex>

#include "src/runtime/explain.h"

namespace spool::trace {
namespace {

struct Store {
  std::mutex mutex;
  std::atomic<bool> collecting{false};
  std::vector<Event> events;
};

Store& store() {
  static auto* instance = new Store;  // never destroyed: threads may still tell while the process ends
  return *instance;
}

// A forked child must find the lock free. Registered while the library loads, before the device registers its own.
const bool registered = [] {
  pthread_atfork([] { store().mutex.lock(); }, [] { store().mutex.unlock(); }, [] { store().mutex.unlock(); });
  return true;
}();

thread_local std::vector<Kernel>* kernels = nullptr;  ///< of the run that is under way on this thread

std::int32_t this_thread() {
  thread_local const std::int32_t id = gettid();
  return id;
}

}  // namespace

std::int64_t now() {
  using std::chrono::nanoseconds;
  static const std::int64_t offset = (std::chrono::system_clock::now().time_since_epoch() / nanoseconds(1)) -
                                     (std::chrono::steady_clock::now().time_since_epoch() / nanoseconds(1));
  return offset + std::chrono::steady_clock::now().time_since_epoch() / nanoseconds(1);
}

void start() {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  if (!s.collecting.exchange(true)) {
    listeners.fetch_add(1);
    s.events.clear();
  }
}

std::vector<Event> stop() {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  if (s.collecting.exchange(false)) {
    listeners.fetch_sub(1);
  }
  return std::exchange(s.events, {});
}

bool collecting() { return store().collecting.load(std::memory_order_relaxed); }

void add(Event event) {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  if (s.collecting.load(std::memory_order_relaxed)) {
    s.events.push_back(std::move(event));
  }
}

void Range::end() const {
  add({.kind = kind_, .name = name_, .start = start_, .end = now(), .thread = this_thread(), .graph = graph_, .flow = flow_});
}

Run::Run(const LaunchNote* note) : note_(on() ? note : nullptr) {
  if (note_ != nullptr) {
    kernels = new std::vector<Kernel>;
    start_ = now();
  }
}

Run::~Run() {
  if (note_ == nullptr) {
    return;
  }
  const std::int64_t end = now();
  const std::unique_ptr<const std::vector<Kernel>> ran(std::exchange(kernels, nullptr));
  explain::ran(*note_, end - start_, *ran);
  if (!collecting()) {
    return;
  }
  const auto name = "plan of graph " + std::to_string(note_->graph);
  add({.kind = Event::Kind::Plan, .name = name, .start = start_, .end = end, .graph = note_->graph, .flow = note_->flow});
  for (const Kernel& kernel : *ran) {
    const auto scope = note_->scopes.find(kernel.location.get());
    add({.kind = Event::Kind::Kernel,
         .name = kernel.op->name,
         .start = kernel.start,
         .end = kernel.end,
         .scope = scope != note_->scopes.end() ? scope->second
                  : kernel.location != nullptr ? kernel.location->scope
                                               : "",
         .location = kernel.location,
         .graph = note_->graph});
  }
}

void KernelRange::end() const {
  if (kernels == nullptr) {
    return;
  }
  const std::int64_t end = now();
  if (!kernels->empty() && location_ != nullptr && kernels->back().location == location_ && kernels->back().op == op_) {
    kernels->back().end = end;
    return;
  }
  kernels->push_back({op_, location_, start_, end});
}

}  // namespace spool::trace
