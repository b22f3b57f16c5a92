// infer() for convolutions and normalisation, whose results have the layout that eager's kernels choose.
#include "tests/unit/infer_cases.h"

namespace spool::torch_side {
namespace {

// --- rules ---

// convolution(…) and convolution_backward(…) of the same geometry
void check_convolution(const at::Tensor& input, const at::Tensor& weight, bool with_bias, const Sizes& stride,
                       const Sizes& padding, const Sizes& dilation, bool is_transposed = false, int64_t groups = 1) {
  const int64_t channels = is_transposed ? weight.size(1) * groups : weight.size(0);
  const Sizes extra(static_cast<size_t>(input.dim() - 2), 0);
  const auto bias = with_bias ? IValue(tensor({channels}, input.scalar_type())) : none;
  torch::jit::Stack stack{input, weight, bias, stride, padding, dilation, is_transposed, extra, groups};
  check("convolution", {stack.begin(), stack.end()}, InferredBy::Rule);
  const at::NoGradGuard no_grad;
  const auto op = find("convolution");
  try {
    op.callBoxed(stack);
  } catch (const c10::Error&) {
    return;  // compared above
  }
  const auto sizes = with_bias ? IValue(Sizes{channels}) : none;
  check("convolution_backward",
        {stack[0], input, weight, sizes, stride, padding, dilation, is_transposed, extra, groups, bools({true, true, with_bias})},
        InferredBy::Rule);
  check("convolution_backward",
        {stack[0].toTensor().contiguous(), input, weight, sizes, stride, padding, dilation, is_transposed, extra, groups,
         bools({false, true, false})},
        InferredBy::Rule);
}

TEST(Rules, ConvolutionHasTheLayoutOfEager) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const auto& input : {tensor({2, 4, 9, 8}, dtype), channels_last({2, 4, 9, 8}, dtype), transposed({2, 4, 9, 8}, dtype),
                              tensor({1, 4, 9, 8}, dtype)}) {
      for (const auto& weight : {tensor({6, 4, 3, 3}, dtype), channels_last({6, 4, 3, 3}, dtype), tensor({6, 4, 1, 1}, dtype)}) {
        check_convolution(input, weight, true, {1, 1}, {1, 1}, {1, 1});
        check_convolution(input, weight, false, {2, 1}, {0, 1}, {1, 2});
      }
      check_convolution(input, tensor({8, 2, 3, 3}, dtype), true, {1, 1}, {0, 0}, {1, 1}, false, 2);
      check_convolution(input, tensor({4, 6, 3, 3}, dtype), true, {2, 2}, {1, 1}, {1, 1}, true);
    }
  }
}

TEST(Rules, ConvolutionOfReducedPrecision) {
  for (const auto& input : {tensor({2, 4, 9, 8}, at::kBFloat16), channels_last({2, 4, 9, 8}, at::kBFloat16)}) {
    check_convolution(input, tensor({6, 4, 3, 3}, at::kBFloat16), true, {1, 1}, {1, 1}, {1, 1});
  }
}

TEST(Rules, ConvolutionOfAmbiguousStrides) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const auto batch : {1, 2, 16}) {
      for (const auto& input : {tensor({batch, 1, 5, 5}, dtype), channels_last({batch, 1, 5, 5}, dtype)}) {
        check_convolution(input, tensor({6, 1, 3, 3}, dtype), true, {1, 1}, {1, 1}, {1, 1});
        check_convolution(input, channels_last({1, 1, 1, 1}, dtype), true, {1, 1}, {0, 0}, {1, 1});
      }
      for (const auto& input : {tensor({batch, 4, 1, 1}, dtype), channels_last({batch, 4, 1, 1}, dtype)}) {
        check_convolution(input, tensor({6, 4, 1, 1}, dtype), false, {1, 1}, {0, 0}, {1, 1});
        check_convolution(input, channels_last({6, 4, 3, 3}, dtype), true, {1, 1}, {1, 1}, {1, 1});
        check_convolution(input, tensor({4, 1, 3, 3}, dtype), true, {1, 1}, {1, 1}, {1, 1}, false, 4);
      }
      check_convolution(channels_last({batch, 4, 7, 7}, dtype), channels_last({4, 6, 3, 3}, dtype), true, {1, 1}, {1, 1}, {2, 2},
                        true);
      check_convolution(tensor({batch, 4, 7, 7}, dtype), channels_last({6, 4, 3, 3}, dtype), true, {1, 1}, {1, 1}, {2, 2});
    }
  }
}

TEST(Rules, ConvolutionInOneAndThreeDimensions) {
  check_convolution(tensor({2, 4, 9}), tensor({6, 4, 3}), true, {1}, {1}, {1});
  check_convolution(transposed({2, 4, 9}), tensor({6, 4, 1}), false, {2}, {0}, {1});
  check_convolution(tensor({2, 4, 9}), tensor({4, 6, 3}), true, {2}, {1}, {1}, true);
  check_convolution(tensor({2, 4, 9, 8, 7}), tensor({6, 4, 3, 3, 3}), true, {1, 1, 1}, {1, 1, 1}, {1, 1, 1});
  check_convolution(channels_last({2, 4, 9, 8, 7}), tensor({6, 4, 3, 3, 3}), true, {1, 2, 1}, {1, 1, 1}, {1, 1, 1});
  check_convolution(channels_last({2, 4, 9, 8, 7}, at::kDouble), tensor({6, 4, 3, 3, 3}, at::kDouble), true, {1, 2, 1}, {1, 1, 1},
                    {1, 1, 1});
}

