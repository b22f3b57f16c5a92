// Device: one lazy device. Ties the parts together: what is recorded goes on its tape; a cut makes it a graph, finds or compiles a
// plan and launches it.
//
// Threading: the methods under "recording" need the device's lock (`lock()`), so that a recorder can do several in one go. All
// others take it themselves and may block on the queue; call them without the lock. The lock is never held while Python code
// runs or the GIL is taken.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "src/cache/plan_cache.h"
#include "src/engine/engine.h"
#include "src/runtime/explain.h"
#include "src/runtime/extract.h"
#include "src/runtime/queue.h"
#include "src/runtime/region.h"
#include "src/runtime/trace.h"
#include "src/tape/signature.h"
#include "src/tape/tape.h"

namespace spool {

class Device {
 public:
  /// The device, made at the first call and never freed; its runtime thread ends with the process.
  static Device& get();

  // --- recording: with the lock held ---------------------------------------------------------------------------------
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  /// What the calling thread records on: the device's tape, or that of the graph which it extracts (runtime/extract.h).
  Tape& tape() { return Extraction::here() == nullptr ? tape_ : Extraction::here()->tape(); }
  SignatureTable& signatures() { return signatures_; }
  /// Before an op is recorded: cuts a tape that nobody cut and that has passed a bound, best where it repeats itself. In an
  /// extraction, refuses what can't be in its graph.
  void bound_tape(const Call& next);
  /// After an op was recorded: in eager mode, cuts.
  void recorded() {
    if (trace::on()) [[unlikely]] {
      note_recorded();
    }
    if (eager_mode_ && Extraction::here() == nullptr) {
      cut(Cut::Eager, nullptr);
    }
  }
  /// Ends the tape and launches it. Throws Error(Runtime) before doing anything where a region's rules forbid the cut (naming
  /// `where`), and the engine's Error if it can't compile; then what the tape should have written is poisoned. `closing`: the region
  /// whose end it is, if that is no longer among the open ones.
  void cut(Cut cause, const LocationPtr& where, const Region* closing = nullptr);
  /// Compiles the tape that `path` is, for these outputs. nullptr: nothing has to run.
  std::shared_ptr<Executable> compile(const std::vector<const TapeNode*>& path, const std::vector<bool>& live);

  // --- reads and waits -----------------------------------------------------------------------------------------------
  /// Content of a slot: cuts if it is pending, waits for it, throws its failure. `op` names the reader in messages. nullptr if
  /// nothing was ever written to it.
  BufferPtr read(Slot& slot, const char* op);
  /// Cuts, without waiting, if something is pending for one of `slots`; with `touched`, also if the tape only reads one.
  void cut_for(const std::vector<Slot*>& slots, const char* op, Cut cause, bool touched = false);
  /// Waits until nothing runs; raises nothing.
  void wait_idle() { queue_.wait(queue_.newest()); }
  /// Runs an extracted graph on `slots`: those of its input storages, then new ones for what it makes. Launches first what is
  /// pending for them. The slots need not differ, but for those that the graph replaces.
  void launch(const Extracted& graph, std::span<Slot* const> slots, std::vector<Number> numbers);

  void sync(bool wait);
  void barrier();
  void synchronize();
  void wait_for_all();

  // --- regions -------------------------------------------------------------------------------------------------------
  void begin_step();
  void end_step(bool failed);
  /// Whether a region is open that must stay one graph.
  bool in_full_graph();
  /// A region of compile(); returns its id. Nested ones need not be closed in order only if an exception skipped their ends.
  std::uint64_t begin_compile(Region region);
  void end_compile(std::uint64_t id, bool failed);

  // --- settings and state --------------------------------------------------------------------------------------------
  void set_eager_mode(bool on);
  bool eager_mode();
  void set_engine(const std::string& name);
  std::string engine_name();
  Engine& engine();
  std::size_t cache_size();
  std::size_t cache_capacity();
  void set_cache_capacity(std::size_t capacity);
  std::size_t tape_length();
  void set_follow(bool on);
  bool follows() const { return follow_; }
  /// Functional form, after the passes, of what is pending for `slots`. Records and launches nothing.
  std::string graph_text(const std::vector<Slot*>& slots);
  /// Runs what was launched and ends the runtime thread. Called when the process ends.
  void shut_down();

 private:
  Device();

  /// Queues a run. `slot_at` gives the slot of a number that `executable` names.
  template <class SlotAt>
  void launch(const std::shared_ptr<Executable>& executable, const SlotAt& slot_at, std::vector<Number> numbers,
              std::vector<GeneratorState> generators, const std::string& region);
  /// The same for a tape; numbers the graph in `note` and tells of it.
  std::shared_ptr<Executable> compile(const std::vector<const TapeNode*>& path, const std::vector<bool>& live,
                                      explain::CompileNote& note);
  /// The graph of a tape, after all passes.
  Graph graph_of(const std::vector<const TapeNode*>& path, const std::vector<bool>& live) const;
  /// For whoever listens: what was recorded in which scope, and what is launched.
  void note_recorded();
  std::shared_ptr<const trace::LaunchNote> note_launch(std::uint64_t graph, const std::string& region);
  /// What reports call the region that a cut falls in.
  std::string region_title(Cut cause, const LocationPtr& where, const Region* closing) const;
  /// Makes `op` abandon the extraction that the calling thread has open, if any.
  static void refuse_in_extraction(const char* op);
  /// Gives `executable` the plan for a graph as recorded, found in the persistent cache or compiled; none if nothing has to run.
  /// Returns a graph whose inputs, outputs and mutations are the plan's.
  Graph make_plan(const Graph& recorded, Executable& executable);
  /// Drops the tape: what it should have written fails with `error`.
  void abandon(const std::vector<bool>& live, const Error& error);
  void poison(const std::vector<bool>& live, const std::shared_ptr<const Error>& failure);
  static void poison(Slot& slot, const std::shared_ptr<const Error>& failure);
  void check_regions(Cut cause, const CacheEntry* entry, const std::vector<bool>& live, const LocationPtr& where);
  void raise(const std::shared_ptr<const Error>& failure);
  /// The calling thread's region that was opened last; null if it has none.
  const Region* innermost() const;
  /// Closes the regions that were opened in `regions_[open]`, by its thread; returns how many these were.
  std::size_t close_inside(std::size_t open);

  std::mutex mutex_;
  Tape tape_;
  SignatureTable signatures_;
  PlanCache cache_;
  Queue queue_;
  Engine* engine_;
  bool eager_mode_ = false;
  bool follow_;
  bool told_pending_ = false;
  std::uint64_t next_region_ = 1;
  std::vector<Region> regions_;
  std::map<std::string, std::map<std::uint64_t, std::weak_ptr<CacheEntry>>>
      region_graphs_;  ///< by region key: those launched in it
  explain::History history_;
  std::uint64_t graphs_ = 0;  ///< how many were compiled; the newest one's number
  std::vector<std::shared_ptr<const std::string>> scopes_;  ///< while a profiler listens: of the tape's ops
  std::int64_t recording_since_ = 0;
  std::uint32_t flows_ = 0;
};

/// Gives the user's current line; set by the Python binding. May take the GIL: never called with the lock held.
using LocationHook = LocationPtr (*)();
void set_location_hook(LocationHook hook);
LocationPtr current_location();

}  // namespace spool
