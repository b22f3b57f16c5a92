#include "src/cache/stored_plan.h"

#include <iostream>

#include "src/base/error.h"
#include "src/cache/persistent.h"
#include "src/graph/serialise.h"
#include "src/ops/find_op.h"
#include "src/passes/layout.h"

namespace spool {
namespace {

/// Operators of PyTorch's, and those that passes put in their place.
const Op* find_any(std::string_view name) {
  for (const Op* own : {&ops::empty, &ops::fused, &ops::convolution, &ops::convolution_backward, &ops::reorder, &ops::max_pool,
                        &ops::max_pool_backward}) {
    if (own->name == name) {
      return own;
    }
  }
  return find_op(name);
}

}  // namespace

StoredPlan::StoredPlan(const Graph& recorded, const Engine& engine, const PlanOptions& options) : cache_(persistent_cache()) {
  if (cache_ != nullptr) {
    key_ = str(engine.build(), '\n', describe(options), '\n') + serialise(recorded);
    for (const Node& node : recorded.nodes) {
      locations_.push_back(node.location);
    }
  }
}

std::optional<Graph> StoredPlan::find() const {
  if (cache_ == nullptr) {
    return std::nullopt;
  }
  const std::optional<std::string> bytes = cache_->find("plan", key_);
  if (!bytes.has_value()) {
    return std::nullopt;
  }
  try {
    return deserialise(*bytes, &find_any, locations_);
  } catch (const Error& error) {
    std::cerr << "[spool] the persistent cache ignores a plan: " << error.what() << '\n';
    return std::nullopt;
  }
}

void StoredPlan::put(const Graph& lowered) const {
  if (cache_ != nullptr) {
    cache_->put("plan", key_, serialise(lowered, locations_));
  }
}

}  // namespace spool
