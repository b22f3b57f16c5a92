#include "src/ops/emitter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "src/base/error.h"

namespace spool {
namespace {

constexpr int rank_of(DType dtype) {
  switch (dtype) {
    case DType::Bool: return 0;
    case DType::UInt8: return 1;
    case DType::Int8: return 2;
    case DType::Int16: return 3;
    case DType::Int32: return 4;
    case DType::Int64: return 5;
    case DType::Float16:
    case DType::BFloat16: return 6;
    case DType::Float32: return 7;
    case DType::Float64: return 8;
    default: return -1;
  }
}

/// The element types of a promotion, by what counts more: tensors with dimensions, 0-dim tensors, numbers.
struct Categories {
  std::array<std::optional<DType>, 3> types;

  void add(std::size_t category, DType dtype) {
    types[category] = types[category].has_value() ? promote(*types[category], dtype) : dtype;
  }
};

int kind_of(DType dtype) { return dtype == DType::Bool ? 0 : is_floating(dtype) ? 2 : 1; }

DType combine(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher.has_value()) {
    return lower.value_or(DType::Float32);
  }
  if (!lower.has_value()) {
    return *higher;
  }
  return kind_of(*lower) > kind_of(*higher) ? promote(*higher, *lower) : *higher;
}

}  // namespace

bool is_integral(DType dtype) { return rank_of(dtype) >= 1 && rank_of(dtype) <= 5; }

DType math_type(DType dtype) { return dtype == DType::Float16 || dtype == DType::BFloat16 ? DType::Float32 : dtype; }

DType promote(DType a, DType b) {
  const int ra = rank_of(a);
  const int rb = rank_of(b);
  if (ra < 0 || rb < 0) {
    throw NotLowered{};
  }
  if (ra == 6 && rb == 6 && a != b) {
    return DType::Float32;
  }
  if (a == b) {
    return a;
  }
  if (a == DType::UInt8 || b == DType::UInt8) {
    const DType other = a == DType::UInt8 ? b : a;
    if (other == DType::Int8) {
      return DType::Int16;
    }
  }
  return ra > rb ? a : b;
}

const Arg& Emitter::arg(std::size_t i) const {
  static const Arg none;
  return i < node_.args.size() ? node_.args[i] : none;
}

bool Emitter::flag(std::size_t i) const { return integer(i, 0) != 0; }

std::int64_t Emitter::integer(std::size_t i, std::int64_t fallback) const {
  const Arg& a = arg(i);
  if (a.tag == Tag::None) {
    return fallback;
  }
  if (a.tag != Tag::Int && a.tag != Tag::Bool) {
    throw NotLowered{};
  }
  return a.integer;
}

bool Emitter::is_one(std::size_t i) const {
  const Arg& a = arg(i);
  return is_constant(a) && (a.number.kind == NumberKind::Int ? a.integer == 1 : a.real == 1.0);
}

std::string_view Emitter::text(std::size_t i) const {
  const Arg& a = arg(i);
  if (a.tag != Tag::None && a.tag != Tag::String) {
    throw NotLowered{};
  }
  return a.text;
}

DType Emitter::common(std::initializer_list<std::size_t> args) const {
  Categories found;
  for (const std::size_t i : args) {
    const Arg& a = arg(i);
    if (a.tag == Tag::Tensor) {
      found.add(a.geometry.sizes.empty() ? 1 : 0, a.geometry.dtype);
    } else if (a.tag == Tag::Number && a.number.tensor && !a.number.wrapped) {
      found.add(1, a.number.dtype);
    } else if (a.tag == Tag::Number) {
      switch (a.number.kind) {
        case NumberKind::Bool: found.add(2, DType::Bool); break;
        case NumberKind::Int: found.add(2, DType::Int64); break;
        case NumberKind::Double: found.add(2, DType::Float32); break;
        case NumberKind::Complex: throw NotLowered{};
      }
    } else if (a.tag != Tag::None) {
      throw NotLowered{};
    }
  }
  const std::optional<DType> low = found.types[1].has_value() || found.types[2].has_value()
                                       ? std::optional(combine(found.types[1], found.types[2]))
                                       : std::nullopt;
  return combine(found.types[0], low);
}

