#include "src/runtime/explain_reason.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <tuple>

#include "src/base/error.h"

namespace spool::explain {
namespace {

using Path = std::vector<const TapeNode*>;

constexpr std::size_t kept_in_region = 16;
constexpr std::size_t kept_regions = 1024;
constexpr std::size_t kept_hashes = 1U << 16U;

Path path_to(const TapeNode* node) {
  Path path;
  for (; node->parent != nullptr; node = node->parent) {
    path.push_back(node);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::string called(const TapeNode& node) { return node.signature->op->name + " at " + describe_line(node.location); }

std::string ops(std::size_t count) { return str(count, count == 1 ? " op" : " ops"); }

/// An argument as messages call it.
std::string argument_name(const Op& op, std::size_t index) {
  return index < op.arguments.size() ? "'" + op.arguments[index] + "'" : str("number ", index);
}

// --- where a tape's storages come from ---

/// Who made or first used each storage of a tape, and who wrote to it last.
class Storages {
 public:
  explicit Storages(const Path& path) {
    for (const TapeNode* node : path) {
      std::size_t ordinal = 0;
      for (const Operand& operand : node->operands) {
        if (operand.first != Operand::First::No) {
          all_.push_back({.user = node, .first = operand.first});
        }
        if (node->signature->writes[ordinal] != 0) {
          all_[operand.slot].writer = node;
        }
        ++ordinal;
      }
      for (const auto& result : node->signature->results.tensors) {
        if (result.has_value()) {
          all_.push_back({.maker = node, .writer = node});
        }
      }
    }
  }

  /// What the storage is, as an argument of a later op.
  std::string describe(std::uint32_t slot) const {
    const Storage& storage = all_[slot];
    if (storage.maker != nullptr) {
      return "the result of " + called(*storage.maker);
    }
    const bool filled = storage.first == Operand::First::Buffer;
    return (filled ? "a tensor from before that is first used by " : "a new tensor that is filled by ") + called(*storage.user);
  }
  const TapeNode* writer(std::uint32_t slot) const { return all_[slot].writer; }
  bool made(std::uint32_t slot) const { return all_[slot].maker != nullptr; }

 private:
  struct Storage {
    const TapeNode* maker = nullptr;  ///< null: it was there before the tape
    const TapeNode* user = nullptr;
    Operand::First first = Operand::First::No;
    const TapeNode* writer = nullptr;
  };
  std::vector<Storage> all_;
};

// --- two calls of one op ---

/// How an argument is here, and how it was there; read as "<argument> <here> where that <there>".
struct Contrast {
  std::string here;
  std::string there;
};

template <class T>
std::string list(const std::vector<T>& values) {
  std::ostringstream out;
  out << '[';
  for (std::size_t i = 0; i < values.size(); ++i) {
    out << (i == 0 ? "" : ", ") << values[i];
  }
  out << ']';
  return out.str();
}

Contrast tensors(const Geometry& here, const Geometry& there) {
  Contrast contrast;
  const auto add = [&](const std::string& what, const std::string& h, const std::string& t) {
    contrast.here += (contrast.here.empty() ? "has " : " and ") + what + h;
    contrast.there += (contrast.there.empty() ? "had " : " and ") + what + t;
  };
  if (here.dtype != there.dtype) {
    add("dtype ", spool::name(here.dtype), spool::name(there.dtype));
  }
  if (here.sizes != there.sizes) {
    add("shape ", list(here.sizes), list(there.sizes));
  } else if (here.strides != there.strides) {
    add("strides ", list(here.strides), list(there.strides));
  }
  if (here.offset != there.offset) {
    add("offset ", str(here.offset), str(there.offset));
  }
  return contrast;
}

std::string kind_of(const NumberType& type) {
  const char* kind = "?";
  switch (type.kind) {
    case NumberKind::Bool: kind = "bool"; break;
    case NumberKind::Int: kind = "int"; break;
    case NumberKind::Double: kind = "float"; break;
    case NumberKind::Complex: kind = "complex"; break;
  }
  if (type.tensor && !type.wrapped) {
    return str("0-dimensional CPU tensor of dtype ", spool::name(type.dtype));
  }
  return str("Python number of type ", kind);
}

std::string described(const Arg& arg) {
  switch (arg.tag) {
    case Tag::None: return "None";
    case Tag::Tensor: return str("a tensor ", arg.geometry);
    case Tag::Number: return "a " + kind_of(arg.number);
    case Tag::Int: return str(arg.integer);
    case Tag::Bool: return arg.integer != 0 ? "True" : "False";
    case Tag::Double: return str(arg.real);
    case Tag::IntList:
    case Tag::BoolList: return list(arg.list);
    case Tag::DoubleList: return list(arg.reals);
    case Tag::TensorList: return str("a list of ", arg.elements.size(), " tensors");
    case Tag::NumberList: return str("a list of ", arg.elements.size(), " numbers");
    case Tag::String: return "'" + arg.text + "'";
    case Tag::Device: return "the device";
    case Tag::Generator: return "a generator";
  }
  return "?";
}

/// The first argument that differs, with its name.
struct Difference {
  std::string argument;
  Contrast contrast;
};

std::optional<Difference> compare(const Arg& here, const Arg& there, const std::string& argument) {
  if (here.tag == Tag::Tensor && there.tag == Tag::Tensor) {
    return here.geometry == there.geometry ? std::nullopt
                                           : std::optional(Difference{argument, tensors(here.geometry, there.geometry)});
  }
  const bool lists = here.tag == there.tag && (here.tag == Tag::TensorList || here.tag == Tag::NumberList);
  if (lists && here.elements.size() == there.elements.size()) {
    for (std::size_t i = 0; i < here.elements.size(); ++i) {
      if (auto difference = compare(here.elements[i], there.elements[i], str(argument, '[', i, ']'))) {
        return difference;
      }
    }
    return std::nullopt;
  }
  const bool equal = here.tag == there.tag && here.number == there.number && here.integer == there.integer &&
                     here.real == there.real && here.list == there.list && here.reals == there.reals &&
                     here.elements.size() == there.elements.size() && here.text == there.text;
  return equal ? std::nullopt : std::optional(Difference{argument, {"is " + described(here), "was " + described(there)}});
}

/// All arguments that differ between two calls of one op.
std::vector<Difference> compare_words(const Signature& here, const Signature& there) {
  const std::vector<Arg> mine = decode(here.words);
  const std::vector<Arg> theirs = decode(there.words);
  std::vector<Difference> differences;
  for (std::size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
    if (auto difference = compare(mine[i], theirs[i], argument_name(*here.op, i))) {
      differences.push_back(std::move(*difference));
    }
  }
  return differences;
}

/// The name of the argument that a tensor operand belongs to.
std::string operand_name(const Signature& signature, std::size_t ordinal) {
  const std::vector<Arg> args = decode(signature.words);
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::size_t tensors = 0;
    if (args[i].tag == Tag::Tensor) {
      tensors = 1;
    } else if (args[i].tag == Tag::TensorList) {
      tensors = static_cast<std::size_t>(std::count_if(args[i].elements.begin(), args[i].elements.end(),
                                                       [](const Arg& element) { return element.tag == Tag::Tensor; }));
    }
    if (ordinal < tensors) {
      return argument_name(*signature.op, i) + (args[i].tag == Tag::TensorList ? str('[', ordinal, ']') : "");
    }
    ordinal -= tensors;
  }
  return "an argument";
}

const char* state(Operand::First first) {
  return first == Operand::First::Buffer ? "a tensor that has content" : "a tensor that nothing has written to";
}

Contrast wiring(const Operand& here, const Operand& there, const Storages& mine, const Storages& theirs) {
  if (here.slot != there.slot) {
    return {"is " + mine.describe(here.slot), "was " + theirs.describe(there.slot)};
  }
  if (here.first != there.first) {
    return {str("is ", state(here.first)), str("was ", state(there.first))};
  }
  return {str("lies in a storage of ", here.nbytes, " bytes"), str("lay in one of ", there.nbytes)};
}

/// Outputs that only one of the two tapes has.
void compare_live(const Candidate& tape, const CacheEntry& earlier, Reason& reason) {
  const Storages storages(tape.path);
  std::size_t more = 0;
  constexpr std::size_t shown = 3;
  for (std::uint32_t slot = 0; slot < tape.live.size(); ++slot) {
    if (tape.live[slot] == earlier.live[slot]) {
      continue;
    }
    if (more++ >= shown) {
      continue;
    }
    const TapeNode* writer = storages.writer(slot);
    SPOOL_ASSERT(writer != nullptr, "An output is something that the tape has written.");
    if (reason.op.empty()) {
      reason.op = writer->signature->op->name;
      reason.where = writer->location;
    }
    reason.what +=
        str(reason.what.empty() ? "" : "; ", storages.made(slot) ? "the result of " : "the tensor updated by ", called(*writer),
            tape.live[slot] ? " is still held after the cut, which it was not then"
                            : " is no longer held after the cut, which it was then");
  }
  if (more > shown) {
    reason.what += str("; and ", more - shown, " more");
  }
}

/// How much two tapes differ, at the place where they part: fewer is nearer.
std::size_t distance(const Candidate& tape, const CacheEntry& earlier, std::size_t common) {
  const Path other = path_to(earlier.leaf);
  if (common == tape.path.size() && common == other.size()) {
    std::size_t outputs = earlier.engine == tape.engine && earlier.options == tape.options ? 0 : 1;
    for (std::size_t i = 0; i < tape.live.size(); ++i) {
      outputs += static_cast<std::size_t>(tape.live[i] != earlier.live[i]);
    }
    return outputs;
  }
  constexpr std::size_t ends = 1000;
  constexpr std::size_t another_op = 2000;
  if (common == tape.path.size() || common == other.size()) {
    return ends;
  }
  const Signature& here = *tape.path[common]->signature;
  const Signature& there = *other[common]->signature;
  return here.op != there.op ? another_op : compare_words(here, there).size();
}

std::size_t in_common(const Path& here, const Path& there) {
  const auto [end, other] = std::mismatch(here.begin(), here.end(), there.begin(), there.end());
  return static_cast<std::size_t>(end - here.begin());
}

/// Some entry of a tape that goes through `node`, best one that was recorded lately; null if there is none.
std::shared_ptr<CacheEntry> some_entry(const TapeNode* node) {
  std::vector<const TapeNode*> pending{node};
  while (!pending.empty()) {
    node = pending.back();
    pending.pop_back();
    if (!node->plans.empty()) {
      return node->plans.back();
    }
    for (const auto& child : node->children) {
      pending.push_back(child.get());
    }
    if (node->last != nullptr) {
      pending.push_back(node->last);
    }
  }
  return nullptr;
}

/// One entry of each way in which earlier tapes part from this one, at the last place where one does; empty if all part at once.
std::vector<std::shared_ptr<CacheEntry>> parting(const Path& path) {
  std::vector<std::shared_ptr<CacheEntry>> entries;
  for (std::size_t depth = path.size(); depth > 0 && entries.empty(); --depth) {
    const TapeNode& node = *path[depth - 1];
    entries = node.plans;
    const TapeNode* mine = depth < path.size() ? path[depth] : nullptr;
    for (const auto& child : node.children) {
      if (child.get() != mine) {
        if (auto entry = some_entry(child.get())) {
          entries.push_back(std::move(entry));
        }
      }
    }
  }
  return entries;
}

std::size_t hash(const Candidate& tape) {
  std::uint64_t h = reinterpret_cast<std::uintptr_t>(tape.engine);
  const auto mix = [&](std::uint64_t value) { h = (h ^ value) * 1099511628211ULL + 0x9E3779B9U; };
  mix(std::hash<std::string>{}(describe(tape.options)));
  for (const TapeNode* node : tape.path) {
    mix(reinterpret_cast<std::uintptr_t>(node->signature->op));
    for (const std::int64_t word : node->signature->words) {
      mix(static_cast<std::uint64_t>(word));
    }
    for (const Operand& operand : node->operands) {
      mix(operand.slot << 2U | static_cast<std::uint32_t>(operand.first));
      mix(operand.nbytes);
    }
  }
  for (const bool live : tape.live) {
    mix(static_cast<std::uint64_t>(live));
  }
  return h ^ (h >> 32U);
}

}  // namespace

const char* name(Reason::Kind kind) {
  switch (kind) {
    case Reason::Kind::First: return "first";
    case Reason::Kind::Dropped: return "dropped";
    case Reason::Kind::Ahead: return "ahead";
    case Reason::Kind::Op: return "op";
    case Reason::Kind::Argument: return "argument";
    case Reason::Kind::Wiring: return "wiring";
    case Reason::Kind::Longer: return "longer";
    case Reason::Kind::Shorter: return "shorter";
    case Reason::Kind::Live: return "live";
    case Reason::Kind::Engine: return "engine";
  }
  return "?";
}

std::string describe(const Reason& reason) {
  const auto first_at = [&] {
    return str("differs from graph ", reason.nearest, " first at op ", reason.common + 1, " of ", reason.length);
  };
  switch (reason.kind) {
    case Reason::Kind::First:
    case Reason::Kind::Dropped:
    case Reason::Kind::Ahead: return reason.what;
    case Reason::Kind::Op:
    case Reason::Kind::Longer: return str(first_at(), ": ", reason.what);
    case Reason::Kind::Shorter: return str("differs from graph ", reason.nearest, ": ", reason.what);
    case Reason::Kind::Argument:
    case Reason::Kind::Wiring: return str(first_at(), ", ", reason.op, " at ", describe_line(reason.where), ": ", reason.what);
    case Reason::Kind::Live: return str("has the ops of graph ", reason.nearest, ", but other outputs: ", reason.what);
    case Reason::Kind::Engine: return str("has the ops and outputs of graph ", reason.nearest, ", but ", reason.what);
  }
  return reason.what;
}

Reason difference(const Candidate& tape, const CacheEntry& earlier) {
  using Kind = Reason::Kind;
  const Path other = path_to(earlier.leaf);
  Reason reason{.nearest = earlier.id, .common = in_common(tape.path, other), .length = tape.path.size()};
  const TapeNode* here = reason.common < tape.path.size() ? tape.path[reason.common] : nullptr;
  const TapeNode* there = reason.common < other.size() ? other[reason.common] : nullptr;
  if (here != nullptr) {
    reason.op = here->signature->op->name;
    reason.where = here->location;
  }
  if (there != nullptr) {
    reason.earlier = there->location;
  }
  if (here == nullptr && there == nullptr) {
    if (tape.live != earlier.live) {
      reason.kind = Kind::Live;
      compare_live(tape, earlier, reason);
    } else {
      reason.kind = Kind::Engine;
      reason.what = tape.engine == earlier.engine
                        ? str("is compiled ", describe(tape.options), ", not ", describe(earlier.options))
                        : str("is for engine '", tape.engine->name(), "', not '", earlier.engine->name(), "'");
    }
  } else if (here == nullptr) {
    reason.kind = Kind::Shorter;
    reason.what = str("it ends after ", ops(reason.common), ", where that goes on with ", called(*there));
  } else if (there == nullptr) {
    reason.kind = Kind::Longer;
    reason.what = str("it goes on with ", called(*here), ", where that ends");
  } else if (here->signature->op != there->signature->op) {
    reason.kind = Kind::Op;
    reason.what = str("it is ", called(*here), ", where that has ", called(*there));
  } else if (here->signature->words != there->signature->words) {
    reason.kind = Kind::Argument;
    for (const Difference& found : compare_words(*here->signature, *there->signature)) {
      reason.what +=
          str(reason.what.empty() ? "" : "; ", found.argument, ' ', found.contrast.here, ", where that ", found.contrast.there);
    }
  } else {
    reason.kind = Kind::Wiring;
    const auto [mine, theirs] =
        std::mismatch(here->operands.begin(), here->operands.end(), there->operands.begin(), there->operands.end());
    SPOOL_ASSERT(mine != here->operands.end(), "Nodes of the trie that have one parent differ.");
    const auto ordinal = static_cast<std::size_t>(mine - here->operands.begin());
    const auto contrast = wiring(*mine, *theirs, Storages(tape.path), Storages(other));
    reason.what = str(operand_name(*here->signature, ordinal), ' ', contrast.here, ", where that ", contrast.there);
  }
  return reason;
}

Reason nearest(const Candidate& tape, const std::vector<std::shared_ptr<CacheEntry>>& entries) {
  SPOOL_ASSERT(!entries.empty(), "There is something to compare with.");
  using Rank = std::tuple<std::size_t, std::size_t, std::uint64_t>;  // more is nearer
  const CacheEntry* best = nullptr;
  Rank best_rank;
  for (const auto& entry : entries) {
    const std::size_t common = in_common(tape.path, path_to(entry->leaf));
    const Rank rank{common, ~distance(tape, *entry, common), entry->id};
    if (best == nullptr || best_rank < rank) {
      best = entry.get();
      best_rank = rank;
    }
  }
  return difference(tape, *best);
}

Reason History::why(const Candidate& tape, const std::string& region) const {
  if (compiled_.contains(hash(tape))) {
    return {.kind = Reason::Kind::Dropped,
            .length = tape.path.size(),
            .what = "it was compiled before, but the cache has dropped its plan: a larger SPOOL_CACHE_SIZE keeps it"};
  }
  // What its own region had before is what a reader would compare with, unless something else begins with most of its ops.
  std::vector<std::shared_ptr<CacheEntry>> entries;
  if (const auto known = regions_.find(region); known != regions_.end()) {
    for (const auto& weak : known->second) {
      if (auto entry = weak.lock()) {
        entries.push_back(std::move(entry));
      }
    }
  }
  const auto others = parting(tape.path);
  const bool alike = !others.empty() && 2 * in_common(tape.path, path_to(others.front()->leaf)) >= tape.path.size();
  if (entries.empty() || alike) {
    entries.insert(entries.end(), others.begin(), others.end());
  }
  if (entries.empty()) {
    return {.kind = Reason::Kind::First,
            .length = tape.path.size(),
            .op = tape.path.front()->signature->op->name,
            .where = tape.path.front()->location,
            .what = "it is the first graph here: nothing earlier begins with " + called(*tape.path.front())};
  }
  return nearest(tape, entries);
}

void History::add(const Candidate& tape, const std::string& region, const std::shared_ptr<CacheEntry>& entry) {
  if (compiled_.size() >= kept_hashes) {
    compiled_.clear();
  }
  compiled_.insert(hash(tape));
  if (regions_.size() >= kept_regions && !regions_.contains(region)) {
    regions_.clear();
  }
  auto& graphs = regions_[region];
  graphs.push_back(entry);
  if (graphs.size() > kept_in_region) {
    graphs.pop_front();
  }
}

}  // namespace spool::explain
