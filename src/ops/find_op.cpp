#include "src/ops/find_op.h"

#include <atomic>
#include <map>
#include <mutex>
#include <string>

namespace spool {
namespace {

std::atomic<OpFinder> current{nullptr};

}  // namespace

void set_op_finder(OpFinder finder) { current.store(finder, std::memory_order_release); }

const Op* find_op(std::string_view name) {
  static std::mutex mutex;
  static auto* known = new std::map<std::string, const Op*, std::less<>>;
  const std::scoped_lock lock(mutex);
  if (const auto found = known->find(name); found != known->end()) {
    return found->second;
  }
  const OpFinder finder = current.load(std::memory_order_acquire);
  const Op* op = finder != nullptr ? finder(name) : nullptr;
  if (op != nullptr) {
    known->emplace(name, op);
  }
  return op;
}

}  // namespace spool
