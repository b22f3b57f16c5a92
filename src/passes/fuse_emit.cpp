#include "src/passes/fuse_emit.h"

#include <algorithm>
#include <numeric>

#include "src/base/error.h"

namespace spool {
namespace {

class Maker {
 public:
  Maker(const FuseGroup& group, const FuseContext& context) : group_(group), context_(context) {}

  Node run() {
    for (const FuseGroup::Member& member : group_.members()) {
      add(member);
    }
    for (const Final& made : finals_) {
      if (needed(made.place.value)) {
        store(made);
      }
    }
    prune();
    collapse();
    count();
    return finish();
  }

 private:
  /// The newest value of a storage that the group writes.
  struct Final {
    LoweredPlace place;
    ValueId old = no_value;  ///< the value from outside that it replaces, or no_value for a fresh one
    std::int32_t instruction = -1;
  };
  struct Access {
    LoweredPlace place;
    bool store = false;
    ValueId old = no_value;
  };

  bool needed(ValueId value) const { return context_.needed[static_cast<std::size_t>(value)] != 0; }
  const Value& value(ValueId id) const { return context_.graph.values[static_cast<std::size_t>(id)]; }

  std::int32_t emit(const KernelInstruction& instruction) {
    const auto same = std::find(body_.begin(), body_.end(), instruction);
    if (same != body_.end()) {
      return static_cast<std::int32_t>(same - body_.begin());
    }
    body_.push_back(instruction);
    return static_cast<std::int32_t>(body_.size()) - 1;
  }

  std::int32_t access(const LoweredPlace& place, bool store, ValueId old) {
    const auto same = std::find_if(accesses_.begin(), accesses_.end(), [&](const Access& other) {
      return other.store == store && other.place.value == place.value && other.place.offset == place.offset &&
             other.place.strides == place.strides;
    });
    if (same != accesses_.end()) {
      return static_cast<std::int32_t>(same - accesses_.begin());
    }
    accesses_.push_back({place, store, old});
    return static_cast<std::int32_t>(accesses_.size()) - 1;
  }

  std::int32_t read(const LoweredPlace& place) {
    for (const Final& made : finals_) {
      if (made.place.value == place.value) {
        return made.instruction;
      }
    }
    return emit(
        {.op = KernelOp::Load, .dtype = place.dtype, .operands = {-1, -1, -1}, .immediate = access(place, false, no_value)});
  }

  std::int32_t number(const Arg& arg) {
    const auto same = std::find_if(numbers_.begin(), numbers_.end(), [&](const Arg& n) { return n.parameter == arg.parameter; });
    if (same != numbers_.end()) {
      return static_cast<std::int32_t>(same - numbers_.begin());
    }
    numbers_.push_back(arg);
    return static_cast<std::int32_t>(numbers_.size()) - 1;
  }

  KernelOver over(const std::vector<std::uint8_t>& reduced) const {
    const auto kept = static_cast<std::size_t>(group_.kept());
    const auto count = static_cast<std::size_t>(std::count(reduced.begin(), reduced.end(), 1));
    if (count == reduced.size()) {
      return KernelOver::All;
    }
    const bool rest = reduced.back() != 0;
    SPOOL_ASSERT(count == (rest ? reduced.size() - kept : kept), "A group's reductions are over one side of its split.");
    return rest ? KernelOver::Rest : KernelOver::Kept;
  }

  void add(const FuseGroup::Member& member) {
    const Lowered& lowered = member.lowered;
    std::vector<std::int32_t> ids;
    ids.reserve(lowered.body.size());
    for (KernelInstruction instruction : lowered.body) {
      for (int k = 0; k < arity(instruction.op); ++k) {
        instruction.operands[k] = ids[static_cast<std::size_t>(instruction.operands[k])];
      }
      const auto index = static_cast<std::size_t>(instruction.immediate);
      if (instruction.op == KernelOp::Load) {
        ids.push_back(read(lowered.reads[index]));
        continue;
      }
      if (instruction.op == KernelOp::Number) {
        instruction.immediate = number(lowered.numbers[index]);
      } else if (is_reduction(instruction.op)) {
        instruction.immediate = static_cast<std::int64_t>(over(lowered.reduced));
      }
      ids.push_back(emit(instruction));
    }
    for (const LoweredWrite& write : lowered.writes) {
      const std::int32_t id = ids[static_cast<std::size_t>(write.instruction)];
      const auto before = std::find_if(finals_.begin(), finals_.end(),
                                       [&](const Final& made) { return write.old != no_value && made.place.value == write.old; });
      if (before != finals_.end()) {
        before->place.value = write.place.value;
        before->instruction = id;
      } else {
        finals_.push_back({write.place, write.old, id});
      }
    }
  }