DType Emitter::common_float(std::initializer_list<std::size_t> args) const {
  const DType dtype = common(args);
  return is_floating(dtype) ? dtype : DType::Float32;
}

DType Emitter::type_of(Id a) const {
  const KernelInstruction& instruction = lowered_.body[static_cast<std::size_t>(a)];
  const bool truth = is_comparison(instruction.op) || instruction.op == KernelOp::IsNan || instruction.op == KernelOp::Not;
  return truth ? DType::Bool : instruction.dtype;
}

Emitter::Id Emitter::emit(const KernelInstruction& instruction) {
  const auto same = std::find(lowered_.body.begin(), lowered_.body.end(), instruction);
  if (same != lowered_.body.end()) {
    return static_cast<Id>(same - lowered_.body.begin());
  }
  lowered_.body.push_back(instruction);
  return static_cast<Id>(lowered_.body.size()) - 1;
}

Emitter::Id Emitter::op(KernelOp op, DType dtype, Id a, Id b, Id c) {
  return emit({.op = op, .dtype = dtype, .operands = {a, b, c}, .immediate = 0});
}

Emitter::Id Emitter::constant(DType dtype, double value) {
  const std::int64_t bits = is_floating(dtype) ? std::bit_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
  return emit({.op = KernelOp::Constant, .dtype = dtype, .operands = {-1, -1, -1}, .immediate = bits});
}

Emitter::Id Emitter::cast(Id a, DType dtype) { return type_of(a) == dtype ? a : op(KernelOp::Cast, dtype, a); }

Emitter::Id Emitter::load(const Arg& tensor) {
  const Geometry& from = tensor.geometry;
  const Value& whole = graph_.values[static_cast<std::size_t>(tensor.value)];
  // Views as another element type are beyond kernels.
  if (rank_of(from.dtype) < 0 || whole.geometry.dtype != from.dtype) {
    throw NotLowered{};
  }
  LoweredPlace place{tensor.value, from.dtype, from.offset, std::vector<std::int64_t>(lowered_.sizes.size(), 0)};
  if (from.sizes.size() > lowered_.sizes.size()) {
    throw NotLowered{};
  }
  const std::size_t missing = lowered_.sizes.size() - from.sizes.size();
  for (std::size_t d = 0; d < from.sizes.size(); ++d) {
    if (from.sizes[d] == lowered_.sizes[missing + d]) {
      place.strides[missing + d] = from.sizes[d] == 1 ? 0 : from.strides[d];
    } else if (from.sizes[d] != 1) {
      throw NotLowered{};
    }
  }
  std::size_t index = 0;
  for (; index < lowered_.reads.size(); ++index) {
    const LoweredPlace& other = lowered_.reads[index];
    if (other.value == place.value && other.offset == place.offset && other.strides == place.strides) {
      break;
    }
  }
  if (index == lowered_.reads.size()) {
    lowered_.reads.push_back(std::move(place));
  }
  return emit(
      {.op = KernelOp::Load, .dtype = from.dtype, .operands = {-1, -1, -1}, .immediate = static_cast<std::int64_t>(index)});
}

Emitter::Id Emitter::value(std::size_t i, DType dtype) {
  const Arg& a = arg(i);
  if (a.tag == Tag::Tensor) {
    return rounded(load(a), dtype);
  }
  return rounded(operand(i, math_type(dtype)), dtype);
}

