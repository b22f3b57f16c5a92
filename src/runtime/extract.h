// Extract: recording a graph on a tape of its own, to compile it without running anything.
//
// While an Extraction is open on a thread, what that thread records goes on the extraction's tape; other threads go on recording
// on the device's. Inputs are placeholders: slots that look as if they held something. The graph may use placeholders and what it
// makes itself, nothing else; a read, an op that runs at once or any other cut abandons it.
//
// Threading: made, used and destroyed on one thread. The methods under "with the lock held" need the device's lock, the others take it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/cache/plan_cache.h"
#include "src/tape/tape.h"

namespace spool {

/// A compiled graph that no tape leads to. Its storages are numbered: first those of its inputs, then those that it makes.
struct Extracted {
  std::shared_ptr<Executable> executable;  ///< null: nothing has to run
  std::vector<std::uint32_t> storage_of;  ///< by what its inputs and outputs name; empty: they name storages
  std::vector<std::uint8_t> read;  ///< per input storage: the graph uses its content
  std::vector<std::uint8_t> replaced;  ///< per input storage: the graph updates it in place
  std::vector<std::size_t> made;  ///< sizes in bytes of the storages that it makes
  std::vector<Number> numbers;  ///< constants of the graph
};

class Extraction {
 public:
  /// Opens it on this thread. Throws Error(Runtime) if one is open here already.
  Extraction();
  Extraction(const Extraction&) = delete;
  Extraction& operator=(const Extraction&) = delete;
  ~Extraction();

  /// The one that is open on the calling thread, or nullptr.
  static Extraction* here() { return here_; }

  /// A slot that stands for an input storage of `nbytes` bytes. The caller owns one reference, the storage's.
  Slot& placeholder(std::size_t nbytes) const;
  /// Whether `slot` is a placeholder that nothing but recorded ops has written to.
  bool intact(const Slot& slot) const { return slot.buffer == stand_in_; }

  /// Gives up: throws Error(Runtime) here and whenever the extraction is used again.
  [[noreturn]] void abandon(const std::string& why);
  /// Why it was given up; empty if it was not.
  const std::string& reason() const { return reason_; }

  /// Compiles what was recorded. `inputs` are all placeholders, `results` the other storages that the caller wants, each once.
  /// Abandons where something else is still held: it would be written by nobody.
  Extracted finish(std::span<Slot* const> inputs, std::span<Slot* const> results);

  // --- with the lock held --------------------------------------------------------------------------------------------
  Tape& tape() { return tape_; }
  /// Before an op is recorded: abandons if it uses what is neither an input nor made by the graph.
  void admit(const Call& call);

 private:
  static inline constinit thread_local Extraction* here_ = nullptr;

  Tape tape_;
  BufferPtr stand_in_;  ///< what placeholders hold
  std::string reason_;
};

}  // namespace spool
