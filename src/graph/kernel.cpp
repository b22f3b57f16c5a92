#include "src/graph/kernel.h"

#include <array>
#include <bit>
#include <ostream>
#include <sstream>

#include "src/base/error.h"
#include "src/graph/graph.h"

namespace spool {
namespace {

struct Row {
  KernelOp op;
  const char* name;
  int arity;
};

/// One row for each op, in the enumeration's order.
constexpr std::array rows{
    Row{KernelOp::Load, "load", 0},
    Row{KernelOp::Number, "number", 0},
    Row{KernelOp::Constant, "constant", 0},
    Row{KernelOp::Index, "index", 0},
    Row{KernelOp::Cast, "cast", 1},
    Row{KernelOp::Neg, "neg", 1},
    Row{KernelOp::Abs, "abs", 1},
    Row{KernelOp::Sign, "sign", 1},
    Row{KernelOp::Not, "not", 1},
    Row{KernelOp::BitNot, "bit_not", 1},
    Row{KernelOp::Floor, "floor", 1},
    Row{KernelOp::Ceil, "ceil", 1},
    Row{KernelOp::Round, "round", 1},
    Row{KernelOp::Trunc, "trunc", 1},
    Row{KernelOp::Sqrt, "sqrt", 1},
    Row{KernelOp::Rsqrt, "rsqrt", 1},
    Row{KernelOp::Reciprocal, "reciprocal", 1},
    Row{KernelOp::Exp, "exp", 1},
    Row{KernelOp::Exp2, "exp2", 1},
    Row{KernelOp::Expm1, "expm1", 1},
    Row{KernelOp::Log, "log", 1},
    Row{KernelOp::Log2, "log2", 1},
    Row{KernelOp::Log10, "log10", 1},
    Row{KernelOp::Log1p, "log1p", 1},
    Row{KernelOp::Sin, "sin", 1},
    Row{KernelOp::Cos, "cos", 1},
    Row{KernelOp::Tan, "tan", 1},
    Row{KernelOp::Asin, "asin", 1},
    Row{KernelOp::Acos, "acos", 1},
    Row{KernelOp::Atan, "atan", 1},
    Row{KernelOp::Sinh, "sinh", 1},
    Row{KernelOp::Cosh, "cosh", 1},
    Row{KernelOp::Tanh, "tanh", 1},
    Row{KernelOp::Asinh, "asinh", 1},
    Row{KernelOp::Acosh, "acosh", 1},
    Row{KernelOp::Atanh, "atanh", 1},
    Row{KernelOp::Erf, "erf", 1},
    Row{KernelOp::Erfc, "erfc", 1},
    Row{KernelOp::Lgamma, "lgamma", 1},
    Row{KernelOp::IsNan, "is_nan", 1},
    Row{KernelOp::Add, "add", 2},
    Row{KernelOp::Sub, "sub", 2},
    Row{KernelOp::Mul, "mul", 2},
    Row{KernelOp::Div, "div", 2},
    Row{KernelOp::FloorDiv, "floor_div", 2},
    Row{KernelOp::Fmod, "fmod", 2},
    Row{KernelOp::Remainder, "remainder", 2},
    Row{KernelOp::Pow, "pow", 2},
    Row{KernelOp::Atan2, "atan2", 2},
    Row{KernelOp::Hypot, "hypot", 2},
    Row{KernelOp::CopySign, "copysign", 2},
    Row{KernelOp::Maximum, "maximum", 2},
    Row{KernelOp::Minimum, "minimum", 2},
    Row{KernelOp::Fmax, "fmax", 2},
    Row{KernelOp::Fmin, "fmin", 2},
    Row{KernelOp::And, "and", 2},
    Row{KernelOp::Or, "or", 2},
    Row{KernelOp::Xor, "xor", 2},
    Row{KernelOp::Shl, "shl", 2},
    Row{KernelOp::Shr, "shr", 2},
    Row{KernelOp::Eq, "eq", 2},
    Row{KernelOp::Ne, "ne", 2},
    Row{KernelOp::Lt, "lt", 2},
    Row{KernelOp::Le, "le", 2},
    Row{KernelOp::Gt, "gt", 2},
    Row{KernelOp::Ge, "ge", 2},
    Row{KernelOp::Fma, "fma", 3},
    Row{KernelOp::Where, "where", 3},
    Row{KernelOp::ReduceSum, "reduce_sum", 1},
    Row{KernelOp::ReduceProduct, "reduce_product", 1},
    Row{KernelOp::ReduceMaximum, "reduce_maximum", 1},
    Row{KernelOp::ReduceMinimum, "reduce_minimum", 1},
    Row{KernelOp::Store, "store", 1},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (static_cast<std::size_t>(rows[i].op) != i) {
      return false;
    }
  }
  return rows.size() == static_cast<std::size_t>(KernelOp::Store) + 1;
}
static_assert(in_order(), "rows follow the enumeration");

const Row& row(KernelOp op) { return rows[static_cast<std::size_t>(op)]; }

bool is_floating(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::Float16 || dtype == DType::BFloat16;
}

const char* describe(KernelOver over) {
  switch (over) {
    case KernelOver::Rest: return "rest";
    case KernelOver::Kept: return "kept";
    case KernelOver::All: return "all";
  }
  return "?";
}

void immediate(std::ostream& out, const KernelInstruction& instruction) {
  switch (instruction.op) {
    case KernelOp::Load: out << " a" << instruction.immediate; break;
    case KernelOp::Store: out << " to a" << instruction.immediate; break;
    case KernelOp::Number: out << " n" << instruction.immediate; break;
    case KernelOp::Index: out << " d" << instruction.immediate; break;
    case KernelOp::Constant:
      if (is_floating(instruction.dtype)) {
        // The bits as well: equal texts must mean equal programs.
        out << ' ' << std::bit_cast<double>(instruction.immediate) << " (" << std::hex << instruction.immediate << std::dec
            << ')';
      } else {
        out << ' ' << instruction.immediate;
      }
      break;
    default:
      if (is_reduction(instruction.op)) {
        out << " over " << describe(static_cast<KernelOver>(instruction.immediate));
      }
  }
}

/// Checks one node.
class Checker {
 public:
  Checker(const Graph& graph, const Node& node) : graph_(graph), node_(node), kernel_(*node.kernel) {}

