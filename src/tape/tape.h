// Tape: the ops recorded since the last cut, and the trie of all tapes recorded before.
//
// A node of the trie is one recorded op; the path from the root to a node is everything structural about a tape that ends there.
// Recording walks the trie: while what is recorded equals what followed the same prefix last time, `follow` only compares
// (results' geometry comes from the node); on the first difference `append` goes to another child or makes one. The path is
// therefore the structural key itself, compared in full, and a leaf holds the plans made for it (one per liveness).
//
// Guarded by the device's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/tape/call.h"
#include "src/tape/location.h"
#include "src/tape/signature.h"
#include "src/tape/slot.h"

namespace spool {

struct CacheEntry;

/// A tensor operand's storage: its place on the tape and, at its first touch, what it was then.
struct Operand {
  enum class First : std::uint32_t { No, Buffer, Uninitialised };
  std::uint32_t slot = 0;
  First first = First::No;
  std::size_t nbytes = 0;  ///< of the storage; only at its first touch

  bool operator==(const Operand&) const = default;
};

struct TapeNode {
  SignaturePtr signature;
  std::vector<Operand> operands;
  LocationPtr location;  ///< where this node was recorded first
  TapeNode* parent = nullptr;
  TapeNode* last = nullptr;  ///< the child that followed last time
  std::vector<std::unique_ptr<TapeNode>> children;
  std::vector<std::shared_ptr<CacheEntry>> plans;  ///< of tapes that end here
};

class Tape {
 public:
  Tape();
  ~Tape();

  /// Advances to the predicted next node if `call` is what it records; nullptr (and nothing changed) if not.
  const TapeNode* follow(const Call& call);
  /// Advances to the child for (signature, operands), made if there is none.
  const TapeNode* append(SignaturePtr signature, const Call& call, const LocationPtr& location);
  /// The i-th fresh result of the node just recorded, counting defined ones only. The caller owns one reference (the storage's).
  Slot& result(std::size_t i) { return *slots_[first_result_ + i]; }

  /// Whether `call` starts a tape of the shape that this one has: the natural place to cut a long tape.
  bool starts_like(const Call& call) const { return first_ != nullptr && first_->signature->matches(call); }

  bool empty() const { return length_ == 0; }
  std::size_t length() const { return length_; }
  std::size_t result_bytes() const { return result_bytes_; }
  bool touches(const Slot& slot) const { return slot.tape == number_; }
  TapeNode& leaf() { return *cursor_; }
  std::span<SlotPtr> slots() { return slots_; }
  std::vector<Number>& numbers() { return numbers_; }
  std::vector<GeneratorState>& generators() { return generators_; }
  /// Nodes from the first recorded op to the last.
  std::vector<const TapeNode*> path() const;

  /// Per slot: whether something outside the tape will see what the tape writes to it.
  std::vector<bool> live() const;

  /// Starts a new tape at the root.
  void reset();
  /// Removes `node` and its ancestors as far as they hold neither plans nor children. Only between tapes.
  void prune(TapeNode* node);

 private:
  const TapeNode* take(TapeNode& node, const Call& call);
  /// Writes the call's operands into `operands_`, numbering slots that the tape meets for the first time; undone by `forget`.
  void place(const Call& call);
  void forget();

  std::unique_ptr<TapeNode> root_;
  TapeNode* cursor_;
  TapeNode* first_ = nullptr;
  std::uint64_t number_;  ///< unique in the process: what a slot names the tape by that touched it
  std::size_t length_ = 0;
  std::size_t result_bytes_ = 0;
  std::size_t first_result_ = 0;
  std::size_t placed_from_ = 0;  ///< slots_.size() before the last `place`
  std::vector<Operand> operands_;
  std::vector<SlotPtr> slots_;
  std::vector<Number> numbers_;
  std::vector<GeneratorState> generators_;
};

}  // namespace spool
