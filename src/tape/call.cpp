#include "src/tape/call.h"

#include <bit>
#include <cstring>

#include "src/base/error.h"

namespace spool {

namespace ops {
const Op empty{.name = "spool::empty", .handle = nullptr, .mutates = {}, .has_mutation = false, .effect = false};
const Op fused{.name = "spool::fused", .handle = nullptr, .mutates = {}, .has_mutation = false, .effect = false};
}  // namespace ops

namespace {

class Decoder {
 public:
  explicit Decoder(const std::vector<std::int64_t>& words) : words_(words) {}

  bool done() const { return at_ == words_.size(); }

  Arg next() {
    const auto word = static_cast<std::uint64_t>(take());
    const auto low = static_cast<std::uint32_t>(word);
    Arg arg;
    arg.tag = static_cast<Tag>(word >> 32U);
    switch (arg.tag) {
      case Tag::None:
      case Tag::Device:
      case Tag::Generator: break;
      case Tag::Tensor: {
        arg.geometry.dtype = static_cast<DType>(low & 0xFFU);
        arg.geometry.itemsize = static_cast<std::uint8_t>(low >> 8U & 0xFFU);
        const std::uint32_t ndim = low >> 16U;
        arg.geometry.offset = take();
        arg.geometry.sizes = take(ndim);
        arg.geometry.strides = take(ndim);
        break;
      }
      case Tag::Number: arg.number = NumberType::decode(low); break;
      case Tag::Int: arg.integer = take(); break;
      case Tag::Bool: arg.integer = low; break;
      case Tag::Double: arg.real = std::bit_cast<double>(take()); break;
      case Tag::IntList:
      case Tag::BoolList: arg.list = take(low); break;
      case Tag::DoubleList:
        for (const std::int64_t bits : take(low)) {
          arg.reals.push_back(std::bit_cast<double>(bits));
        }
        break;
      case Tag::TensorList:
      case Tag::NumberList:
        for (std::uint32_t i = 0; i < low; ++i) {
          arg.elements.push_back(next());
        }
        break;
      case Tag::String: {
        const auto packed = take((low + 7U) / 8U);
        arg.text.resize(low);
        std::memcpy(arg.text.data(), packed.data(), low);
        break;
      }
    }
    return arg;
  }

 private:
  std::int64_t take() {
    SPOOL_ASSERT(at_ < words_.size(), "A call's words end early.");
    return words_[at_++];
  }
  std::vector<std::int64_t> take(std::size_t count) {
    SPOOL_ASSERT(at_ + count <= words_.size(), "A call's words end early.");
    const auto begin = words_.begin() + static_cast<std::ptrdiff_t>(at_);
    at_ += count;
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }

  const std::vector<std::int64_t>& words_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<Arg> decode(const std::vector<std::int64_t>& words) {
  Decoder decoder(words);
  std::vector<Arg> args;
  while (!decoder.done()) {
    args.push_back(decoder.next());
  }
  return args;
}

}  // namespace spool
