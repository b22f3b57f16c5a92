#include "src/tape/tape.h"

#include <algorithm>
#include <atomic>

#include "src/base/error.h"

namespace spool {
namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

std::string describe(const LocationPtr& location) {
  if (location == nullptr || location->file.empty()) {
    return location == nullptr || location->scope.empty() ? "unknown line" : location->scope;
  }
  std::string where = location->file + ":" + std::to_string(location->line);
  if (!location->scope.empty()) {
    where += " (" + location->scope + ")";
  }
  return where;
}

std::string describe_line(const LocationPtr& location) {
  return location == nullptr || location->file.empty() ? "unknown line" : location->file + ":" + std::to_string(location->line);
}

Tape::Tape() : root_(std::make_unique<TapeNode>()), cursor_(root_.get()), number_(next_number()) {}

Tape::~Tape() {
  // Children first and without recursion: a path is as long as a tape.
  std::vector<std::unique_ptr<TapeNode>> pending;
  pending.push_back(std::move(root_));
  while (!pending.empty()) {
    const std::unique_ptr<TapeNode> node = std::move(pending.back());
    pending.pop_back();
    std::move(node->children.begin(), node->children.end(), std::back_inserter(pending));
  }
}

void Tape::place(const Call& call) {
  operands_.clear();
  placed_from_ = slots_.size();
  for (Slot* slot : call.slots) {
    if (slot->tape == number_) {
      operands_.push_back({slot->index, Operand::First::No, 0});
      continue;
    }
    slot->tape = number_;
    slot->index = static_cast<std::uint32_t>(slots_.size());
    slot->dirty = false;
    slots_.emplace_back(*slot);
    operands_.push_back({slot->index, slot->buffer ? Operand::First::Buffer : Operand::First::Uninitialised, slot->nbytes});
  }
}

void Tape::forget() {
  for (std::size_t i = placed_from_; i < slots_.size(); ++i) {
    slots_[i]->tape = 0;
  }
  slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(placed_from_), slots_.end());
}

const TapeNode* Tape::follow(const Call& call) {
  TapeNode* next = cursor_->last;
  if (next == nullptr || !next->signature->matches(call)) {
    return nullptr;
  }
  place(call);
  if (operands_ != next->operands) {
    forget();
    return nullptr;
  }
  return take(*next, call);
}

const TapeNode* Tape::append(SignaturePtr signature, const Call& call, const LocationPtr& location) {
  place(call);
  auto& children = cursor_->children;
  const auto known = std::find_if(children.begin(), children.end(), [&](const auto& child) {
    return child->signature == signature && child->operands == operands_;
  });
  if (known != children.end()) {
    return take(**known, call);
  }
  auto node = std::make_unique<TapeNode>();
  node->signature = std::move(signature);
  node->operands = operands_;
  node->location = location;
  node->parent = cursor_;
  children.push_back(std::move(node));
  return take(*children.back(), call);
}

const TapeNode* Tape::take(TapeNode& node, const Call& call) {
  cursor_->last = &node;
  cursor_ = &node;
  if (length_++ == 0) {
    first_ = &node;
  }
  for (std::size_t i = 0; i < call.slots.size(); ++i) {
    if (call.writes[i] != 0) {
      call.slots[i]->dirty = true;
    }
  }
  numbers_.insert(numbers_.end(), call.numbers.begin(), call.numbers.end());
  generators_.insert(generators_.end(), call.generators.begin(), call.generators.end());
  first_result_ = slots_.size();
  for (const auto& result : node.signature->results.tensors) {
    if (result.has_value()) {
      auto* slot = new Slot(result->nbytes);
      slot->tape = number_;
      slot->index = static_cast<std::uint32_t>(slots_.size());
      slot->dirty = true;
      slots_.emplace_back(*slot);
      result_bytes_ += result->nbytes;
    }
  }
  return &node;
}

std::vector<const TapeNode*> Tape::path() const {
  std::vector<const TapeNode*> nodes;
  nodes.reserve(length_);
  for (const TapeNode* node = cursor_; node->parent != nullptr; node = node->parent) {
    nodes.push_back(node);
  }
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

std::vector<bool> Tape::live() const {
  std::vector<bool> live(slots_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    live[i] = slots_[i]->dirty && slots_[i]->held();
  }
  return live;
}

void Tape::reset() {
  for (const SlotPtr& slot : slots_) {
    slot->tape = 0;
    slot->dirty = false;
  }
  slots_.clear();
  numbers_.clear();
  generators_.clear();
  cursor_ = root_.get();
  first_ = nullptr;
  length_ = 0;
  result_bytes_ = 0;
  number_ = next_number();
}

void Tape::prune(TapeNode* node) {
  SPOOL_ASSERT(empty(), "The trie is pruned only between tapes.");
  while (node->parent != nullptr && node->plans.empty() && node->children.empty()) {
    TapeNode* parent = node->parent;
    if (parent->last == node) {
      parent->last = nullptr;
    }
    std::erase_if(parent->children, [&](const auto& child) { return child.get() == node; });
    node = parent;
  }
}

}  // namespace spool
