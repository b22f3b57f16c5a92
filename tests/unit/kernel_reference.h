// An interpreter of kernels, point by point: the oracle for generated code.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "src/graph/kernel.h"

namespace spool::test {

inline bool floating(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::Float16 || dtype == DType::BFloat16;
}

/// A value of any dtype: integers and bool in `i`, floating point in `f`, rounded to its dtype.
struct Cell {
  std::int64_t i = 0;
  double f = 0;
};

inline double rounded(double value, DType dtype) {
  switch (dtype) {
    case DType::Float32: return static_cast<float>(value);
    case DType::Float16: return static_cast<float>(c10::Half(static_cast<float>(value)));
    case DType::BFloat16: return static_cast<float>(c10::BFloat16(static_cast<float>(value)));
    default: return value;
  }
}

inline std::int64_t wrapped(std::int64_t value, DType dtype) {
  switch (dtype) {
    case DType::Bool: return value != 0;
    case DType::UInt8: return static_cast<std::uint8_t>(value);
    case DType::Int8: return static_cast<std::int8_t>(value);
    case DType::Int16: return static_cast<std::int16_t>(value);
    case DType::Int32: return static_cast<std::int32_t>(value);
    default: return value;
  }
}

template <class T>
T read_as(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void write_as(char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

inline std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::Bool:
    case DType::UInt8:
    case DType::Int8: return 1;
    case DType::Int16:
    case DType::Float16:
    case DType::BFloat16: return 2;
    case DType::Int32:
    case DType::Float32: return 4;
    default: return 8;
  }
}

inline Cell read(const char* at, DType dtype) {
  switch (dtype) {
    case DType::Bool: return {read_as<std::uint8_t>(at) != 0, 0};
    case DType::UInt8: return {read_as<std::uint8_t>(at), 0};
    case DType::Int8: return {read_as<std::int8_t>(at), 0};
    case DType::Int16: return {read_as<std::int16_t>(at), 0};
    case DType::Int32: return {read_as<std::int32_t>(at), 0};
    case DType::Int64: return {read_as<std::int64_t>(at), 0};
    case DType::Float16: return {0, static_cast<float>(read_as<c10::Half>(at))};
    case DType::BFloat16: return {0, static_cast<float>(read_as<c10::BFloat16>(at))};
    case DType::Float32: return {0, read_as<float>(at)};
    default: return {0, read_as<double>(at)};
  }
}

inline void write(char* at, DType dtype, Cell cell) {
  switch (dtype) {
    case DType::Bool:
    case DType::UInt8: return write_as(at, static_cast<std::uint8_t>(cell.i));
    case DType::Int8: return write_as(at, static_cast<std::int8_t>(cell.i));
    case DType::Int16: return write_as(at, static_cast<std::int16_t>(cell.i));
    case DType::Int32: return write_as(at, static_cast<std::int32_t>(cell.i));
    case DType::Int64: return write_as(at, cell.i);
    case DType::Float16: return write_as(at, c10::Half(static_cast<float>(cell.f)));
    case DType::BFloat16: return write_as(at, c10::BFloat16(static_cast<float>(cell.f)));
    case DType::Float32: return write_as(at, static_cast<float>(cell.f));
    default: return write_as(at, cell.f);
  }
}

/// Runs one segment. `memory`: per access, where its value's storage begins. `numbers`: bits.
class KernelReference {
 public:
  KernelReference(const Kernel& kernel, const KernelSegment& segment, std::vector<char*> memory,
                  std::vector<std::int64_t> numbers)
      : kernel_(kernel), segment_(segment), memory_(std::move(memory)), numbers_(std::move(numbers)) {}

  void run() {
    count_ = 1;
    for (const std::int64_t size : segment_.sizes) {
      count_ *= size;
    }
    values_.assign(kernel_.body.size(), {});
    // Loads see what was there before: all instructions are evaluated at all points, then stores are done.
    for (std::size_t i = 0; i < kernel_.body.size(); ++i) {
      if (kernel_.body[i].op != KernelOp::Store) {
        evaluate(i);
      }
    }
    for (const KernelInstruction& instruction : kernel_.body) {
      if (instruction.op == KernelOp::Store) {
        for (std::int64_t point = 0; point < count_; ++point) {
          write(place(instruction.immediate, point), instruction.dtype, operand(instruction, 0, point));
        }
      }
    }
  }