Emitter::Id Emitter::operand(std::size_t i, DType dtype) {
  const Arg& a = arg(i);
  if (a.tag == Tag::Tensor) {
    return value(i, dtype);
  }
  if (a.tag != Tag::Number || a.number.kind == NumberKind::Complex || rank_of(dtype) < 0) {
    throw NotLowered{};
  }
  const bool real = a.number.kind == NumberKind::Double;
  if (is_constant(a)) {
    const DType m = math_type(dtype);
    const double given = real ? a.real : static_cast<double>(a.integer);
    if (!real && is_integral(m)) {
      return emit({.op = KernelOp::Constant, .dtype = m, .operands = {-1, -1, -1}, .immediate = a.integer});
    }
    return constant(m, m == DType::Float32 ? static_cast<double>(static_cast<float>(given))
                       : m == DType::Bool  ? given != 0.0
                                           : given);
  }
  const auto same = std::find_if(lowered_.numbers.begin(), lowered_.numbers.end(),
                                 [&](const Arg& other) { return other.parameter == a.parameter; });
  const auto index = same - lowered_.numbers.begin();
  if (same == lowered_.numbers.end()) {
    lowered_.numbers.push_back(a);
  }
  const Id id = emit({.op = KernelOp::Number,
                      .dtype = real ? DType::Float64 : DType::Int64,
                      .operands = {-1, -1, -1},
                      .immediate = static_cast<std::int64_t>(index)});
  return cast(id, math_type(dtype));
}

void Emitter::find_result() {
  const Arg* written = nullptr;
  for_each_tensor(node_.args, [&](const Arg& a) {
    if (a.writes) {
      if (written != nullptr) {
        throw NotLowered{};
      }
      written = &a;
    }
  });
  LoweredWrite write;
  if (written != nullptr) {
    if (node_.fresh != 0 || node_.results.size() != 1) {
      throw NotLowered{};
    }
    result_ = written->geometry;
    write.old = written->value;
    if (graph_.values[static_cast<std::size_t>(written->value)].geometry.dtype != result_.dtype) {
      throw NotLowered{};
    }
  } else {
    if (node_.fresh != 1 || node_.results.size() != 1 || node_.results[0] == no_value) {
      throw NotLowered{};
    }
    result_ = graph_.values[static_cast<std::size_t>(node_.results[0])].geometry;
  }
  if (rank_of(result_.dtype) < 0) {
    throw NotLowered{};
  }
  write.place = {node_.results[0], result_.dtype, result_.offset, result_.strides};
  lowered_.sizes = result_.sizes;
  lowered_.reduced.assign(result_.sizes.size(), 0);
  for (std::size_t d = 0; d < result_.sizes.size(); ++d) {
    // Nothing to compute, or several elements in one place: left to the library.
    if (result_.sizes[d] == 0 || (result_.sizes[d] != 1 && result_.strides[d] == 0)) {
      throw NotLowered{};
    }
    if (result_.sizes[d] == 1) {
      write.place.strides[d] = 0;
    }
  }
  lowered_.writes.push_back(std::move(write));
}

void Emitter::over(std::size_t tensor, std::size_t dims, std::size_t keepdim) {
  const Arg& from = arg(tensor);
  const Arg& list = arg(dims);
  if (from.tag != Tag::Tensor || (list.tag != Tag::None && list.tag != Tag::IntList && list.tag != Tag::Int)) {
    throw NotLowered{};
  }
  const auto rank = static_cast<std::int64_t>(from.geometry.sizes.size());
  std::vector<std::int64_t> chosen = list.list;
  if (list.tag == Tag::Int) {
    chosen = {list.integer};
  }
  std::vector<std::uint8_t> reduced(from.geometry.sizes.size(), chosen.empty() ? 1 : 0);
  for (std::int64_t d : chosen) {
    d = d < 0 ? d + std::max<std::int64_t>(rank, 1) : d;
    if (rank != 0) {
      reduced.at(static_cast<std::size_t>(d)) = 1;
    }
  }
  const bool keeps = flag(keepdim);
  const std::vector<std::int64_t> kept = std::move(lowered_.writes[0].place.strides);
  std::vector<std::int64_t> strides(reduced.size(), 0);
  std::size_t at = 0;
  for (std::size_t d = 0; d < reduced.size(); ++d) {
    if (from.geometry.sizes[d] == 0) {
      throw NotLowered{};
    }
    if (reduced[d] != 0) {
      reduced_count_ *= from.geometry.sizes[d];
      at += keeps ? 1 : 0;
      continue;
    }
    if (at >= kept.size()) {
      throw NotLowered{};
    }
    strides[d] = from.geometry.sizes[d] == 1 ? 0 : kept[at];
    ++at;
  }
  if (at != kept.size()) {
    throw NotLowered{};
  }
  lowered_.writes[0].place.strides = std::move(strides);
  lowered_.sizes = from.geometry.sizes;
  lowered_.reduced = std::move(reduced);
  lowered_.reduces = true;
}