TEST(Rules, ConvolutionOfNothingAndBadArguments) {
  check_convolution(tensor({0, 4, 9, 8}), tensor({6, 4, 3, 3}), true, {1, 1}, {1, 1}, {1, 1});
  check_convolution(tensor({2, 5, 9, 8}), tensor({6, 4, 3, 3}), true, {1, 1}, {1, 1}, {1, 1});
  check_convolution(tensor({2, 4, 2, 2}), tensor({6, 4, 3, 3}), true, {1, 1}, {0, 0}, {1, 1});
  check_convolution(tensor({2, 4, 9, 8}), tensor({6, 4, 3, 3}, at::kDouble), true, {1, 1}, {1, 1}, {1, 1});
  check_convolution(tensor({2, 4, 9, 8}), tensor({6, 4, 3, 3}), true, {0, 1}, {1, 1}, {1, 1});
}

TEST(Rules, BatchNorm) {
  for (const auto& input :
       {tensor({4, 3, 5, 5}), channels_last({4, 3, 5, 5}), tensor({4, 3}), transposed({4, 3, 5, 6}), strided({4, 3, 5}),
        tensor({4, 3, 5, 5}, at::kBFloat16), channels_last({4, 3, 2, 2, 2}), tensor({1, 3, 1, 1})}) {
    const auto vector = tensor({3});
    for (const bool training : {true, false}) {
      check("native_batch_norm", {input, vector, vector, tensor({3}), tensor({3}), training, 0.1, 1e-5}, InferredBy::Rule);
      check("native_batch_norm", {input, none, none, tensor({3}), tensor({3}), training, 0.1, 1e-5}, InferredBy::Rule);
      check("_native_batch_norm_legit", {input, vector, vector, tensor({3}), tensor({3}), training, 0.1, 1e-5}, InferredBy::Rule);
      for (const bool wanted : {true, false}) {
        check("native_batch_norm_backward",
              {input, input, vector, tensor({3}), tensor({3}), tensor({3}), tensor({3}), training, 1e-5,
               bools({true, wanted, wanted})},
              InferredBy::Rule);
      }
    }
    check("_native_batch_norm_legit.no_stats", {input, vector, vector, true, 0.1, 1e-5}, InferredBy::Rule);
    check("_batch_norm_with_update", {input, vector, vector, tensor({3}), tensor({3}), 0.1, 1e-5}, InferredBy::Rule);
  }
  check("native_batch_norm", {tensor({4, 3}), tensor({5}), none, none, none, true, 0.1, 1e-5});
  check("native_batch_norm.out",
        {tensor({4, 3, 5}), none, none, none, none, true, 0.1, 1e-5, tensor({0}), tensor({0}), tensor({0})}, InferredBy::Rule);
}

TEST(Rules, LayerAndGroupNorm) {
  for (const auto& input : {tensor({2, 5, 6}), transposed({2, 5, 6}), tensor({0, 5, 6}), tensor({2, 5, 6}, at::kBFloat16),
                            tensor({6}), tensor({2, 5, 6}, at::kDouble)}) {
    for (const auto& weight : {IValue(tensor({6}, input.scalar_type())), IValue(tensor({6})), none}) {
      check("native_layer_norm", {input, Sizes{6}, weight, weight, 1e-5}, InferredBy::Rule);
    }
    auto statistics = input.sizes().vec();
    statistics.back() = 1;
    const auto weight = tensor({6}, input.scalar_type());
    for (const bool wanted : {true, false}) {
      check("native_layer_norm_backward",
            {input.contiguous(), input, Sizes{6}, tensor(statistics, input.scalar_type()),
             tensor(statistics, input.scalar_type()), weight, weight, bools({wanted, true, true})},
            InferredBy::Rule);
    }
  }
  check("native_layer_norm", {tensor({2, 5, 6}), Sizes{5}, none, none, 1e-5});
  for (const auto& input :
       {tensor({2, 6, 4, 4}), channels_last({2, 6, 4, 4}), tensor({2, 6, 16}), tensor({2, 6, 4, 4}, at::kBFloat16)}) {
    const auto pixels = input.numel() / 12;
    check("native_group_norm", {input, tensor({6}, input.scalar_type()), tensor({6}, input.scalar_type()), 2, 6, pixels, 3, 1e-5},
          InferredBy::Rule);
    const auto statistics = tensor({2, 3}, input.scalar_type());
    check("native_group_norm_backward",
          {input, input, statistics, statistics, tensor({6}, input.scalar_type()), 2, 6, pixels, 3, bools({true, true, true})},
          InferredBy::Rule);
  }
}

}  // namespace
}  // namespace spool::torch_side
