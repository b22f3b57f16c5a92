// Why a tape had to be compiled: the nearest earlier graph, and the first thing in which the tape differs from it.
//
// The trie of tapes has the answer: two tapes part where their paths do. Nothing is noted for it while recording; all is read off
// the trie when something is compiled. Guarded by the device's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "src/cache/plan_cache.h"
#include "src/tape/tape.h"

namespace spool::explain {

struct Reason {
  enum class Kind {
    First,  ///< nothing earlier begins as it does
    Dropped,  ///< it was compiled before, but the cache has dropped its plan
    Ahead,  ///< compiled without being run, for a caller that keeps the plan
    Op,  ///< another op
    Argument,  ///< the same op on another shape, dtype, layout or attribute
    Wiring,  ///< the same op on another tensor
    Longer,  ///< it goes on where the earlier one ended
    Shorter,  ///< it ends where the earlier one went on
    Live,  ///< the same ops, other outputs
    Engine,  ///< the same graph for another engine, or with other options
  };
  Kind kind = Kind::First;
  std::uint64_t nearest = 0;  ///< the earlier graph's number; 0: none
  std::size_t common = 0;  ///< ops that both have in common, from the first on
  std::size_t length = 0;  ///< ops of this tape
  std::string op;  ///< the op that differs (Live: the one that made the output); empty if it is none
  LocationPtr where;  ///< its line
  LocationPtr earlier;  ///< the line of the earlier graph's op in its place
  std::string what;  ///< in words, what differs
};

const char* name(Reason::Kind kind);
/// One sentence for people, without a full stop.
std::string describe(const Reason& reason);

/// What is looked at: a tape and all that is in its key.
struct Candidate {
  const std::vector<const TapeNode*>& path;
  const std::vector<bool>& live;
  const Engine* engine = nullptr;
  PlanOptions options = {};
};

/// In what the tape differs from that entry's, which is on the same trie.
Reason difference(const Candidate& tape, const CacheEntry& earlier);
/// The entry that has most in common with the tape, of these; of equal ones, that which differs least, then the youngest.
Reason nearest(const Candidate& tape, const std::vector<std::shared_ptr<CacheEntry>>& entries);

/// What was compiled before, as far as finding reasons needs it.
class History {
 public:
  /// Why the tape has to be compiled in this region (as messages call it).
  Reason why(const Candidate& tape, const std::string& region) const;
  /// Notes that it was.
  void add(const Candidate& tape, const std::string& region, const std::shared_ptr<CacheEntry>& entry);

 private:
  std::map<std::string, std::deque<std::weak_ptr<CacheEntry>>> regions_;  ///< the latest of each
  std::unordered_set<std::size_t> compiled_;  ///< hashes; a clash costs a wrong word, nothing else
};

}  // namespace spool::explain