  void run() {
    check(kernel_.rank >= 0 && kernel_.kept >= 0 && kernel_.kept <= kernel_.rank, "0 <= kept <= rank, got ", kernel_.kept, " of ",
          kernel_.rank);
    check(!kernel_.segments.empty(), "at least one segment");
    for (const Arg& arg : node_.args) {
      check(arg.tag == Tag::Tensor || arg.tag == Tag::Number, "tensors and numbers as arguments");
    }
    check_body();
    stored_.assign(static_cast<std::size_t>(node_.fresh), false);
    for (std::size_t i = 0; i < kernel_.segments.size(); ++i) {
      segment_ = i;
      check_segment(kernel_.segments[i]);
    }
    for (std::size_t i = 0; i < stored_.size(); ++i) {
      check(stored_[i], "a store to fresh result ", i);
    }
  }

 private:
  template <class... Parts>
  void check(bool condition, const Parts&... parts) const {
    SPOOL_CHECK(condition, Internal, "[verify] ", node_.op->name, ", segment ", segment_, ": expected ", parts...,
                ". Please report this. The kernel:\n", text(kernel_), "in the graph:\n", graph_);
  }

  void check_body() const {
    const auto& body = kernel_.body;
    for (std::size_t i = 0; i < body.size(); ++i) {
      const KernelInstruction& instruction = body[i];
      const auto inside = [&](std::int64_t end) { return instruction.immediate >= 0 && instruction.immediate < end; };
      for (int k = 0; k < arity(instruction.op); ++k) {
        const std::int32_t operand = instruction.operands[k];
        check(operand >= 0 && static_cast<std::size_t>(operand) < i, "v", i, " to use earlier instructions only, got v", operand);
        const KernelInstruction& used = body[static_cast<std::size_t>(operand)];
        const DType has =
            is_comparison(used.op) || used.op == KernelOp::IsNan || used.op == KernelOp::Not ? DType::Bool : used.dtype;
        const DType wants = instruction.op == KernelOp::Where && k == 0 ? DType::Bool : instruction.dtype;
        const bool any = instruction.op == KernelOp::Cast || instruction.op == KernelOp::Not;
        check(used.op != KernelOp::Store && (any || has == wants), "v", i, " to use ", name(wants), ", got v", operand, " of ",
              name(has));
      }
      switch (instruction.op) {
        case KernelOp::Load:
        case KernelOp::Store: {
          check(inside(static_cast<std::int64_t>(kernel_.accesses.size())), "v", i, " to name an access, got ",
                instruction.immediate);
          const KernelAccess& access = kernel_.accesses[static_cast<std::size_t>(instruction.immediate)];
          check(access.dtype == instruction.dtype && access.store == (instruction.op == KernelOp::Store), "v", i,
                " to fit its access");
          break;
        }
        case KernelOp::Number: check(inside(kernel_.numbers), "v", i, " to name a number, got ", instruction.immediate); break;
        case KernelOp::Index: check(inside(kernel_.rank), "v", i, " to name a dimension, got ", instruction.immediate); break;
        default: check(!is_reduction(instruction.op) || inside(3), "v", i, " to reduce over rest, kept or all");
      }
    }
  }

