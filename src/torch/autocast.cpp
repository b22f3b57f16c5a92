// Automatic mixed precision on device xla: torch.autocast("xla") casts the same ops the same way as torch.autocast("cpu") does, so that
// results equal eager's. One boxed kernel per policy serves all its ops.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cstddef>

// The two entry points of PyTorch's autocast that are needed, with its cache of cast weights. Their header includes all of ATen.
namespace at::autocast {
TORCH_API at::ScalarType get_autocast_dtype(at::DeviceType device_type);
TORCH_API Tensor cached_cast(at::ScalarType to_type, const Tensor& arg, c10::DeviceType device_type);
}  // namespace at::autocast

namespace spool::torch_side {
namespace {

constexpr auto kDeviceType = c10::DeviceType::XLA;

c10::IValue cast(const c10::IValue& argument, at::ScalarType dtype) {
  if (argument.isTensor()) {
    return at::autocast::cached_cast(dtype, argument.toTensor(), kDeviceType);
  }
  if (argument.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : argument.toTensorVector()) {
      list.push_back(at::autocast::cached_cast(dtype, tensor, kDeviceType));
    }
    return list;
  }
  return argument;
}

void call_cast(const c10::OperatorHandle& op, torch::jit::Stack& stack, at::ScalarType dtype) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastXLA);
  for (auto slot = stack.end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()); slot != stack.end(); ++slot) {
    *slot = cast(*slot, dtype);
  }
  op.callBoxed(stack);
}

void lower_precision(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  call_cast(op, *stack, at::autocast::get_autocast_dtype(kDeviceType));
}

void full_precision(const c10::OperatorHandle& op, torch::jit::Stack* stack) { call_cast(op, *stack, at::kFloat); }

// The wider of `current` and the tensor's dtype. Doubles and tensors that are not floating do not count.
at::ScalarType wider(at::ScalarType current, const at::Tensor& tensor, at::ScalarType low) {
  if (!tensor.defined() || !tensor.is_xla() || !tensor.is_floating_point() || tensor.scalar_type() == at::kDouble) {
    return current;
  }
  const auto dtype = tensor.scalar_type();
  if (current == at::kFloat || dtype == at::kFloat) {
    return at::kFloat;
  }
  TORCH_CHECK(current == low && dtype == low, "Unexpected floating ScalarType in at::autocast::prioritize");
  return low;
}

// Ops that join tensors: all are cast to the widest dtype among them.
void promote(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto low = at::autocast::get_autocast_dtype(kDeviceType);
  auto dtype = low;
  for (const auto& argument : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (argument.isTensor()) {
      dtype = wider(dtype, argument.toTensor(), low);
    } else if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorVector()) {
        dtype = wider(dtype, tensor, low);
      }
    }
  }
  call_cast(op, *stack, dtype);
}

constexpr const char* kLowerPrecision[] = {
    "_addmm_activation",
    "_convolution.deprecated",
    "_native_multi_head_attention",
    "addbmm",
    "addmm",
    "baddbmm",
    "bmm",
    "conv1d",
    "conv1d.padding",
    "conv2d",
    "conv2d.padding",
    "conv3d",
    "conv3d.padding",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
    "linalg_vecdot",
    "linear",
    "matmul",
    "mkldnn_rnn_layer",
    "mm",
    "prelu",
    "scaled_dot_product_attention",
};

constexpr const char* kPromote[] = {"cat", "index_copy", "stack"};

constexpr const char* kFullPrecision[] = {
    "_grid_sampler_2d_cpu_fallback",
    "_lu_with_info",
    "adaptive_avg_pool3d",
    "adaptive_max_pool3d",
    "avg_pool3d",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cdist",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "cosine_embedding_loss",
    "cross_entropy_loss",
    "ctc_loss.IntList",
    "ctc_loss.Tensor",
    "fake_quantize_per_tensor_affine",
    "fft_fft",
    "fft_fft2",
    "fft_fftn",
    "fft_hfft",
    "fft_ifft",
    "fft_ifft2",
    "fft_ifftn",
    "fft_ihfft",
    "fft_irfft",
    "fft_irfft2",
    "fft_irfftn",
    "fft_rfft",
    "fft_rfft2",
    "fft_rfftn",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "geqrf",
    "grid_sampler",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "hinge_embedding_loss",
    "huber_loss",
    "inverse",
    "kl_div",
    "l1_loss",
    "linalg_cholesky",
    "linalg_cholesky_ex",
    "linalg_cond",
    "linalg_cond.p_str",
    "linalg_eig",
    "linalg_eigh",
    "linalg_eigvals",
    "linalg_eigvalsh",
    "linalg_householder_product",
    "linalg_inv",
    "linalg_inv_ex",
    "linalg_lstsq",
    "linalg_matrix_rank",
    "linalg_matrix_rank.atol_rtol_float",
    "linalg_matrix_rank.atol_rtol_tensor",
    "linalg_matrix_rank.tol_tensor",
    "linalg_qr",
    "linalg_solve",
    "linalg_svd",
    "linalg_svdvals",
    "linalg_tensorinv",
    "linalg_tensorsolve",
    "lu_solve",
    "margin_ranking_loss",
    "max_pool3d",
    "max_unpool2d",
    "max_unpool3d",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_margin_loss_forward",
    "nanquantile",
    "nanquantile.scalar",
    "nll_loss",
    "nll_loss2d",
    "orgqr",
    "ormqr",
    "pinverse",
    "poisson_nll_loss",
    "polar",
    "prod",
    "prod.dim_int",
    "qr",
    "quantile",
    "quantile.scalar",
    "reflection_pad1d",
    "reflection_pad2d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "smooth_l1_loss",
    "soft_margin_loss",
    "stft",
    "stft.center",
    "svd",
    "trace",
    "triangular_solve",
    "triplet_margin_loss",
    "view_as_complex",
};

template <size_t count, class Function>
void register_all(torch::Library& library, const char* const (&ops)[count], Function make) {
  for (const char* op : ops) {
    library.impl(op, make());
  }
}

TORCH_LIBRARY_IMPL(_, AutocastXLA, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastXLA, library) {
  register_all(library, kLowerPrecision, [] { return torch::CppFunction::makeFromBoxedFunction<&lower_precision>(); });
  register_all(library, kPromote, [] { return torch::CppFunction::makeFromBoxedFunction<&promote>(); });
  register_all(library, kFullPrecision, [] { return torch::CppFunction::makeFromBoxedFunction<&full_precision>(); });
}

}  // namespace
}  // namespace spool::torch_side