 private:
  std::int64_t coordinate(std::int64_t point, std::size_t dimension) const {
    for (std::size_t d = segment_.sizes.size() - 1; d > dimension; --d) {
      point /= segment_.sizes[d];
    }
    return point % segment_.sizes[dimension];
  }
  char* place(std::int64_t access, std::int64_t point) const {
    const auto& where = segment_.places[static_cast<std::size_t>(access)];
    std::int64_t at = where.offset;
    for (std::size_t d = 0; d < segment_.sizes.size(); ++d) {
      at += coordinate(point, d) * where.strides[d];
    }
    return memory_[static_cast<std::size_t>(access)] + at * size_of(kernel_.accesses[static_cast<std::size_t>(access)].dtype);
  }
  Cell operand(const KernelInstruction& instruction, int k, std::int64_t point) const {
    return values_[static_cast<std::size_t>(instruction.operands[k])][static_cast<std::size_t>(point)];
  }
  /// The group of points that are reduced together with this one.
  std::int64_t group(KernelOver over, std::int64_t point) const {
    std::int64_t rest = 1;
    for (auto d = static_cast<std::size_t>(kernel_.kept); d < segment_.sizes.size(); ++d) {
      rest *= segment_.sizes[d];
    }
    return over == KernelOver::All ? 0 : over == KernelOver::Rest ? point / rest : point % rest;
  }

  void evaluate(std::size_t i) {
    const KernelInstruction& instruction = kernel_.body[i];
    auto& result = values_[i];
    result.resize(static_cast<std::size_t>(count_));
    if (is_reduction(instruction.op)) {
      reduce(instruction, result);
      return;
    }
    for (std::int64_t point = 0; point < count_; ++point) {
      Cell v[3];
      for (int k = 0; k < arity(instruction.op); ++k) {
        v[k] = operand(instruction, k, point);
      }
      Cell cell;
      switch (instruction.op) {
        case KernelOp::Load: cell = read(place(instruction.immediate, point), instruction.dtype); break;
        case KernelOp::Number:
        case KernelOp::Constant: {
          const std::int64_t bits = instruction.op == KernelOp::Number ? numbers_[static_cast<std::size_t>(instruction.immediate)]
                                                                       : instruction.immediate;
          if (floating(instruction.dtype)) {
            std::memcpy(&cell.f, &bits, sizeof bits);
          } else {
            cell.i = bits;
          }
          break;
        }
        case KernelOp::Index: cell.i = coordinate(point, static_cast<std::size_t>(instruction.immediate)); break;
        case KernelOp::Cast: cell = cast(v[0], type(instruction.operands[0]), instruction.dtype); break;
        case KernelOp::Not: cell.i = floating(type(instruction.operands[0])) ? v[0].f == 0 : v[0].i == 0; break;
        case KernelOp::Where: cell = v[0].i != 0 ? v[1] : v[2]; break;
        default: cell = floating(instruction.dtype) ? real(instruction, v) : integer(instruction, v);
      }
      cell.f = rounded(cell.f, type(static_cast<std::int32_t>(i)));
      cell.i = wrapped(cell.i, type(static_cast<std::int32_t>(i)));
      result[static_cast<std::size_t>(point)] = cell;
    }
  }

  DType type(std::int32_t i) const {
    const KernelInstruction& instruction = kernel_.body[static_cast<std::size_t>(i)];
    const bool truth = is_comparison(instruction.op) || instruction.op == KernelOp::IsNan || instruction.op == KernelOp::Not;
    return truth ? DType::Bool : instruction.dtype;
  }

  static Cell cast(Cell from, DType was, DType to) {
    if (to == DType::Bool) {
      return {floating(was) ? from.f != 0 : from.i != 0, 0};
    }
    if (floating(to)) {
      const double value = floating(was) ? from.f : static_cast<double>(from.i);
      return {0, to == DType::Float32 && !floating(was) ? static_cast<float>(from.i) : value};
    }
    return {floating(was) ? static_cast<std::int64_t>(from.f) : from.i, 0};
  }