  void check_segment(const KernelSegment& segment) {
    const auto rank = static_cast<std::size_t>(kernel_.rank);
    check(segment.sizes.size() == rank, rank, " sizes");
    check(segment.places.size() == kernel_.accesses.size(), kernel_.accesses.size(), " places");
    check(segment.numbers.size() == static_cast<std::size_t>(kernel_.numbers), kernel_.numbers, " numbers");
    for (const std::int32_t number : segment.numbers) {
      check(is_argument(number, Tag::Number), "numbers to be arguments, got ", number);
    }
    for (std::size_t i = 0; i < rank; ++i) {
      check(segment.sizes[i] >= 0, "sizes of at least 0");
    }
    for (std::size_t i = 0; i < segment.places.size(); ++i) {
      check_place(segment, segment.places[i], kernel_.accesses[i], i);
    }
  }

  bool is_argument(std::int32_t index, Tag tag) const {
    return index >= 0 && static_cast<std::size_t>(index) < node_.args.size() &&
           node_.args[static_cast<std::size_t>(index)].tag == tag;
  }

  void check_place(const KernelSegment& segment, const KernelPlace& place, const KernelAccess& access, std::size_t index) {
    ValueId value = no_value;
    if (place.operand >= 0) {
      check(is_argument(place.operand, Tag::Tensor), "access ", index, " to touch a tensor argument");
      const Arg& arg = node_.args[static_cast<std::size_t>(place.operand)];
      check(!access.store || arg.writes, "access ", index, " to store to an argument that the node writes");
      check(arg.geometry.dtype == access.dtype, "access ", index, " to have its argument's dtype");
      value = arg.value;
    } else {
      check(access.store && place.result >= 0 && place.result < node_.fresh, "access ", index, " to store to a fresh result");
      value = node_.results[static_cast<std::size_t>(place.result)];
      check(value != no_value && graph_.values[static_cast<std::size_t>(value)].geometry.dtype == access.dtype, "access ", index,
            " to have its result's dtype");
      stored_[static_cast<std::size_t>(place.result)] = true;
    }
    check(place.strides.size() == segment.sizes.size(), "access ", index, " to have one stride for each dimension");
    const Value& touched = graph_.values[static_cast<std::size_t>(value)];
    std::int64_t last = place.offset;
    for (std::size_t d = 0; d < segment.sizes.size(); ++d) {
      check(place.strides[d] >= 0, "access ", index, " to have strides of at least 0");
      if (segment.sizes[d] == 0) {
        return;
      }
      last += (segment.sizes[d] - 1) * place.strides[d];
    }
    check(place.offset >= 0 && static_cast<std::size_t>(last + 1) * touched.geometry.itemsize <= touched.nbytes, "access ", index,
          " to stay inside the ", touched.nbytes, " bytes of %", value);
  }

  const Graph& graph_;
  const Node& node_;
  const Kernel& kernel_;
  std::size_t segment_ = 0;
  std::vector<bool> stored_;
};

}  // namespace

const char* name(KernelOp op) { return row(op).name; }
int arity(KernelOp op) { return row(op).arity; }
bool is_comparison(KernelOp op) { return op >= KernelOp::Eq && op <= KernelOp::Ge; }
bool is_reduction(KernelOp op) { return op >= KernelOp::ReduceSum && op <= KernelOp::ReduceMinimum; }

std::string text(const Kernel& kernel) {
  std::ostringstream out;
  out << "kernel rank " << kernel.rank << ", " << kernel.kept << " kept:";
  const char* separator = " ";
  for (std::size_t i = 0; i < kernel.accesses.size(); ++i) {
    out << separator << name(kernel.accesses[i].dtype) << " a" << i << (kernel.accesses[i].store ? " (store)" : " (load)");
    separator = ", ";
  }
  out << '\n';
  for (std::size_t i = 0; i < kernel.body.size(); ++i) {
    const KernelInstruction& instruction = kernel.body[i];
    out << "  ";
    if (instruction.op != KernelOp::Store) {
      out << 'v' << i << " = ";
    }
    out << name(instruction.op) << ' ' << name(instruction.dtype);
    for (int k = 0; k < arity(instruction.op); ++k) {
      out << (k == 0 ? " v" : ", v") << instruction.operands[k];
    }
    immediate(out, instruction);
    out << '\n';
  }
  return out.str();
}

void verify_kernel(const Graph& graph, const Node& node) { Checker(graph, node).run(); }

}  // namespace spool
