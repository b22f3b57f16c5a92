#include "src/cache/plan_cache.h"

#include <algorithm>

namespace spool {

CacheEntry* PlanCache::find(TapeNode& leaf, const std::vector<bool>& live, const Engine& engine, const PlanOptions& options) {
  for (const auto& entry : leaf.plans) {
    if (entry->engine == &engine && entry->options == options && entry->live == live) {
      entries_.splice(entries_.begin(), entries_, entry->place);
      return entry.get();
    }
  }
  return nullptr;
}

CacheEntry& PlanCache::insert(TapeNode& leaf, std::vector<bool> live, Engine& engine, std::shared_ptr<Executable> executable,
                              const PlanOptions& options) {
  auto entry = std::make_shared<CacheEntry>();
  entry->id = next_id_++;
  entry->live = std::move(live);
  entry->engine = &engine;
  entry->options = options;
  entry->executable = std::move(executable);
  entry->leaf = &leaf;
  entries_.push_front(entry);
  entry->place = entries_.begin();
  leaf.plans.push_back(entry);
  return *entry;
}

void PlanCache::shrink(Tape& tape) {
  while (entries_.size() > capacity_) {
    const std::shared_ptr<CacheEntry> oldest = entries_.back();
    entries_.pop_back();
    std::erase(oldest->leaf->plans, oldest);
    tape.prune(oldest->leaf);
  }
}

}  // namespace spool
