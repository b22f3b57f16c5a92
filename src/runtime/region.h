// Regions: the code between the entry and exit of `step()` or `compile()`. Those of one thread nest; the device keeps all in the
// order in which they were opened. Guarded by the device's lock.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/tape/location.h"

namespace spool {

struct Region {
  enum class Kind { Step, Compile };
  Kind kind = Kind::Step;
  std::uint64_t id = 0;        ///< of this entry into the region
  std::string name;            ///< compile(): what it is called in messages
  std::string key;             ///< compile(): identity of the function over calls
  bool full_graph = false;
  std::int64_t max_graphs = -1;  ///< -1: unlimited
  std::thread::id thread = std::this_thread::get_id();  ///< that opened it: those of other threads come and go as they like
  LocationPtr where = nullptr;  ///< step(): the line that opened it
  std::int64_t entered = 0;     ///< when, in nanoseconds; 0: nobody asked
};

/// What reports call a region: its name; for step(), its line.
std::string title(const Region& region);

/// Why a tape is cut; the words of the messages.
enum class Cut { Sync, StepEntry, StepExit, CompileEntry, CompileExit, Read, RunAtOnce, Barrier, Bound, Eager, Extracted };
const char* describe(Cut cause);
/// Cause and place of a cut, as messages have it: "a read at train.py:12 (aten::item)".
std::string describe(Cut cause, const LocationPtr& where);

/// Whether a cut of that cause breaks a region's graph in two.
bool breaks_graph(Cut cause);

}  // namespace spool
