// Convolution and its gradients.
#include "src/torch/rules.h"

#include <ATen/native/ConvUtils.h>
#include <c10/core/CPUAllocator.h>

namespace spool::torch_side {
namespace {

// A CPU tensor with no memory behind it. PyTorch's choice of a convolution kernel, which decides the results' layout, asks for tensors but
// looks at their geometry only.
at::Tensor cpu_geometry(const at::Tensor& tensor) {
  auto result = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)), nullptr, false),
      c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  return result;
}

// One-dimensional convolutions run as two-dimensional ones with a dimension of size 1 put in front of the last.
at::Tensor with_height(const at::Tensor& tensor, bool contiguous_first) {
  auto sizes = tensor.sizes().vec();
  auto strides = contiguous_first ? make_meta(sizes, tensor.scalar_type()).strides().vec() : tensor.strides().vec();
  sizes.insert(sizes.begin() + 2, 1);
  strides.insert(strides.begin() + 2, sizes[3] * strides[2]);
  return make_meta_strided(sizes, strides, tensor.scalar_type());
}

at::Tensor without_height(const at::Tensor& tensor) {
  auto sizes = tensor.sizes().vec();
  auto strides = tensor.strides().vec();
  sizes.erase(sizes.begin() + 2);
  strides.erase(strides.begin() + 2);
  return make_meta_strided(sizes, strides, tensor.scalar_type());
}

struct Convolution {
  at::Tensor input;
  at::Tensor weight;
  std::vector<int64_t> stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;
  bool one_dimensional;
};

void check_list(std::vector<int64_t>& list, int64_t spatial, int64_t least) {
  if (list.size() == 1) {
    list.assign(static_cast<size_t>(spatial), list[0]);
  }
  expect(static_cast<int64_t>(list.size()) == spatial);
  for (const int64_t value : list) {
    expect(value >= least);
  }
}

// Reads and checks input, weight and, from argument `first` on, stride, padding, dilation, transposed, output_padding, groups.
Convolution read(const Arguments& arguments, const at::Tensor& input, const at::Tensor& weight, size_t first) {
  Convolution conv{input,
                   weight,
                   arguments.integers(first),
                   arguments.integers(first + 1),
                   arguments.integers(first + 2),
                   arguments.integers(first + 4),
                   arguments.boolean(first + 3),
                   arguments.integer(first + 5),
                   input.dim() == 3};
  const int64_t rank = input.dim();
  expect(rank >= 3 && rank <= 5 && weight.dim() == rank && input.scalar_type() == weight.scalar_type());
  check_list(conv.stride, rank - 2, 1);
  check_list(conv.padding, rank - 2, 0);
  check_list(conv.dilation, rank - 2, 1);
  check_list(conv.output_padding, rank - 2, 0);
  expect(conv.groups > 0 && weight.size(0) > 0 && weight.size(0) >= conv.groups && weight.size(0) % conv.groups == 0);
  for (int64_t d = 2; d < rank; ++d) {
    expect(weight.size(d) > 0);
  }
  if (conv.transposed) {
    expect(input.size(1) == weight.size(0));
  } else {
    expect(input.size(1) == weight.size(1) * conv.groups);
    for (int64_t d = 2; d < rank; ++d) {
      expect(input.size(d) + 2 * conv.padding[d - 2] >= conv.dilation[d - 2] * (weight.size(d) - 1) + 1);
    }
  }
  if (conv.one_dimensional) {
    conv.input = with_height(input, /*contiguous_first=*/true);
    conv.weight = with_height(weight, /*contiguous_first=*/false);
    conv.stride.insert(conv.stride.begin(), 1);
    conv.padding.insert(conv.padding.begin(), 0);
    conv.dilation.insert(conv.dilation.begin(), 1);
    conv.output_padding.insert(conv.output_padding.begin(), 0);
  }
  return conv;
}

std::vector<int64_t> output_sizes(const Convolution& conv) {
  auto sizes = conv.transposed ? at::native::conv_input_size(conv.input.sizes(), conv.weight.sizes(), conv.padding,
                                                             conv.output_padding, conv.stride, conv.dilation, conv.groups)
                               : at::native::conv_output_size(conv.input.sizes(), conv.weight.sizes(), conv.padding, conv.stride,
                                                              conv.dilation);
  for (const int64_t size : sizes) {
    expect(size >= 0);
  }
  return sizes;
}

struct Choice {
  at::native::ConvBackend backend;
  at::MemoryFormat format;
};

