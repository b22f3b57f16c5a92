// Queue: the in-order queue of launched plans and the runtime thread that runs them.
//
// Ownership: a launch holds its inputs and outputs until it has run. Failure: a plan that throws leaves its error on every buffer it
// should have written (poison); a launch that reads a poisoned buffer passes the poison on without running. The thread never
// takes Python's GIL or the device's lock.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "src/cache/plan_cache.h"
#include "src/runtime/buffer.h"
#include "src/runtime/trace.h"

namespace spool {

struct Launch {
  std::shared_ptr<Executable> executable;
  std::vector<BufferPtr> inputs;
  std::vector<BufferPtr> outputs;
  std::vector<Number> numbers;
  std::vector<GeneratorState> generators;
  std::shared_ptr<const trace::LaunchNote> note;  ///< only while somebody listens
};

/// How the calling thread waits: the binding gives up Python's GIL around a wait and looks for Ctrl-C now and then.
struct WaitHooks {
  void* (*enter)() = nullptr;  ///< before blocking; its result goes to `leave`
  void (*leave)(void* state) = nullptr;
  void (*poll)(void* state) = nullptr;  ///< about ten times a second while blocked; may throw to end the wait
};
void set_wait_hooks(const WaitHooks& hooks);

class Queue {
 public:
  /// `in_flight`: launches that may be waiting or running before `submit` blocks.
  explicit Queue(std::size_t in_flight) : in_flight_(in_flight) {}

  /// Puts a launch in the queue and sets `ready` of its outputs. Blocks while the queue is full (at most for one plan's run).
  void submit(Launch launch);
  /// Waits until launch `number` has run. Rethrows what a poll hook throws; the launch goes on.
  void wait(std::uint64_t number);
  /// Number of the newest launch; 0 if there was none.
  std::uint64_t newest() const;
  bool complete(std::uint64_t number) const;

  /// The first failure nobody has been told of yet, and forgets it; null if none.
  std::shared_ptr<const Error> take_failure();
  /// A reader has been told of this failure.
  void told(const std::shared_ptr<const Error>& failure);

  /// Runs what was submitted, then ends the thread. Later submits start it again.
  void shut_down();

  /// Around fork(): the child has no runtime thread, so what was in flight is lost there and `submit` throws.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  void work();
  void run(Launch& launch);
  template <class Ready>
  void block(std::unique_lock<std::mutex>& lock, Ready ready);

  const std::size_t in_flight_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Launch> waiting_;
  std::optional<Launch> running_;  ///< the runtime thread's, from taking it off the queue to its end
  std::uint64_t submitted_ = 0;
  std::uint64_t completed_ = 0;
  bool stop_ = false;
  bool forked_ = false;
  std::shared_ptr<const Error> failure_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace spool