  /// A value of storage that nothing has written before, and of which nothing stays, is a result like any other.
  bool replaces_nothing(const Final& made) const {
    if (made.old == no_value) {
      return true;
    }
    if (context_.undefined[static_cast<std::size_t>(made.old)] == 0 ||
        std::any_of(accesses_.begin(), accesses_.end(), [&](const Access& a) { return a.place.value == made.old; })) {
      return false;
    }
    // The places are injective, so as many as the storage has are all of them.
    std::int64_t count = 1;
    for (std::size_t d = 0; d < group_.sizes().size(); ++d) {
      count *= made.place.strides[d] != 0 ? group_.sizes()[d] : 1;
    }
    return static_cast<std::size_t>(count) * value(made.old).geometry.itemsize == value(made.old).nbytes;
  }

  void store(const Final& made) {
    const std::int32_t index = access(made.place, true, replaces_nothing(made) ? no_value : made.old);
    emit({.op = KernelOp::Store, .dtype = made.place.dtype, .operands = {made.instruction, -1, -1}, .immediate = index});
  }

  /// Drops what no store needs, and numbers the rest anew in the order of use.
  void prune() {
    std::vector<std::uint8_t> used(body_.size(), 0);
    for (std::size_t i = body_.size(); i-- > 0;) {
      if (body_[i].op == KernelOp::Store) {
        used[i] = 1;
      }
      for (int k = 0; used[i] != 0 && k < arity(body_[i].op); ++k) {
        used[static_cast<std::size_t>(body_[i].operands[k])] = 1;
      }
    }
    std::vector<std::int32_t> id(body_.size(), -1);
    std::vector<KernelInstruction> body;
    std::vector<Access> accesses;
    std::vector<Arg> numbers;
    std::vector<std::int32_t> access_id(accesses_.size(), -1);
    std::vector<std::int32_t> number_id(numbers_.size(), -1);
    const auto renumber = [](auto& ids, auto& kept, auto& from, std::int64_t& immediate) {
      auto& known = ids[static_cast<std::size_t>(immediate)];
      if (known < 0) {
        known = static_cast<std::int32_t>(kept.size());
        kept.push_back(from[static_cast<std::size_t>(immediate)]);
      }
      immediate = known;
    };
    for (std::size_t i = 0; i < body_.size(); ++i) {
      if (used[i] == 0) {
        continue;
      }
      KernelInstruction instruction = body_[i];
      for (int k = 0; k < arity(instruction.op); ++k) {
        instruction.operands[k] = id[static_cast<std::size_t>(instruction.operands[k])];
      }
      if (instruction.op == KernelOp::Load || instruction.op == KernelOp::Store) {
        renumber(access_id, accesses, accesses_, instruction.immediate);
      } else if (instruction.op == KernelOp::Number) {
        renumber(number_id, numbers, numbers_, instruction.immediate);
      }
      id[i] = static_cast<std::int32_t>(body.size());
      body.push_back(instruction);
    }
    body_ = std::move(body);
    accesses_ = std::move(accesses);
    numbers_ = std::move(numbers);
  }

  /// Merges neighbouring dimensions along which all accesses move as one.
  void collapse() {
    sizes_ = group_.sizes();
    kept_ = group_.kept();
    for (std::size_t d = sizes_.size(); d-- > 1;) {
      if (static_cast<std::int32_t>(d) == kept_) {
        continue;
      }
      const bool as_one = std::all_of(accesses_.begin(), accesses_.end(),
                                      [&](const Access& a) { return a.place.strides[d - 1] == a.place.strides[d] * sizes_[d]; });
      if (!as_one) {
        continue;
      }
      sizes_[d - 1] *= sizes_[d];
      sizes_.erase(sizes_.begin() + static_cast<std::ptrdiff_t>(d));
      for (Access& a : accesses_) {
        a.place.strides[d - 1] = a.place.strides[d];
        a.place.strides.erase(a.place.strides.begin() + static_cast<std::ptrdiff_t>(d));
      }
      if (static_cast<std::int32_t>(d) < kept_) {
        --kept_;
      }
    }
  }