// The kernel that eager takes on the CPU, and the layout of its results.
Choice choose(const Convolution& conv, const at::Tensor& bias, at::OptionalSymIntArrayRef bias_sizes) {
  const auto input = cpu_geometry(conv.input);
  const auto weight = cpu_geometry(conv.weight);
  const auto backend = at::native::select_conv_backend(
      input, weight, bias.defined() ? std::optional(cpu_geometry(bias)) : std::nullopt, c10::fromIntArrayRefSlow(conv.stride),
      c10::fromIntArrayRefSlow(conv.padding), c10::fromIntArrayRefSlow(conv.dilation), conv.transposed,
      c10::fromIntArrayRefSlow(conv.output_padding), conv.groups, bias_sizes);
  if (backend == at::native::ConvBackend::Empty) {
    return {backend, at::MemoryFormat::Contiguous};
  }
  return {backend, at::native::_determine_backend_memory_format(input, weight, backend)};
}

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
std::optional<Results> convolution(const Arguments& arguments) {
  const auto conv = read(arguments, arguments.tensor(0), arguments.tensor(1), 3);
  const auto bias = arguments.optional_tensor(2);
  const auto sizes = output_sizes(conv);
  if (bias.defined()) {
    expect(bias.dim() == 1 && bias.size(0) == sizes[1] && bias.scalar_type() == conv.input.scalar_type());
  }
  auto output = make_meta(sizes, conv.input.scalar_type(), choose(conv, bias, std::nullopt).format);
  return Results{conv.one_dimensional ? without_height(output) : output};
}

Results gradients(const Convolution& conv, int64_t channels, at::OptionalSymIntArrayRef bias_sizes,
                  const std::vector<bool>& wanted) {
  const auto [backend, format] = choose(conv, at::Tensor(), bias_sizes);
  const auto dtype = conv.input.scalar_type();
  Results results{nothing(), nothing(), nothing()};
  if (wanted[0]) {
    const auto gradient = make_meta(conv.input.sizes(), dtype, format);
    results[0] = conv.one_dimensional ? without_height(gradient) : gradient;
  }
  if (wanted[1]) {
    // PyTorch's own two-dimensional kernel makes it like the weight it has put in order, which keeps a 1x1 kernel's ambiguous strides.
    const bool like_weight = backend == at::native::ConvBackend::Slow2d && conv.weight.is_contiguous(format);
    const auto gradient = like_weight ? make_meta_like(conv.weight) : make_meta(conv.weight.sizes(), dtype, format);
    results[1] = conv.one_dimensional ? without_height(gradient) : gradient;
  }
  if (wanted[2]) {
    results[2] = make_meta({channels}, dtype);
  }
  return results;
}

std::vector<bool> mask(const Arguments& arguments, size_t i) {
  const auto list = arguments[i].toBoolList();
  return {list.get(0), list.get(1), list.get(2)};
}

void check_gradient(const Convolution& conv, const at::Tensor& gradient) {
  auto sizes = output_sizes(conv);
  if (conv.one_dimensional) {
    sizes.erase(sizes.begin() + 2);
  }
  expect(gradient.sizes() == c10::IntArrayRef(sizes) && gradient.scalar_type() == conv.input.scalar_type());
}

// convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask)
std::optional<Results> convolution_backward(const Arguments& arguments) {
  const auto conv = read(arguments, arguments.tensor(1), arguments.tensor(2), 4);
  check_gradient(conv, arguments.tensor(0));
  const auto bias_sizes = arguments.is_none(3) ? std::vector<int64_t>() : arguments.integers(3);
  const auto symbolic = c10::fromIntArrayRefSlow(bias_sizes);
  const auto given = arguments.is_none(3) ? at::OptionalSymIntArrayRef() : at::OptionalSymIntArrayRef(symbolic);
  return gradients(conv, arguments.tensor(0).size(1), given, mask(arguments, 10));
}

// convolution_backward_overrideable(grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups, output_mask)
std::optional<Results> convolution_backward_overrideable(const Arguments& arguments) {
  const auto conv = read(arguments, arguments.tensor(1), arguments.tensor(2), 3);
  check_gradient(conv, arguments.tensor(0));
  return gradients(conv, arguments.tensor(0).size(1), std::nullopt, mask(arguments, 9));
}

}  // namespace

void add_convolution_rules(RuleTable& table) {
  table["aten::convolution"] = convolution;
  table["aten::convolution_overrideable"] = convolution;
  table["aten::convolution_backward"] = convolution_backward;
  table["aten::convolution_backward_overrideable"] = convolution_backward_overrideable;
}

}  // namespace spool::torch_side