void Emitter::result(Id a) { lowered_.writes[0].instruction = cast(a, result_.dtype); }

Lowered Emitter::run(PointwiseRow row) {
  find_result();
  row(*this);
  LoweredWrite& write = lowered_.writes[0];
  SPOOL_ASSERT(write.instruction >= 0, node_.op->name, " has a row that gives no result.");
  for (const LoweredPlace& read : lowered_.reads) {
    // What one point writes, another one would read.
    if (read.value == write.old && (read.offset != write.place.offset || read.strides != write.place.strides)) {
      throw NotLowered{};
    }
  }
  tidy();
  return std::move(lowered_);
}

/// Drops dimensions of size 1, orders the others by stride and merges neighbours.
void Emitter::tidy() {
  if (lowered_.reduces && reduced_count_ == 1) {
    throw NotLowered{};  // only moves elements
  }
  const std::vector<std::int64_t>& leading = lowered_.reduces ? lowered_.reads.at(0).strides : lowered_.writes[0].place.strides;
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < lowered_.sizes.size(); ++d) {
    if (lowered_.sizes[d] != 1) {
      order.push_back(d);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return leading[a] > leading[b]; });
  std::vector<std::vector<std::int64_t>*> all;
  for (LoweredPlace& read : lowered_.reads) {
    all.push_back(&read.strides);
  }
  for (LoweredWrite& write : lowered_.writes) {
    all.push_back(&write.place.strides);
  }
  // One group of dimensions after the other; a group grows while all strides and the kind agree.
  std::vector<std::vector<std::size_t>> merged;
  for (const std::size_t d : order) {
    const auto joins = [&](std::size_t outer) {
      return lowered_.reduced[outer] == lowered_.reduced[d] && std::all_of(all.begin(), all.end(), [&](const auto* strides) {
               return (*strides)[outer] == (*strides)[d] * lowered_.sizes[d];
             });
    };
    if (!merged.empty() && joins(merged.back().back())) {
      merged.back().push_back(d);
    } else {
      merged.push_back({d});
    }
  }
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> reduced;
  for (const auto& group : merged) {
    sizes.push_back(std::accumulate(group.begin(), group.end(), std::int64_t{1},
                                    [&](std::int64_t product, std::size_t d) { return product * lowered_.sizes[d]; }));
    reduced.push_back(lowered_.reduced[group.back()]);
  }
  for (auto* strides : all) {
    std::vector<std::int64_t> kept;
    for (const auto& group : merged) {
      kept.push_back((*strides)[group.back()]);
    }
    *strides = std::move(kept);
  }
  lowered_.sizes = std::move(sizes);
  lowered_.reduced = std::move(reduced);
}

std::optional<Lowered> lower(const Graph& graph, const Node& node) {
  std::string_view name = node.op->name;
  if (node.kernel != nullptr || node.op->effect || !name.starts_with("aten::")) {
    return std::nullopt;
  }
  name.remove_prefix(6);
  name = name.substr(0, name.find('.'));
  PointwiseRow row = pointwise_row(name);
  if (row == nullptr && name.ends_with('_')) {
    name.remove_suffix(1);
    row = pointwise_row(name);
  }
  if (row == nullptr) {
    return std::nullopt;
  }
  try {
    return Emitter(graph, node, name).run(row);
  } catch (const NotLowered&) {
    return std::nullopt;
  }
}

}  // namespace spool
