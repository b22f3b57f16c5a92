// One graph's place in the persistent cache (cache/persistent.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/cache/disk_cache.h"
#include "src/engine/engine.h"

namespace spool {

class StoredPlan {
 public:
  /// `recorded`: the graph before all passes; must outlive this object. Does nothing further where no cache is open.
  StoredPlan(const Graph& recorded, const Engine& engine, const PlanOptions& options);

  /// Whether there is a cache to look into.
  bool open() const { return cache_ != nullptr; }
  /// What `put` stored for an equal graph, engine and options, with the locations of this one. None if there is nothing, or nothing
  /// that can be read (then a warning says so).
  std::optional<Graph> find() const;
  /// Stores the graph after all passes.
  void put(const Graph& lowered) const;

 private:
  std::shared_ptr<DiskCache> cache_;
  std::string key_;
  std::vector<LocationPtr> locations_;  ///< of the recorded graph's nodes
};

}  // namespace spool