  /// Loads of what counts up along a dimension become the coordinate.
  void count() {
    for (std::size_t a = accesses_.size(); a-- > 0;) {
      const LoweredPlace& place = accesses_[a].place;
      const auto& strides = place.strides;
      const auto moves = std::find_if(strides.begin(), strides.end(), [](std::int64_t stride) { return stride != 0; });
      if (accesses_[a].store || context_.counts[static_cast<std::size_t>(place.value)] == 0 || place.offset != 0 ||
          moves == strides.end() || *moves != 1 ||
          std::any_of(moves + 1, strides.end(), [](std::int64_t stride) { return stride != 0; })) {
        continue;
      }
      for (KernelInstruction& instruction : body_) {
        if (instruction.op != KernelOp::Load && instruction.op != KernelOp::Store) {
          continue;
        }
        if (instruction.immediate == static_cast<std::int64_t>(a)) {
          instruction.op = KernelOp::Index;
          instruction.immediate = moves - strides.begin();
        } else if (instruction.immediate > static_cast<std::int64_t>(a)) {
          --instruction.immediate;
        }
      }
      accesses_.erase(accesses_.begin() + static_cast<std::ptrdiff_t>(a));
    }
  }

  Node finish() {
    auto kernel = std::make_shared<Kernel>();
    Node node{.op = &ops::fused, .args = {}, .results = {}, .fresh = 0, .location = {}};
    const std::int32_t last = group_.members().back().node;
    node.location = context_.graph.nodes[static_cast<std::size_t>(last)].location;
    kernel->rank = static_cast<std::int32_t>(sizes_.size());
    kernel->kept = kept_;
    kernel->numbers = static_cast<std::int32_t>(numbers_.size());
    kernel->body = body_;
    KernelSegment segment{.sizes = sizes_, .places = {}, .numbers = {}};
    std::vector<ValueId> mutated_values;
    for (const Access& access : accesses_) {
      kernel->accesses.push_back({access.place.dtype, access.store});
      KernelPlace place{.operand = -1, .result = -1, .offset = access.place.offset, .strides = access.place.strides};
      if (access.store && access.old == no_value) {
        place.result = node.fresh++;
        node.results.push_back(access.place.value);
      } else {
        place.operand = argument(node, access.store ? access.old : access.place.value);
        if (access.store) {
          node.args[static_cast<std::size_t>(place.operand)].writes = true;
        }
      }
      segment.places.push_back(std::move(place));
    }
    for (const Arg& arg : node.args) {
      if (arg.writes) {
        const auto by =
            std::find_if(accesses_.begin(), accesses_.end(), [&](const Access& a) { return a.store && a.old == arg.value; });
        node.results.push_back(by->place.value);
      }
    }
    for (const Arg& arg : numbers_) {
      segment.numbers.push_back(static_cast<std::int32_t>(node.args.size()));
      node.args.push_back(arg);
    }
    kernel->segments.push_back(std::move(segment));
    node.kernel = std::move(kernel);
    return node;
  }

  std::int32_t argument(Node& node, ValueId id) const {
    const auto same = std::find_if(node.args.begin(), node.args.end(), [&](const Arg& arg) { return arg.value == id; });
    if (same != node.args.end()) {
      return static_cast<std::int32_t>(same - node.args.begin());
    }
    Arg arg;
    arg.tag = Tag::Tensor;
    arg.value = id;
    arg.geometry = value(id).geometry;
    node.args.push_back(std::move(arg));
    return static_cast<std::int32_t>(node.args.size()) - 1;
  }

  const FuseGroup& group_;
  const FuseContext& context_;
  std::vector<KernelInstruction> body_;
  std::vector<Access> accesses_;
  std::vector<Arg> numbers_;
  std::vector<Final> finals_;
  std::vector<std::int64_t> sizes_;
  std::int32_t kept_ = 0;
};

}  // namespace

Node make_kernel(const FuseGroup& group, const FuseContext& context) { return Maker(group, context).run(); }

void add_segments(Node& node, Kernel& kernel, const Node& other) {
  const auto arguments = static_cast<std::int32_t>(node.args.size());
  const auto fresh = node.results.begin() + node.fresh;
  const auto other_fresh = other.results.begin() + other.fresh;
  for (KernelSegment segment : other.kernel->segments) {
    for (KernelPlace& place : segment.places) {
      if (place.operand >= 0) {
        place.operand += arguments;
      } else {
        place.result += node.fresh;
      }
    }
    for (std::int32_t& number : segment.numbers) {
      number += arguments;
    }
    kernel.segments.push_back(std::move(segment));
  }
  std::vector<ValueId> results(node.results.begin(), fresh);
  results.insert(results.end(), other.results.begin(), other_fresh);
  results.insert(results.end(), fresh, node.results.end());
  results.insert(results.end(), other_fresh, other.results.end());
  node.results = std::move(results);
  node.args.insert(node.args.end(), other.args.begin(), other.args.end());
  node.fresh += other.fresh;
}

}  // namespace spool