  void reduce(const KernelInstruction& instruction, std::vector<Cell>& result) const {
    const auto over = static_cast<KernelOver>(instruction.immediate);
    std::vector<Cell> total(static_cast<std::size_t>(count_));
    std::vector<bool> seen(static_cast<std::size_t>(count_));
    for (std::int64_t point = 0; point < count_; ++point) {
      const auto at = static_cast<std::size_t>(group(over, point));
      const Cell term = operand(instruction, 0, point);
      Cell& sum = total[at];
      if (!seen[at]) {
        sum = term;
        seen[at] = true;
        continue;
      }
      switch (instruction.op) {
        case KernelOp::ReduceSum:
          sum.i = instruction.dtype == DType::Bool ? (sum.i | term.i) : wrapped(sum.i + term.i, instruction.dtype);
          sum.f += term.f;
          break;
        case KernelOp::ReduceProduct:
          sum.i = wrapped(sum.i * term.i, instruction.dtype);
          sum.f *= term.f;
          break;
        case KernelOp::ReduceMaximum:
          sum.i = std::max(sum.i, term.i);
          sum.f = std::isnan(sum.f) || sum.f > term.f ? sum.f : term.f;
          break;
        default: sum.i = std::min(sum.i, term.i); sum.f = std::isnan(sum.f) || sum.f < term.f ? sum.f : term.f;
      }
    }
    for (std::int64_t point = 0; point < count_; ++point) {
      Cell cell = total[static_cast<std::size_t>(group(over, point))];
      cell.f = rounded(cell.f, instruction.dtype);
      result[static_cast<std::size_t>(point)] = cell;
    }
  }

  static Cell real(const KernelInstruction& instruction, const Cell* v) {
    const double a = v[0].f;
    const double b = v[1].f;
    const auto value = [](double f) { return Cell{0, f}; };
    const auto truth = [](bool is) { return Cell{is, 0}; };
    const bool single = instruction.dtype != DType::Float64;
    switch (instruction.op) {
      case KernelOp::Neg: return value(-a);
      case KernelOp::Abs: return value(std::fabs(a));
      case KernelOp::Sign: return value(a > 0 ? 1 : a < 0 ? -1 : 0);
      case KernelOp::Floor: return value(std::floor(a));
      case KernelOp::Ceil: return value(std::ceil(a));
      case KernelOp::Round: return value(std::nearbyint(a));
      case KernelOp::Trunc: return value(std::trunc(a));
      case KernelOp::Sqrt: return value(std::sqrt(a));
      case KernelOp::Rsqrt: return value(single ? 1.0F / std::sqrt(static_cast<float>(a)) : 1 / std::sqrt(a));
      case KernelOp::Reciprocal: return value(1 / a);
      case KernelOp::Exp: return value(std::exp(a));
      case KernelOp::Exp2: return value(std::exp2(a));
      case KernelOp::Expm1: return value(std::expm1(a));
      case KernelOp::Log: return value(std::log(a));
      case KernelOp::Log2: return value(std::log2(a));
      case KernelOp::Log10: return value(std::log10(a));
      case KernelOp::Log1p: return value(std::log1p(a));
      case KernelOp::Sin: return value(std::sin(a));
      case KernelOp::Cos: return value(std::cos(a));
      case KernelOp::Tan: return value(std::tan(a));
      case KernelOp::Asin: return value(std::asin(a));
      case KernelOp::Acos: return value(std::acos(a));
      case KernelOp::Atan: return value(std::atan(a));
      case KernelOp::Sinh: return value(std::sinh(a));
      case KernelOp::Cosh: return value(std::cosh(a));
      case KernelOp::Tanh: return value(std::tanh(a));
      case KernelOp::Asinh: return value(std::asinh(a));
      case KernelOp::Acosh: return value(std::acosh(a));
      case KernelOp::Atanh: return value(std::atanh(a));
      case KernelOp::Erf: return value(std::erf(a));
      case KernelOp::Erfc: return value(std::erfc(a));
      case KernelOp::Lgamma: return value(std::lgamma(a));
      case KernelOp::IsNan: return truth(std::isnan(a));
      case KernelOp::Add: return value(a + b);
      case KernelOp::Sub: return value(a - b);
      case KernelOp::Mul: return value(a * b);
      case KernelOp::Div: return value(a / b);
      case KernelOp::FloorDiv: {
        if (b == 0) {
          return value(a / b);
        }
        const double mod = std::fmod(a, b);
        double quotient = single ? static_cast<float>(static_cast<float>(a - mod) / b) : (a - mod) / b;
        quotient -= mod != 0 && (b < 0) != (mod < 0) ? 1 : 0;
        const double down = std::floor(quotient);
        return value(quotient != 0 ? down + (quotient - down > 0.5 ? 1 : 0) : std::copysign(0, a / b));
      }
      case KernelOp::Fmod: return value(std::fmod(a, b));
      case KernelOp::Remainder: {
        const double mod = std::fmod(a, b);
        return value(mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod);
      }
      case KernelOp::Pow: return value(std::pow(a, b));
      case KernelOp::Atan2: return value(std::atan2(a, b));
      case KernelOp::Hypot: return value(std::hypot(a, b));
      case KernelOp::CopySign: return value(std::copysign(a, b));
      case KernelOp::Maximum: return value(std::isnan(a) || a > b ? a : b);
      case KernelOp::Minimum: return value(std::isnan(a) || a < b ? a : b);
      case KernelOp::Fmax: return value(std::isnan(b) || a > b ? a : b);
      case KernelOp::Fmin: return value(std::isnan(b) || a < b ? a : b);
      case KernelOp::Eq: return truth(a == b);
      case KernelOp::Ne: return truth(a != b);
      case KernelOp::Lt: return truth(a < b);
      case KernelOp::Le: return truth(a <= b);
      case KernelOp::Gt: return truth(a > b);
      case KernelOp::Ge: return truth(a >= b);
      case KernelOp::Fma:
        return value(single ? std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(v[2].f))
                            : std::fma(a, b, v[2].f));
      default: throw std::logic_error(std::string("no reference for floating ") + name(instruction.op));
    }
  }

