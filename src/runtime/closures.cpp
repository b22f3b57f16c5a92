#include "src/runtime/closures.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace spool::closures {
namespace {

using Fn = std::function<void()>;

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<Fn, bool>> added;
  std::deque<Fn> background;
  std::exception_ptr failure;  // of an asynchronous closure, not yet raised
  std::unique_ptr<std::thread> thread;
  bool stop = false;
  // In a forked child: the parent's thread and what it had still to run, neither of which can be ended or freed here.
  std::vector<std::thread*> parents_threads;
  std::vector<Fn> parents_closures;
};

State& state() {
  static auto* instance = new State;  // never destroyed: closures may be added while the process ends
  return *instance;
}

void work() {
  State& s = state();
  std::unique_lock lock(s.mutex);
  while (true) {
    s.changed.wait(lock, [&] { return s.stop || !s.background.empty(); });
    if (s.background.empty()) {
      return;
    }
    Fn fn = std::move(s.background.front());
    s.background.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      fn();
    } catch (...) {
      failure = std::current_exception();
    }
    fn = nullptr;  // its captures go before anyone is told that it has run
    lock.lock();
    if (failure != nullptr && s.failure == nullptr) {
      s.failure = failure;
    }
  }
}

std::exception_ptr take_failure() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return std::exchange(s.failure, nullptr);
}

/// What is running when the process ends runs to its end, before the device's own end; nobody is left to raise its failure to.
void end_with_process() {
  try {
    drain();
  } catch (const std::exception& error) {
    std::cerr << "[add_step_closure] an asynchronous closure failed while the process ended: " << error.what() << '\n';
  } catch (...) {
    std::cerr << "[add_step_closure] an asynchronous closure failed while the process ended\n";
  }
}

/// A forked child finds the lock free and has no thread: the parent's closures are the parent's to run, its own start a new one.
void after_fork_in_child() {
  State& s = state();
  s.parents_threads.push_back(s.thread.release());
  std::move(s.background.begin(), s.background.end(), std::back_inserter(s.parents_closures));
  s.background.clear();
  new (&s.changed) std::condition_variable();  // the old one may count waiters that don't exist here
  s.mutex.unlock();
}

void start_thread(State& s) {
  static const bool prepared = [] {
    std::atexit(&end_with_process);
    pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); }, &after_fork_in_child);
    return true;
  }();
  static_cast<void>(prepared);
  s.stop = false;
  s.thread = std::make_unique<std::thread>(work);
}

}  // namespace

void add(Fn fn, bool run_async) {
  {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    s.added.emplace_back(std::move(fn), run_async);
  }
  if (const std::exception_ptr failure = take_failure()) {
    std::rethrow_exception(failure);
  }
}

void run() {
  State& s = state();
  // Taken before anything new starts: a closure's failure comes out of a later call, never of the one that started it.
  const std::exception_ptr earlier = take_failure();
  std::vector<std::pair<Fn, bool>> added;
  {
    const std::lock_guard lock(s.mutex);
    added.swap(s.added);
  }
  std::exception_ptr first;
  for (auto& [fn, run_async] : added) {
    if (run_async) {
      const std::lock_guard lock(s.mutex);
      s.background.push_back(std::move(fn));
      if (s.thread == nullptr) {
        start_thread(s);
      }
      s.changed.notify_all();
      continue;
    }
    try {
      fn();
    } catch (...) {
      if (first == nullptr) {
        first = std::current_exception();
      }
    }
  }
  if (first != nullptr || earlier != nullptr) {
    std::rethrow_exception(earlier != nullptr ? earlier : first);
  }
}

void drain() {
  State& s = state();
  std::unique_ptr<std::thread> thread;
  {
    const std::lock_guard lock(s.mutex);
    s.stop = true;
    thread = std::move(s.thread);
  }
  s.changed.notify_all();
  if (thread != nullptr) {
    thread->join();
  }
  if (const std::exception_ptr failure = take_failure()) {
    std::rethrow_exception(failure);
  }
}

}  // namespace spool::closures
