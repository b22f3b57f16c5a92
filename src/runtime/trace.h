// Trace: what happens when, for a profiler: ranges on the host (recording, compiling, launching, waiting), plans and their kernels on
// the device. Somebody has to listen; while nobody does, each place that could tell costs one load and a branch.
//
// Thread-safe. Times are nanoseconds since the epoch, on a clock that does not jump.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/tape/location.h"
#include "src/tape/op.h"

namespace spool::trace {

inline std::atomic<int> listeners{0};
/// Whether anyone listens: a profiler, or someone who asks for explanations.
inline bool on() { return listeners.load(std::memory_order_relaxed) != 0; }

std::int64_t now();

/// One kernel of a run: all that was done for one node of the graph.
struct Kernel {
  const Op* op = nullptr;
  LocationPtr location;
  std::int64_t start = 0;
  std::int64_t end = 0;
};

/// What a launch carries to the runtime's thread while somebody listens.
struct LaunchNote {
  std::uint64_t graph = 0;  ///< its number
  std::string region;  ///< that launched it
  std::uint32_t flow = 0;  ///< ties the launch to the run
  std::unordered_map<const Location*, std::string> scopes;  ///< of this recording's ops; an op without: its location's own
};

struct Event {
  enum class Kind { Record, Compile, Launch, Wait, Plan, Kernel };
  Kind kind = Kind::Record;
  std::string name;
  std::int64_t start = 0;
  std::int64_t end = 0;
  std::int32_t thread = 0;  ///< the system's number of the thread, for what happens on the host
  std::string scope;  ///< Kernel: the names of the scopes that recorded it, joined by '/'
  LocationPtr location;  ///< Kernel
  std::uint64_t graph = 0;  ///< 0: none
  std::uint32_t flow = 0;  ///< Launch, Plan: equal for those that belong together
};

/// Collects events from here on. What was collected before by one that is still open goes on.
void start();
/// Ends collecting and hands over what came in since `start`, by time of the end.
std::vector<Event> stop();
/// Whether events are collected.
bool collecting();
void add(Event event);

/// A range on the calling thread, from construction to destruction.
class Range {
 public:
  Range(Event::Kind kind, const char* name) : kind_(kind), name_(name), start_(on() && collecting() ? now() : 0) {}
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  ~Range() {
    if (start_ != 0) {
      end();
    }
  }
  void of(std::uint64_t graph, std::uint32_t flow = 0) {
    graph_ = graph;
    flow_ = flow;
  }

 private:
  void end() const;

  Event::Kind kind_;
  const char* name_;
  std::int64_t start_;
  std::uint64_t graph_ = 0;
  std::uint32_t flow_ = 0;
};

/// One run of a plan on the runtime's thread, which calls `KernelRange`s inside. `note` may be null: then nothing is told.
class Run {
 public:
  explicit Run(const LaunchNote* note);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run();

 private:
  const LaunchNote* note_;
  std::int64_t start_ = 0;
};

/// A kernel of the run that is under way on this thread; for an engine's loop. Ranges in a row for one node are one kernel.
class KernelRange {
 public:
  KernelRange(const Op* op, const LocationPtr& location) : start_(on() ? now() : 0), op_(op), location_(location) {}
  KernelRange(const KernelRange&) = delete;
  KernelRange& operator=(const KernelRange&) = delete;
  ~KernelRange() {
    if (start_ != 0) {
      end();
    }
  }

 private:
  void end() const;

  std::int64_t start_;
  const Op* op_;
  const LocationPtr& location_;
};

}  // namespace spool::trace
