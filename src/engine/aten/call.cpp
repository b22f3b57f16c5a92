#include "src/engine/aten/call.h"

#include <ATen/Dispatch.h>
#include <ATen/core/Generator.h>
#include <ATen/core/List.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/empty.h>
#include <c10/core/Scalar.h>
#include <c10/core/TensorImpl.h>

#include <utility>

#include "src/base/error.h"

namespace spool::aten {
namespace {

c10::ScalarType scalar_type(DType dtype) { return static_cast<c10::ScalarType>(dtype); }

/// The type inside `T?`.
const c10::Type& unwrapped(const c10::Type& type) {
  const auto* optional = type.castRaw<c10::OptionalType>();
  return optional == nullptr ? type : *optional->getElementType();
}

c10::Scalar scalar(const NumberType& type, const Number& number) {
  switch (type.kind) {
    case NumberKind::Bool: return {number.integer != 0};
    case NumberKind::Int: return {number.integer};
    case NumberKind::Double: return {number.real};
    case NumberKind::Complex: return {c10::complex<double>(number.real, number.imag)};
  }
  fail(ErrorKind::Internal, "[spool] a number of unknown kind ", static_cast<int>(type.kind), ". Please report this.");
}

c10::Scalar scalar(const Arg& arg, std::span<const Number> numbers) {
  if (is_constant(arg)) {
    return scalar(arg.number, Number{.integer = arg.integer, .real = arg.real});
  }
  return scalar(arg.number, numbers[static_cast<std::size_t>(arg.parameter)]);
}

/// As the stack expects it for an argument of that kind.
c10::IValue boxed(const c10::Scalar& value, c10::TypeKind kind) {
  switch (kind) {
    case c10::TypeKind::FloatType: return value.toDouble();
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: return value.toLong();
    case c10::TypeKind::BoolType: return value.toBool();
    default: return value;
  }
}

void store(const at::Tensor& tensor, const c10::Scalar& value) {
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND4(at::kHalf, at::kBFloat16, at::kBool, at::kComplexHalf, tensor.scalar_type(),
                                         "spool_number", [&] { *tensor.mutable_data_ptr<scalar_t>() = value.to<scalar_t>(); });
}

template <class T>
c10::List<T> list_of(const std::vector<std::int64_t>& values) {
  c10::List<T> list;
  list.reserve(values.size());
  for (const std::int64_t value : values) {
    list.push_back(static_cast<T>(value));
  }
  return list;
}

}  // namespace

c10::Storage storage_at(void* data, std::size_t nbytes) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes, c10::DataPtr(data, at::kCPU),
                                               /*allocator=*/nullptr, /*resizable=*/false);
}

at::Tensor tensor_on(const c10::Storage& storage, const Geometry& geometry, std::size_t shift) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                               c10::scalarTypeToTypeMeta(scalar_type(geometry.dtype)));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(geometry.sizes, geometry.strides,
                                                      geometry.offset + static_cast<std::int64_t>(shift / geometry.itemsize));
  return tensor;
}

const c10::OperatorHandle& handle(const Op& op) {
  SPOOL_ASSERT(op.handle != nullptr, op.name, " has no operator.");
  return *static_cast<const c10::OperatorHandle*>(op.handle);
}

AtenCall::AtenCall(const Node& node, const Operand& operand) : op_(handle(*node.op)) {
  const auto& schema = op_.schema().arguments();
  SPOOL_ASSERT(schema.size() == node.args.size(), node.op->name, " takes ", schema.size(), " arguments, got ", node.args.size(),
               ".");
  for (std::size_t i = 0; i < schema.size(); ++i) {
    arguments_.push_back(convert(node.args[i], *schema[i].type(), i, operand));
  }
}

AtenCall::AtenCall(const Node& node, c10::OperatorHandle out, const Operand& operand, std::span<const at::Tensor> outs)
    : op_(std::move(out)) {
  const auto& functional = handle(*node.op).schema();
  std::size_t next = 0;
  for (const c10::Argument& argument : op_.schema().arguments()) {
    if (argument.is_out()) {
      SPOOL_ASSERT(next < outs.size(), op_.schema().name(), " takes more than ", outs.size(), " out arguments.");
      arguments_.emplace_back(outs[next++]);
      continue;
    }
    const auto index = functional.argumentIndexWithName(argument.name());
    SPOOL_ASSERT(index.has_value(), node.op->name, " has no argument '", argument.name(), "'.");
    arguments_.push_back(convert(node.args.at(static_cast<std::size_t>(*index)), *argument.type(), arguments_.size(), operand));
  }
  SPOOL_ASSERT(next == outs.size(), op_.schema().name(), " takes ", next, " out arguments, got ", outs.size(), ".");
}