  static Cell integer(const KernelInstruction& instruction, const Cell* v) {
    const std::int64_t a = v[0].i;
    const std::int64_t b = v[1].i;
    const auto wrap = [](std::uint64_t n) { return Cell{static_cast<std::int64_t>(n), 0}; };
    const auto ua = static_cast<std::uint64_t>(a);
    const auto ub = static_cast<std::uint64_t>(b);
    const bool boolean = instruction.dtype == DType::Bool;
    const bool sign = instruction.dtype != DType::UInt8 && !boolean;
    const std::int64_t bits = 8 * size_of(instruction.dtype);
    const std::int64_t quotient = b == 0 ? 0 : b == -1 ? static_cast<std::int64_t>(-ua) : a / b;
    const std::int64_t rest = b == 0 || b == -1 ? 0 : a % b;
    const bool down = rest != 0 && (rest < 0) != (b < 0);
    switch (instruction.op) {
      case KernelOp::Neg: return wrap(-ua);
      case KernelOp::Abs: return wrap(a < 0 ? -ua : ua);
      case KernelOp::Sign: return {(a > 0) - (a < 0), 0};
      case KernelOp::BitNot: return boolean ? Cell{a == 0, 0} : wrap(~ua);
      case KernelOp::Floor:
      case KernelOp::Ceil:
      case KernelOp::Round:
      case KernelOp::Trunc: return {a, 0};
      case KernelOp::IsNan: return {0, 0};
      case KernelOp::Add: return boolean ? wrap(ua | ub) : wrap(ua + ub);
      case KernelOp::Sub: return boolean ? wrap(ua ^ ub) : wrap(ua - ub);
      case KernelOp::Mul: return wrap(ua * ub);
      case KernelOp::Fma: return wrap(ua * ub + static_cast<std::uint64_t>(v[2].i));
      case KernelOp::Div: return {quotient, 0};
      case KernelOp::FloorDiv: return {quotient - (down ? 1 : 0), 0};
      case KernelOp::Fmod: return {rest, 0};
      case KernelOp::Remainder: return {down ? rest + b : rest, 0};
      case KernelOp::Pow: {
        if (b < 0) {
          return {a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0, 0};
        }
        std::uint64_t product = 1;
        for (std::int64_t k = 0; k < b; ++k) {
          product *= ua;
        }
        return boolean ? Cell{a != 0 || b == 0, 0} : wrap(product);
      }
      case KernelOp::Maximum:
      case KernelOp::Fmax: return {std::max(a, b), 0};
      case KernelOp::Minimum:
      case KernelOp::Fmin: return {std::min(a, b), 0};
      case KernelOp::And: return wrap(ua & ub);
      case KernelOp::Or: return wrap(ua | ub);
      case KernelOp::Xor: return wrap(ua ^ ub);
      case KernelOp::Shl: return b < 0 || b >= bits ? Cell{} : wrap(ua << ub);
      case KernelOp::Shr: return {b < 0 || b >= bits ? (sign && a < 0 ? -1 : 0) : a >> b, 0};
      case KernelOp::Eq: return {a == b, 0};
      case KernelOp::Ne: return {a != b, 0};
      case KernelOp::Lt: return {a < b, 0};
      case KernelOp::Le: return {a <= b, 0};
      case KernelOp::Gt: return {a > b, 0};
      case KernelOp::Ge: return {a >= b, 0};
      default: throw std::logic_error(std::string("no reference for integer ") + name(instruction.op));
    }
  }

  const Kernel& kernel_;
  const KernelSegment& segment_;
  std::vector<char*> memory_;
  std::vector<std::int64_t> numbers_;
  std::int64_t count_ = 1;
  std::vector<std::vector<Cell>> values_;
};

}  // namespace spool::test
