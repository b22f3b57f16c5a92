#include "src/tape/signature.h"

#include <algorithm>

namespace spool {
namespace {

std::size_t hash(const Call& call) {
  // FNV-1a over whole words. Collisions cost a comparison, never a wrong answer.
  std::uint64_t h = 14695981039346656037ULL ^ reinterpret_cast<std::uintptr_t>(call.op);
  for (const std::int64_t word : call.words) {
    h = (h ^ static_cast<std::uint64_t>(word)) * 1099511628211ULL;
  }
  return h ^ (h >> 32U);
}

}  // namespace

SignaturePtr SignatureTable::find(const Call& call) const {
  auto [it, end] = table_.equal_range(hash(call));
  for (; it != end; ++it) {
    if (SignaturePtr signature = it->second.lock(); signature != nullptr && signature->matches(call)) {
      return signature;
    }
  }
  return nullptr;
}

SignaturePtr SignatureTable::intern(const Call& call, Results results) {
  if (SignaturePtr known = find(call)) {
    return known;
  }
  if (table_.size() >= sweep_at_) {
    sweep();
  }
  auto signature = std::make_shared<const Signature>(Signature{call.op, call.words, call.writes, std::move(results)});
  table_.emplace(hash(call), signature);
  return signature;
}

void SignatureTable::sweep() {
  std::erase_if(table_, [](const auto& entry) { return entry.second.expired(); });
  sweep_at_ = std::max<std::size_t>(1024, 2 * table_.size());
}

}  // namespace spool