at::Tensor AtenCall::number_tensor(const Arg& arg) {
  at::Tensor tensor = at::empty({}, at::TensorOptions(scalar_type(arg.number.dtype)));
  if (arg.number.wrapped) {
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  if (is_constant(arg)) {
    store(tensor, scalar(arg, {}));
  } else {
    patches_.push_back({.arg = arg, .tensor = tensor});
  }
  return tensor;
}

c10::IValue AtenCall::convert(const Arg& arg, const c10::Type& declared, std::size_t position, const Operand& operand) {
  const c10::Type& type = unwrapped(declared);
  switch (arg.tag) {
    case Tag::None: return declared.kind() == c10::TypeKind::TensorType ? c10::IValue(at::Tensor()) : c10::IValue();
    case Tag::Tensor: return operand(arg);
    case Tag::Number:
      if (type.kind() == c10::TypeKind::TensorType) {
        return number_tensor(arg);
      }
      if (is_constant(arg)) {
        return boxed(scalar(arg, {}), type.kind());
      }
      patches_.push_back({.position = position, .kind = type.kind(), .arg = arg, .tensor = {}});
      return {};
    case Tag::Int: return type.kind() == c10::TypeKind::NumberType ? c10::IValue(arg.integer) : boxed(arg.integer, type.kind());
    case Tag::Bool: return arg.integer != 0;
    case Tag::Double: return arg.real;
    case Tag::IntList: return list_of<std::int64_t>(arg.list);
    case Tag::BoolList: return list_of<bool>(arg.list);
    case Tag::DoubleList: return arg.reals;
    case Tag::TensorList: return convert_list(arg, type, position, operand);
    case Tag::NumberList:
    case Tag::Generator: patches_.push_back({.position = position, .kind = type.kind(), .arg = arg, .tensor = {}}); return {};
    case Tag::String: return arg.text;
    case Tag::Device: return c10::Device(c10::DeviceType::CPU);
  }
  fail(ErrorKind::Internal, "[spool] an argument of unknown tag ", static_cast<int>(arg.tag), ". Please report this.");
}

c10::IValue AtenCall::convert_list(const Arg& arg, const c10::Type& type, std::size_t position, const Operand& operand) {
  const auto* list_type = type.castRaw<c10::ListType>();
  SPOOL_ASSERT(list_type != nullptr, op_.schema().name(), " takes ", type.str(), " as argument ", position, ", got a list.");
  const c10::Type& element_type = *list_type->getElementType();
  if (element_type.kind() == c10::TypeKind::OptionalType) {
    c10::List<std::optional<at::Tensor>> list;
    for (const Arg& element : arg.elements) {
      const c10::IValue value = convert(element, element_type, position, operand);
      list.push_back(value.isNone() ? std::nullopt : std::optional(value.toTensor()));
    }
    return list;
  }
  c10::List<at::Tensor> list;
  for (const Arg& element : arg.elements) {
    list.push_back(convert(element, element_type, position, operand).toTensor());
  }
  return list;
}

void AtenCall::patch(torch::jit::Stack& stack, std::span<const Number> numbers, std::span<const GeneratorState> generators) {
  for (const Patch& patch : patches_) {
    if (patch.tensor.defined()) {
      store(patch.tensor, scalar(patch.arg, numbers));
    } else if (patch.arg.tag == Tag::Number) {
      stack[patch.position] = boxed(scalar(patch.arg, numbers), patch.kind);
    } else if (patch.arg.tag == Tag::Generator) {
      const auto& state = generators[static_cast<std::size_t>(patch.arg.parameter)];
      stack[patch.position] = static_cast<const at::Generator*>(state.get())->clone();
    } else {
      c10::List<c10::Scalar> list;
      for (const Arg& element : patch.arg.elements) {
        list.push_back(scalar(element, numbers));
      }
      stack[patch.position] = std::move(list);
    }
  }
}

void AtenCall::run(torch::jit::Stack& stack, std::span<const Number> numbers, std::span<const GeneratorState> generators) {
  stack = arguments_;
  patch(stack, numbers, generators);
  op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
}

void AtenCall::take_fresh(torch::jit::Stack& stack, std::vector<at::Tensor>& results) const {
  const auto& returns = op_.schema().returns();
  for (std::size_t i = 0; i < returns.size(); ++i) {
    const c10::AliasInfo* alias = returns[i].alias_info();
    c10::IValue& value = stack[i];
    if (alias != nullptr && alias->isWrite()) {
      continue;
    }
    if (value.isTensor()) {
      results.push_back(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& element : value.toTensorVector()) {
        results.push_back(element);
      }
    }
  }
}

bool check_result(const Op& op, const at::Tensor& result, const Geometry& expected) {
  SPOOL_ASSERT(result.defined(), op.name, " gave an undefined result where ", expected, " was inferred.");
  SPOOL_ASSERT(result.scalar_type() == scalar_type(expected.dtype) && result.sizes() == at::IntArrayRef(expected.sizes), op.name,
               " gave ", result.toString(), result.sizes(), " where ", expected, " was inferred.");
  const at::IntArrayRef strides = result.strides();
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (expected.sizes[d] > 1 && strides[d] != expected.strides[d]) {
      return result.numel() == 0;
    }
  }
  return true;
}

void rethrow_as_error(const Op& op, const LocationPtr& location) {
  const auto raise = [&](ErrorKind kind, const std::string& message) {
    fail(kind, "[", op.name, "] ", message, " (recorded at ", describe(location), ")");
  };
  try {
    throw;
  } catch (const Error& error) {
    raise(error.kind(), error.what());
  } catch (const c10::IndexError& error) {
    raise(ErrorKind::Index, error.what_without_backtrace());
  } catch (const c10::ValueError& error) {
    raise(ErrorKind::Value, error.what_without_backtrace());
  } catch (const c10::TypeError& error) {
    raise(ErrorKind::Type, error.what_without_backtrace());
  } catch (const c10::NotImplementedError& error) {
    raise(ErrorKind::NotImplemented, error.what_without_backtrace());
  } catch (const c10::OutOfMemoryError& error) {
    raise(ErrorKind::OutOfMemory, error.what_without_backtrace());
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    // PyTorch's CPU allocator raises a plain Error; its text is all that tells.
    const bool memory = message.find("can't allocate memory") != std::string::npos;
    raise(memory ? ErrorKind::OutOfMemory : ErrorKind::Runtime, message);
  } catch (const std::bad_alloc&) {
    raise(ErrorKind::OutOfMemory, "out of memory");
  } catch (const std::exception& error) {
    raise(ErrorKind::Runtime, error.what());
  } catch (...) {
    raise(ErrorKind::Runtime, "failed with an exception of unknown type");
  }
  std::abort();  // not reached: `raise` throws
}

}  // namespace spool::aten
