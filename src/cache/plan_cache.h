// Plan cache: which plans are kept. The lookup itself is the tape's trie (a leaf holds its entries, one per liveness); this is the
// bound: least recently used entries go first. Guarded by the device's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "src/engine/engine.h"
#include "src/tape/tape.h"

namespace spool {

/// A compiled tape. Launches share it, so an evicted entry lives until its last launch has run.
struct Executable {
  std::unique_ptr<Plan> plan;
  Engine* engine = nullptr;
  std::vector<GraphInput> inputs;
  std::vector<GraphOutput> outputs;
  std::vector<std::size_t> output_bytes;
  std::vector<std::uint8_t> owned;  ///< per input: the run may write into it
  std::uint64_t graph = 0;  ///< its graph's number in reports, unique in the process
};

struct CacheEntry {
  std::uint64_t id = 0;  ///< unique in the process
  std::vector<bool> live;
  Engine* engine = nullptr;  ///< the engine it was compiled for: part of the key
  PlanOptions options;  ///< the same
  std::shared_ptr<Executable> executable;  ///< null: nothing has to run
  TapeNode* leaf = nullptr;
  std::list<std::shared_ptr<CacheEntry>>::iterator place;
};

class PlanCache {
 public:
  explicit PlanCache(std::size_t capacity) : capacity_(capacity) {}

  /// The entry of (leaf, live, engine, options), now the most recently used; nullptr if there is none.
  CacheEntry* find(TapeNode& leaf, const std::vector<bool>& live, const Engine& engine, const PlanOptions& options = {});
  /// Adds an entry. May exceed the capacity until `shrink`.
  CacheEntry& insert(TapeNode& leaf, std::vector<bool> live, Engine& engine, std::shared_ptr<Executable> executable,
                     const PlanOptions& options = {});
  /// Evicts down to the capacity and prunes the trie. Only between tapes.
  void shrink(Tape& tape);

  std::size_t size() const { return entries_.size(); }
  std::size_t capacity() const { return capacity_; }
  void set_capacity(std::size_t capacity) { capacity_ = capacity; }

 private:
  std::size_t capacity_;
  std::uint64_t next_id_ = 1;
  std::list<std::shared_ptr<CacheEntry>> entries_;  ///< most recently used first
};

}  // namespace spool
