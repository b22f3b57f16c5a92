#include "src/torch/encode.h"

#include <c10/util/Exception.h>

#include <bit>
#include <cstring>

#include <ATen/ops/_local_scalar_dense_native.h>

#include "src/torch/generator.h"
#include "src/torch/lazy.h"
#include "src/torch/scalars.h"

namespace spool::torch_side {
namespace {

class Encoder {
 public:
  Encoder(const OpInfo& info, Call& call) : info_(info), call_(call) {}

  void argument(std::size_t index, const c10::IValue& value, bool writes) {
    writes_ = writes;
    number_ = info_.is_number[index] != 0;
    encode(value);
  }

 private:
  void word(std::int64_t value) { call_.words.push_back(value); }

  void encode(const c10::IValue& value) {
    if (value.isTensor()) {
      tensor(*value.unsafeToTensorImpl());
    } else if (value.isNone()) {
      word(head(Tag::None));
    } else if (value.isInt()) {
      integer(value.toInt());
    } else if (value.isBool()) {
      if (number_) {
        number({.kind = NumberKind::Bool, .dtype = DType::Bool}, {.integer = static_cast<std::int64_t>(value.toBool())});
      } else {
        word(head(Tag::Bool, static_cast<std::uint32_t>(value.toBool())));
      }
    } else if (value.isDouble()) {
      if (number_) {
        number({.kind = NumberKind::Double, .dtype = DType::Float64}, {.real = value.toDouble()});
      } else {
        word(head(Tag::Double));
        word(std::bit_cast<std::int64_t>(value.toDouble()));
      }
    } else if (value.isIntList()) {
      const auto list = value.toIntList();
      word(head(Tag::IntList, static_cast<std::uint32_t>(list.size())));
      for (const std::int64_t element : list) {
        word(element);
      }
    } else if (value.isList()) {
      this->list(value);
    } else if (value.isSymInt()) {
      integer(value.toSymInt().guard_int(__FILE__, __LINE__));
    } else if (value.isComplexDouble()) {
      const auto number_value = value.toComplexDouble();
      number({.kind = NumberKind::Complex, .dtype = DType::Complex128},
             {.real = number_value.real(), .imag = number_value.imag()});
    } else if (value.isDevice()) {
      word(head(Tag::Device));
    } else if (value.isString()) {
      string(value.toStringRef());
    } else if (value.isGenerator()) {
      word(head(Tag::Generator));
      const at::Generator drawn = cpu_generator(value.toGenerator());
      call_.generators.push_back(std::make_shared<at::Generator>(drawn.clone()));
    } else {
      TORCH_CHECK_NOT_IMPLEMENTED(false, "[", info_.op.name, "] can't be recorded: an argument is of type ", value.tagKind());
    }
  }

  void integer(std::int64_t value) {
    if (number_) {
      number({.kind = NumberKind::Int, .dtype = DType::Int64}, {.integer = value});
    } else {
      word(head(Tag::Int));
      word(value);
    }
  }

  void number(NumberType type, Number value) {
    word(head(Tag::Number, type.encode()));
    call_.numbers.push_back(value);
  }

  void list(const c10::IValue& value) {
    const auto elements = value.toListRef();
    const auto length = static_cast<std::uint32_t>(elements.size());
    if (value.isTensorList() || value.isOptionalTensorList()) {
      word(head(Tag::TensorList, length));
      for (const c10::IValue& element : elements) {
        encode(element);
      }
    } else if (number_) {
      word(head(Tag::NumberList, length));
      for (const c10::IValue& element : elements) {
        encode(element);
      }
    } else if (value.isBoolList()) {
      word(head(Tag::BoolList, length));
      for (const c10::IValue& element : elements) {
        word(static_cast<std::int64_t>(element.toBool()));
      }
    } else if (value.isDoubleList()) {
      word(head(Tag::DoubleList, length));
      for (const c10::IValue& element : elements) {
        word(std::bit_cast<std::int64_t>(element.toDouble()));
      }
    } else {
      word(head(Tag::IntList, length));
      for (const c10::IValue& element : elements) {
        word(element.isSymInt() ? element.toSymInt().guard_int(__FILE__, __LINE__) : element.toInt());
      }
    }
  }

  void string(const std::string& text) {
    word(head(Tag::String, static_cast<std::uint32_t>(text.size())));
    for (std::size_t at = 0; at < text.size(); at += 8) {
      std::int64_t packed = 0;
      std::memcpy(&packed, text.data() + at, std::min<std::size_t>(8, text.size() - at));
      word(packed);
    }
  }

