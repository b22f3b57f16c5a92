// Call: one op as it is being recorded, in three parts that are compared separately.
//
//  words    everything structural, in argument order: tags, operand geometries, ints, lists, dtypes. Equal words mean equal
//           inference and equal code.
//  slots    the storages of its tensor operands, in the same order.
//  numbers, generators   values that only flow into results: parameters of the plan, never part of a key.
//
// A word is a 64-bit integer; an argument starts with a head word made by `head(tag, low)`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/tape/geometry.h"
#include "src/tape/op.h"

namespace spool {

class Slot;

enum class Tag : std::uint8_t {
  None,        ///< an optional argument that is not given, an undefined tensor
  Tensor,      ///< low: dtype | itemsize << 8 | ndim << 16; then offset, sizes, strides
  Number,      ///< low: NumberType; the value is the call's next number
  Int,         ///< then the value
  Bool,        ///< low: the value
  Double,      ///< then the value's bits; only where a number decides a shape
  IntList,     ///< low: length; then the values
  BoolList,    ///< low: length; then the values
  DoubleList,  ///< low: length; then the values' bits
  TensorList,  ///< low: length; then that many Tensor or None arguments
  NumberList,  ///< low: length; then that many Number arguments (Scalar[])
  String,      ///< low: length in bytes; then the bytes, eight a word
  Device,      ///< the device itself: no content
  Generator,   ///< the call's next generator
};

enum class NumberKind : std::uint8_t { Bool, Int, Double, Complex };

/// A number as parameter. `type` is structural (it decides dtypes); `value` is not.
struct Number {
  std::int64_t integer = 0;  ///< Bool, Int
  double real = 0;           ///< Double, Complex
  double imag = 0;           ///< Complex
};

/// What kind of number stands in the words: its kind; whether it came as 0-dim CPU tensor, of which dtype, and whether that
/// was a wrapped Python number (which takes no part in type promotion).
struct NumberType {
  NumberKind kind = NumberKind::Double;
  bool tensor = false;
  bool wrapped = false;
  DType dtype = DType::Float64;

  bool operator==(const NumberType&) const = default;
  std::uint32_t encode() const {
    return static_cast<std::uint32_t>(kind) | static_cast<std::uint32_t>(tensor) << 8U |
           static_cast<std::uint32_t>(wrapped) << 9U | static_cast<std::uint32_t>(static_cast<std::uint8_t>(dtype)) << 16U;
  }
  static NumberType decode(std::uint32_t low) {
    return {static_cast<NumberKind>(low & 0xFFU), (low >> 8U & 1U) != 0, (low >> 9U & 1U) != 0,
            static_cast<DType>(low >> 16U & 0xFFU)};
  }
};

constexpr std::int64_t head(Tag tag, std::uint32_t low = 0) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(tag) << 32U | low);
}

/// An opaque random generator whose state is that at the time of recording.
using GeneratorState = std::shared_ptr<void>;

struct Call {
  const Op* op = nullptr;
  std::vector<std::int64_t> words;
  std::vector<Slot*> slots;
  std::vector<std::uint8_t> writes;  ///< per slot: whether the op writes through this operand
  std::vector<Number> numbers;
  std::vector<GeneratorState> generators;
  bool conjugated = false;           ///< an operand is a view that stands for the conjugate or negative of its storage

  void clear() {
    op = nullptr;
    conjugated = false;
    words.clear();
    slots.clear();
    writes.clear();
    numbers.clear();
    generators.clear();
  }
};

/// One decoded argument of a call or of a graph's node.
struct Arg {
  Tag tag = Tag::None;
  Geometry geometry;               ///< Tensor
  std::int32_t value = -1;         ///< Tensor, in a graph: the value it reads (and, if `writes`, replaces)
  bool writes = false;             ///< Tensor
  NumberType number;               ///< Number
  std::int32_t parameter = -1;     ///< Number, Generator: its place among the plan's numbers, generators (see `is_constant`)
  std::int64_t integer = 0;        ///< Int, Bool; a constant Number of kind Bool or Int
  double real = 0;                 ///< Double; a constant Number of kind Double
  std::vector<std::int64_t> list;  ///< IntList, BoolList
  std::vector<double> reals;       ///< DoubleList
  std::vector<Arg> elements;       ///< TensorList, NumberList
  std::string text;                ///< String
};

/// Whether a Number in a graph is a constant that a pass has put there, not a parameter: its value is `integer` or `real`, as its kind
/// says. There are no complex constants.
inline bool is_constant(const Arg& arg) { return arg.tag == Tag::Number && arg.parameter < 0; }

/// Decodes words into arguments; `value`, `writes` and `parameter` are left for the caller.
std::vector<Arg> decode(const std::vector<std::int64_t>& words);

/// Calls `visit` for every Tensor argument in order, also those in lists.
template <class Args, class Visit>
void for_each_tensor(Args& args, Visit&& visit) {
  for (auto& arg : args) {
    if (arg.tag == Tag::Tensor) {
      visit(arg);
    } else if (arg.tag == Tag::TensorList) {
      for_each_tensor(arg.elements, visit);
    }
  }
}

}  // namespace spool
