// Signature: everything structural about one recorded op, with its inferred results. Interned: equal calls share one object, so
// that tape nodes compare it by address and inference runs once per signature.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "src/tape/call.h"
#include "src/tape/geometry.h"

namespace spool {

/// A result that the op makes itself: new storage of `nbytes` bytes with `geometry` (offset 0) on it. Empty optional: the op
/// returns an undefined tensor there.
struct FreshResult {
  Geometry geometry;
  std::size_t nbytes = 0;
};
struct Results {
  std::vector<std::optional<FreshResult>> tensors;  ///< those in lists included, in order
  std::vector<std::uint32_t> list_lengths;          ///< of the op's results that are lists, in order
};

struct Signature {
  const Op* op = nullptr;
  std::vector<std::int64_t> words;
  std::vector<std::uint8_t> writes;  ///< per tensor operand
  Results results;

  bool matches(const Call& call) const { return op == call.op && words == call.words; }
};
using SignaturePtr = std::shared_ptr<const Signature>;

/// The interned signatures. Holds them weakly: a signature lives as long as a tape node uses it. Guarded by the device's lock.
class SignatureTable {
 public:
  SignaturePtr find(const Call& call) const;
  SignaturePtr intern(const Call& call, Results results);
  std::size_t size() const { return table_.size(); }

 private:
  void sweep();

  std::unordered_multimap<std::size_t, std::weak_ptr<const Signature>> table_;
  std::size_t sweep_at_ = 1024;
};

}  // namespace spool