  void tensor(const at::TensorImpl& tensor) {
    if (&tensor == c10::UndefinedTensorImpl::singleton()) {
      word(head(Tag::None));
      return;
    }
    if (!is_lazy(tensor)) {
      host_number(tensor);
      return;
    }
    call_.conjugated = call_.conjugated || tensor.is_conj() || tensor.is_neg();
    const auto sizes = tensor.sizes();
    const auto strides = tensor.strides();
    word(head(Tag::Tensor, static_cast<std::uint32_t>(static_cast<std::uint8_t>(tensor.dtype().toScalarType())) |
                               static_cast<std::uint32_t>(tensor.itemsize()) << 8U |
                               static_cast<std::uint32_t>(sizes.size()) << 16U));
    word(tensor.storage_offset());
    call_.words.insert(call_.words.end(), sizes.begin(), sizes.end());
    call_.words.insert(call_.words.end(), strides.begin(), strides.end());
    call_.slots.push_back(&slot_of(tensor));
    call_.writes.push_back(static_cast<std::uint8_t>(writes_));
  }

  /// A 0-dim CPU tensor that is only read is a number: its value now is what eager would see.
  void host_number(const at::TensorImpl& tensor) {
    if (writes_ || tensor.dim() != 0 || !tensor.device().is_cpu() || tensor.layout() != at::kStrided) {
      throw_device_error(at::Tensor(c10::intrusive_ptr<at::TensorImpl>::reclaim_copy(const_cast<at::TensorImpl*>(&tensor))));
    }
    number(number_type_of(tensor), number_of(tensor));
  }

  const OpInfo& info_;
  Call& call_;
  bool writes_ = false;
  bool number_ = false;
};

}  // namespace

NumberType number_type_of(const at::TensorImpl& tensor) {
  const at::ScalarType dtype = tensor.dtype().toScalarType();
  NumberType type{
      .kind = NumberKind::Double, .tensor = true, .wrapped = tensor.is_wrapped_number(), .dtype = static_cast<DType>(dtype)};
  if (c10::isComplexType(dtype)) {
    type.kind = NumberKind::Complex;
  } else if (dtype == at::kBool) {
    type.kind = NumberKind::Bool;
  } else if (c10::isIntegralType(dtype, /*includeBool=*/false)) {
    type.kind = NumberKind::Int;
  }
  return type;
}

Number number_of(const at::TensorImpl& tensor) {
  Number value;
  switch (tensor.dtype().toScalarType()) {
    case at::kDouble: value.real = *static_cast<const double*>(tensor.data()); break;
    case at::kFloat: value.real = *static_cast<const float*>(tensor.data()); break;
    case at::kLong: value.integer = *static_cast<const std::int64_t*>(tensor.data()); break;
    default: {
      const at::Tensor held(c10::intrusive_ptr<at::TensorImpl>::reclaim_copy(const_cast<at::TensorImpl*>(&tensor)));
      const at::Scalar scalar = at::native::_local_scalar_dense_cpu(held);
      if (scalar.isComplex()) {
        value.real = scalar.toComplexDouble().real();
        value.imag = scalar.toComplexDouble().imag();
      } else if (scalar.isBoolean()) {
        value.integer = static_cast<std::int64_t>(scalar.toBool());
      } else if (scalar.isIntegral(false)) {
        value.integer = scalar.toLong();
      } else {
        value.real = scalar.toDouble();
      }
    }
  }
  return value;
}

void throw_device_error(const at::Tensor& other) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", lazy_device(), " and ",
              other.device(), "!");
}

void encode(const OpInfo& info, const torch::jit::Stack& stack, Call& call) {
  call.clear();
  call.op = &info.op;
  const std::size_t count = info.is_number.size();
  const std::size_t first = stack.size() - count;
  Encoder encoder(info, call);
  const auto& hidden = info.traits.hidden_writes;
  const bool hides = !hidden.empty() && stack[first + info.traits.writes_if].toBool();
  for (std::size_t i = 0; i < count; ++i) {
    const bool writes = info.op.mutates[i] != 0 || (hides && std::find(hidden.begin(), hidden.end(), i) != hidden.end());
    encoder.argument(i, stack[first + i], writes);
  }
}

}  // namespace spool::torch_side
