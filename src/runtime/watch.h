// Watch: being told what a thread's recording comes to: its cuts and what the host does in between. A recording that is to be
// replayed (src/torch/replay_recording.h) needs to know; nobody else watches, and then it costs nothing.
//
// Threading: made, told and destroyed on one thread; one at a time. `cut` is called with the device's lock held.
#pragma once

#include <memory>

#include "src/runtime/region.h"
#include "src/tape/geometry.h"
#include "src/tape/op.h"
#include "src/tape/slot.h"

namespace spool {

struct Executable;
class Tape;

class Watch {
 public:
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// The one of the calling thread, or nullptr.
  static Watch* here() { return here_; }

  /// The tape is about to be launched as `executable` (null: nothing has to run).
  virtual void cut(Cut cause, Tape& tape, const std::shared_ptr<Executable>& executable) = 0;
  /// The host gave `slot` its whole content, through a tensor of that geometry.
  virtual void filled(Slot& slot, const Geometry& geometry) = 0;
  /// An op that is no such fill ran at once.
  virtual void ran_at_once(const Op& op) = 0;

 protected:
  Watch() = default;
  virtual ~Watch() = default;
  void open() { here_ = this; }
  static void close() { here_ = nullptr; }

 private:
  static inline constinit thread_local Watch* here_ = nullptr;
};

}  // namespace spool
