#include "src/runtime/queue.h"

#include <atomic>
#include <chrono>
#include <new>

#include "src/base/error.h"
#include "src/runtime/metrics.h"

namespace spool {
namespace {

WaitHooks wait_hooks;

}  // namespace

void set_wait_hooks(const WaitHooks& hooks) { wait_hooks = hooks; }

template <class Ready>
void Queue::block(std::unique_lock<std::mutex>& lock, Ready ready) {
  if (ready()) {
    return;
  }
  const trace::Range told(trace::Event::Kind::Wait, "spool::wait");
  // The hooks take Python's GIL, so they run without our lock.
  lock.unlock();
  struct Released {
    void* state = wait_hooks.enter != nullptr ? wait_hooks.enter() : nullptr;
    Released() = default;
    Released(const Released&) = delete;
    Released& operator=(const Released&) = delete;
    ~Released() {
      if (wait_hooks.leave != nullptr) {
        wait_hooks.leave(state);
      }
    }
  };
  {
    const Released released;
    lock.lock();
    while (!changed_.wait_for(lock, std::chrono::milliseconds(100), ready)) {
      if (wait_hooks.poll != nullptr) {
        lock.unlock();
        wait_hooks.poll(released.state);
        lock.lock();
      }
    }
    lock.unlock();
  }
  lock.lock();
}

void Queue::submit(Launch launch) {
  std::unique_lock lock(mutex_);
  SPOOL_CHECK(!forked_, Runtime,
              "[launch] the device can't be used in a forked process once its parent has used it: the runtime thread is not "
              "copied by fork(). Start the process with the 'spawn' method, or keep device work out of it.");
  // Not interruptible and without hooks: the caller holds the device's lock, and a launch that is cut short would lose tensors.
  changed_.wait(lock, [&] { return submitted_ - completed_ < in_flight_; });
  const std::uint64_t number = ++submitted_;
  for (const BufferPtr& output : launch.outputs) {
    output->ready = number;
  }
  waiting_.push_back(std::move(launch));
  if (thread_ == nullptr) {
    stop_ = false;
    thread_ = std::make_unique<std::thread>([this] { work(); });
  }
  lock.unlock();
  changed_.notify_all();
}

void Queue::wait(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  block(lock, [&] { return completed_ >= number; });
}

std::uint64_t Queue::newest() const {
  const std::lock_guard lock(mutex_);
  return submitted_;
}

bool Queue::complete(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return completed_ >= number;
}

std::shared_ptr<const Error> Queue::take_failure() {
  const std::lock_guard lock(mutex_);
  return std::exchange(failure_, nullptr);
}

void Queue::told(const std::shared_ptr<const Error>& failure) {
  const std::lock_guard lock(mutex_);
  if (failure_ == failure) {
    failure_ = nullptr;
  }
}

void Queue::shut_down() {
  std::unique_ptr<std::thread> thread;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    thread = std::move(thread_);
  }
  changed_.notify_all();
  if (thread != nullptr) {
    thread->join();
  }
}

void Queue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) {
      return;
    }
    running_ = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    run(*running_);
    // The launch lets go of its buffers before it counts as complete: a waiter sees their memory as free.
    running_.reset();
    lock.lock();
    ++completed_;
    changed_.notify_all();
  }
}

void Queue::run(Launch& launch) {
  std::shared_ptr<const Error> failure;
  for (const BufferPtr& input : launch.inputs) {
    if (input->failure != nullptr) {
      failure = input->failure;
    }
  }
  if (failure == nullptr) {
    try {
      const metrics::Timer timer("ExecuteTime");
      const trace::Run told(launch.note.get());
      Engine& engine = *launch.executable->engine;
      std::vector<Memory> copies(launch.inputs.size());
      std::vector<Memory*> inputs;
      std::vector<Memory*> outputs;
      for (std::size_t i = 0; i < launch.inputs.size(); ++i) {
        Memory* memory = &launch.inputs[i]->memory;
        // Launches run in order, so by now only someone who kept the buffer to read it can hold it beside this launch. The fence
        // makes a reader's last access happen before ours.
        const bool exclusive = launch.inputs[i].use_count() == 1;
        std::atomic_thread_fence(std::memory_order_acquire);
        if (launch.executable->owned[i] != 0 && !exclusive) {
          copies[i] = engine.clone(*memory);
          memory = &copies[i];
        }
        inputs.push_back(memory);
      }
      outputs.reserve(launch.outputs.size());
      for (const BufferPtr& output : launch.outputs) {
        outputs.push_back(&output->memory);
      }
      engine.run(*launch.executable->plan, {inputs, outputs, launch.numbers, launch.generators});
    } catch (const Error& error) {
      failure = std::make_shared<const Error>(error);
    } catch (const std::bad_alloc&) {
      failure = std::make_shared<const Error>(ErrorKind::OutOfMemory, "[launch] out of memory while running a plan");
    } catch (const std::exception& error) {
      failure = std::make_shared<const Error>(ErrorKind::Runtime, str("[launch] ", error.what()));
    }
    metrics::count("ExecuteComputation");
    if (failure != nullptr) {
      const std::lock_guard lock(mutex_);
      if (failure_ == nullptr) {
        failure_ = failure;
      }
    }
  }
  if (failure != nullptr) {
    for (const BufferPtr& output : launch.outputs) {
      output->failure = failure;
      output->memory = Memory();
    }
  }
}

void Queue::before_fork() { mutex_.lock(); }

void Queue::after_fork_in_parent() { mutex_.unlock(); }

void Queue::after_fork_in_child() {
  // The runtime thread does not exist here and can't be joined: its handle is leaked on purpose, as are the plan it was running
  // and the state of the engine under it. What had run stays readable; nothing can be launched.
  [[maybe_unused]] const std::thread* leaked = thread_.release();
  new (&changed_) std::condition_variable();  // the old one may count waiters that don't exist here
  forked_ = true;
  const auto lost = std::make_shared<const Error>(
      ErrorKind::Runtime, str("[fork] this tensor was still being computed when the process forked. Call "
                              "torch_spool.sync(wait=True) before forking, or start the process with the 'spawn' method."));
  const auto lose = [&](Launch& launch) {
    for (const BufferPtr& output : launch.outputs) {
      output->failure = lost;
    }
  };
  if (running_.has_value()) {
    lose(*running_);
  }
  for (Launch& launch : waiting_) {
    lose(launch);
  }
  completed_ = submitted_;
  mutex_.unlock();
}

}  // namespace spool
