// infer() for structured ops and for the rules of all families but layers; infer_layers_test.cpp has those.
#include "src/torch/rules.h"
#include "tests/unit/infer_cases.h"

namespace spool::torch_side {
namespace {

// --- structured meta functions ---

TEST(StructuredMeta, PointwiseFollowsBroadcastingAndStrides) {
  for (const auto& left : {tensor({4, 3}), transposed({4, 3}), strided({4, 3}), tensor({4, 1}), tensor({3}), tensor({0, 3})}) {
    check("add.Tensor", {left, tensor({1, 3}), 2}, InferredBy::StructuredMeta);
    check("mul.Tensor", {left, tensor({}, at::kDouble)}, InferredBy::StructuredMeta);
    check("eq.Tensor", {left, transposed({1, 3})}, InferredBy::StructuredMeta);
    check("gelu", {left, "tanh"}, InferredBy::StructuredMeta);
  }
  check("add.Tensor", {tensor({2}, at::kInt), tensor({2}, at::kBFloat16)});
  check("div.Tensor", {tensor({2}, at::kInt), tensor({2}, at::kInt)});
}

TEST(StructuredMeta, InPlaceReturnsItsArgument) {
  check("add_.Tensor", {tensor({4, 3}), tensor({3})}, InferredBy::StructuredMeta);
  check("mul_.Tensor", {transposed({4, 3}), tensor({1, 3})}, InferredBy::StructuredMeta);
  check("add_.Tensor", {tensor({3}), tensor({4, 3})});
  check("div_.Tensor", {tensor({3}, at::kInt), tensor({3})});
  const auto base = tensor({6});
  check("add_.Tensor", {base.slice(0, 0, 4), base.slice(0, 2, 6)});
  check("add_.Tensor", {tensor({1}).expand({4}), tensor({4})});
}

TEST(StructuredMeta, OutIsResized) {
  check("add.out", {tensor({4, 3}), tensor({3}), 1, tensor({0})}, InferredBy::StructuredMeta);
  check("add.out", {transposed({4, 3}), tensor({3}), 1, tensor({4, 3})}, InferredBy::StructuredMeta);
  check("add.out", {tensor({4, 3}), tensor({3}), 1, tensor({4, 3}, at::kInt)});
  check("mm.out", {tensor({4, 3}), tensor({3, 2}), tensor({0})});
  check("arange.start_out", {0, 10, 3, tensor({0}, at::kLong)}, InferredBy::StructuredMeta);
  check("arange.start_out", {0, -1, 1, tensor({0}, at::kLong)});
  check("linspace.out", {0.0, 1.0, 7, tensor({0})});
  check("eye.m_out", {3, 5, tensor({0})});
}

TEST(StructuredMeta, MatricesReductionsAndShapes) {
  check("mm", {tensor({4, 3}), transposed({3, 2})});
  check("mm", {tensor({4, 3}), tensor({4, 2})});
  check("addmm", {tensor({2}), tensor({4, 3}), tensor({3, 2})});
  check("bmm", {tensor({5, 4, 3}), transposed({5, 3, 2})});
  check("baddbmm", {tensor({4, 2}), tensor({5, 4, 3}), tensor({5, 3, 2})});
  check("sum.dim_IntList", {channels_last({2, 3, 4, 5}), Sizes{2, 3}, true});
  check("mean.dim", {transposed({4, 3}), Sizes{0}});
  check("mean.dim", {tensor({4, 3}, at::kLong), Sizes{0}});
  check("amax", {tensor({4, 3}), Sizes{1}, true});
  check("argmax", {tensor({4, 3}), 1, false});
  check("cat", {list({tensor({2, 3}), tensor({4, 3})}), 0});
  check("cat", {list({channels_last({2, 3, 4, 4}), channels_last({2, 5, 4, 4})}), 1});
  check("cat", {list({tensor({2, 3}), tensor({4, 2})}), 0});
  check("_softmax", {tensor({4, 3}), -1, false});
  check("_log_softmax", {transposed({4, 3}), 1, false});
  check("max_pool2d_with_indices", {channels_last({2, 3, 8, 8}), Sizes{3, 3}, Sizes{2, 2}, Sizes{1, 1}, Sizes{1, 1}, false});
  check("gather", {tensor({4, 3}), 1, indices({4, 2})});
  check("sort.stable", {tensor({4, 3}), true, 1, true});
  check("topk", {tensor({4, 3}), 2});
  check("tril", {transposed({4, 4})});
  check("upsample_nearest2d", {channels_last({2, 3, 4, 4}), Sizes{8, 8}});
  check("linalg_vector_norm", {tensor({4, 3}), 2, Sizes{1}, true});
}

TEST(StructuredMeta, NamesOutOverloads) {
  EXPECT_STREQ(structured_out_overload("aten::add.Tensor"), "aten::add.out");
  EXPECT_STREQ(structured_out_overload("aten::mm"), "aten::mm.out");
  EXPECT_STREQ(structured_out_overload("aten::mul_.Tensor"), "aten::mul.out");
  EXPECT_STREQ(structured_out_overload("aten::sum.dim_IntList"), "aten::sum.IntList_out");
  EXPECT_EQ(structured_out_overload("aten::nonzero"), nullptr);
}

TEST(Rules, Indexing) {
  const auto self = transposed({4, 3});
  check("index.Tensor", {self, optional_list({indices({5})})}, InferredBy::Rule);
  check("index.Tensor", {tensor({4, 3, 2}), optional_list({indices({5, 1}), std::nullopt, indices({2})})}, InferredBy::Rule);
  check("index.Tensor", {tensor({4, 3}), optional_list({indices({5}), indices({4})})});
  check("index_put_", {tensor({4, 3}), optional_list({indices({5})}), tensor({5, 3}), true}, InferredBy::Rule);
  check("index_put_", {tensor({4, 3}), optional_list({indices({5})}), tensor({}), false}, InferredBy::Rule);
  check("index_put_", {tensor({4, 3}), optional_list({indices({5})}), tensor({5, 4}), true});
  check("index_put_", {tensor({4, 3}), optional_list({indices({5})}), tensor({5, 3}, at::kInt), true});
  check("index_select", {self, 1, indices({7})}, InferredBy::Rule);
  check("index_select", {self, 2, indices({7})});
  check("diagonal_copy", {tensor({5, 3}), 0, 0, 1}, InferredBy::Rule);
  check("diagonal_copy", {tensor({2, 5, 3}), -2, -1, 1}, InferredBy::Rule);
  check("diagonal_copy", {tensor({4, 3}), 5, 0, 1}, InferredBy::Rule);
  check("index_select", {tensor({}), 0, indices({1})}, InferredBy::Rule);
  check("embedding", {tensor({10, 4}), indices({2, 3})}, InferredBy::Rule);
  check("embedding", {tensor({10, 4}), indices({})}, InferredBy::Rule);
  check("embedding", {tensor({10}), indices({2})});
  check("embedding", {tensor({10, 4}), tensor({2, 3})});
  check("embedding_dense_backward", {tensor({2, 3, 4}), indices({2, 3}), 10, -1, false}, InferredBy::Rule);
  check("index_add", {tensor({4, 3}), 0, indices({2}), tensor({2, 3})}, InferredBy::StructuredMeta);
  check("take", {tensor({4, 3}), indices({2, 2})}, InferredBy::Rule);
  check("take.out", {tensor({4, 3}), indices({2, 2}), tensor({0})}, InferredBy::Rule);
  check("searchsorted.Tensor", {tensor({5}), tensor({2, 3})}, InferredBy::Rule);
  check("bucketize.Tensor", {tensor({2, 3}), tensor({5}), true}, InferredBy::Rule);
}

TEST(Rules, MasksDecideSizesAtRunTime) {
  torch::jit::Stack stack{at::empty({4}, at::kMeta),
                          optional_list({at::empty({4}, at::TensorOptions(at::kMeta).dtype(at::kBool))})};
  EXPECT_EQ(static_cast<int>(infer(find("index.Tensor"), stack)), static_cast<int>(InferredBy::Nothing));
  EXPECT_EQ(stack.size(), 2u);
  stack = {at::empty({4}, at::kMeta)};
  EXPECT_EQ(static_cast<int>(infer(find("nonzero"), stack)), static_cast<int>(InferredBy::Nothing));
  EXPECT_EQ(stack.size(), 1u);
  check("index_put_", {tensor({4, 3}), optional_list({tensor({4}, at::kBool)}), tensor({}), false}, InferredBy::Rule);
}

TEST(Rules, Rearranging) {
  for (const auto& self : {tensor({2, 3, 4, 5}), channels_last({2, 3, 4, 5}), transposed({2, 3, 4, 5}), strided({2, 3, 4, 5}),
                           tensor({2, 0, 4, 5}), tensor({3, 1, 2, 2}), channels_last({3, 1, 2, 2})}) {
    check("flip", {self, Sizes{1, -1}}, InferredBy::Rule);
    check("roll", {self, Sizes{1}, Sizes{2}}, InferredBy::Rule);
    check("roll", {self, Sizes{1, -2}, Sizes{0, 3}}, InferredBy::Rule);
    check("roll", {self, Sizes{3}, Sizes{}}, InferredBy::Rule);
    check("clone", {self}, InferredBy::Rule);
    check("clone", {self, at::MemoryFormat::Contiguous}, InferredBy::Rule);
    check("_to_copy", {self, at::kDouble}, InferredBy::Rule);
    check("_to_copy", {self, at::kBFloat16, none, none, none, false, at::MemoryFormat::ChannelsLast}, InferredBy::Rule);
    check("repeat", {self, Sizes{2, 1, 2, 1, 3}}, InferredBy::Rule);
    check("stack", {list({self, self}), 1}, InferredBy::Rule);
    check("constant_pad_nd", {self, Sizes{1, 2, 0, 1}, 0}, InferredBy::Rule);
    check("constant_pad_nd", {self, Sizes{-1, -1}, 0}, InferredBy::Rule);
    check("masked_fill.Scalar", {self, tensor({4, 5}, at::kBool), 1.0}, InferredBy::Rule);
  }
  check("stack", {list({transposed({3, 4}), transposed({3, 4})}), 0}, InferredBy::Rule);
  check("stack", {list({transposed({3, 4}), transposed({3, 4})}), 2}, InferredBy::Rule);
  check("stack", {list({tensor({3, 4}, at::kInt), tensor({3, 4})}), -1}, InferredBy::Rule);
  check("stack", {list({tensor({3, 4}), tensor({3})}), 0});
  check("flip", {tensor({2, 3}), Sizes{0, 0}});
  check("repeat", {tensor({2, 3}), Sizes{2}});
  check("diag_embed", {tensor({2, 3}), 1, 0, -1}, InferredBy::Rule);
  check("diag_embed", {tensor({2, 3}), 0, 1, 1});
  check("slice_backward", {tensor({2, 3}), Sizes{4, 3}, 0, 0, 2, 1}, InferredBy::Rule);
  check("select_backward", {tensor({3}), Sizes{4, 3}, 0, 1}, InferredBy::Rule);
  check("unfold_backward", {tensor({2, 3}), Sizes{6}, 0, 3, 3}, InferredBy::Rule);
}

TEST(Rules, Writing) {
  check("copy_", {tensor({4, 3}), tensor({3}, at::kDouble)}, InferredBy::Rule);
  check("copy_", {tensor({3}), tensor({4, 3})});
  check("fill_.Scalar", {transposed({4, 3}), 1.5}, InferredBy::Rule);
  check("fill_.Tensor", {tensor({4, 3}), tensor({})}, InferredBy::Rule);
  check("fill_.Tensor", {tensor({4, 3}), tensor({3})});
  check("zero_", {strided({4, 3})}, InferredBy::Rule);
  check("masked_fill_.Scalar", {tensor({4, 3}), tensor({3}, at::kBool), 0.5}, InferredBy::Rule);
  check("masked_fill_.Scalar", {tensor({4, 3}), tensor({3}), 0.5});
  check("masked_fill_.Tensor", {tensor({4, 3}), tensor({3}, at::kBool), tensor({})}, InferredBy::Rule);
  check("uniform_", {tensor({4}), 0.0, 1.0}, InferredBy::Rule);
  check("uniform_", {tensor({4}), 1.0, 0.0});
  check("uniform_", {tensor({4}, at::kLong), 0.0, 1.0});
  check("normal_", {tensor({4}), 0.0, 1.0}, InferredBy::Rule);
  check("normal_", {tensor({4}), 0.0, -1.0});
  check("bernoulli_.float", {tensor({4}), 0.5}, InferredBy::Rule);
  check("bernoulli_.float", {tensor({4}), 1.5});
  check("bernoulli_.Tensor", {tensor({4}), tensor({4})}, InferredBy::Rule);
  check("exponential_", {tensor({4}), 1.0}, InferredBy::Rule);
  check("exponential_", {tensor({4}), -1.0});
  check("random_.from", {tensor({4}, at::kLong), 0, 10}, InferredBy::Rule);
  check("random_.from", {tensor({4}, at::kLong), 10, 0});
  check("random_.to", {tensor({4}, at::kByte), 1000});
  check("random_", {tensor({4}, at::kLong)}, InferredBy::Rule);
  check("geometric_", {tensor({4}), 0.5}, InferredBy::Rule);
  check("geometric_", {tensor({4}), 1.5});
  check("cauchy_", {tensor({4}), 0.0, -1.0});
  check("relu_", {transposed({4, 3})}, InferredBy::Rule);
  check("hardtanh_", {tensor({4}), -1, 1}, InferredBy::Rule);
  check("floor_divide_.Tensor", {tensor({4, 3}), tensor({3})}, InferredBy::Rule);
  check("floor_divide_.Tensor", {tensor({3}, at::kInt), tensor({3})});
  check("index_fill_.int_Scalar", {tensor({4, 3}), 1, indices({2}), 2.0}, InferredBy::Rule);
  check("masked_scatter_", {tensor({4, 3}), tensor({3}, at::kBool), tensor({4, 3})}, InferredBy::Rule);
  check("masked_scatter_", {tensor({4, 3}), tensor({3}, at::kBool), tensor({4, 3}, at::kInt)});
  check("put_", {tensor({4, 3}), indices({2}), tensor({2})}, InferredBy::Rule);
  check("addbmm_", {tensor({4, 3}), tensor({2, 4, 5}), tensor({2, 5, 3})}, InferredBy::Rule);
  check("bernoulli.p", {transposed({4, 3}), 0.5}, InferredBy::Rule);
  check("bernoulli.p", {tensor({4}), 2.0});
  check("new_empty_strided", {tensor({2}), Sizes{2, 3}, Sizes{1, 2}}, InferredBy::Rule);
  check("multinomial", {tensor({4, 3}), 2, false}, InferredBy::Rule);
  check("multinomial", {tensor({3}), 5, true}, InferredBy::Rule);
  check("multinomial", {tensor({3}), 5, false});
  check("randperm.generator_out", {10, none, tensor({0}, at::kLong)}, InferredBy::Rule);
  check("randperm.generator_out", {-1, none, tensor({0}, at::kLong)});
}

TEST(Rules, Pointwise) {
  for (const auto& self : {tensor({4, 3}), transposed({4, 3}), strided({4, 3}), tensor({0, 3}), tensor({4, 3}, at::kBFloat16),
                           tensor({}), tensor({4, 3}, at::kDouble)}) {
    check("where.self", {tensor({3}, at::kBool), self, tensor({4, 1})}, InferredBy::Rule);
    check("where.self", {tensor({4, 3}, at::kBool), self, tensor({}, at::kDouble)}, InferredBy::Rule);
    check("relu", {self}, InferredBy::Rule);
    check("hardtanh", {self, -1, 1}, InferredBy::Rule);
    check("hardtanh_backward", {self, self, -1, 1}, InferredBy::Rule);
    check("hardswish", {self}, InferredBy::Rule);
    check("hardswish_backward", {self, self}, InferredBy::Rule);
    check("isnan", {self}, InferredBy::Rule);
    check("angle", {self}, InferredBy::Rule);
    check("logit", {self}, InferredBy::Rule);
    check("floor_divide", {self, tensor({3})}, InferredBy::Rule);
    check("rsub.Tensor", {self, tensor({3}), 2}, InferredBy::Rule);
    check("log_sigmoid_forward", {self}, InferredBy::Rule);
    check("log_sigmoid_backward", {self, self, self}, InferredBy::Rule);
    check("abs.out", {self, tensor({0}, self.scalar_type())}, InferredBy::Rule);
    check("logical_not.out", {self, tensor({0}, at::kBool)}, InferredBy::Rule);
    check("logical_and.out", {self, tensor({3}, at::kInt), tensor({0}, at::kBool)}, InferredBy::Rule);
    check("_prelu_kernel", {self, tensor({}, self.scalar_type())}, InferredBy::Rule);
    check("_prelu_kernel_backward", {self, self, tensor({}, self.scalar_type())}, InferredBy::Rule);
    check("native_dropout", {self, 0.5, true}, InferredBy::Rule);
    check("native_dropout", {self, 0.5, false}, InferredBy::Rule);
    check("remainder.Scalar_Tensor", {3.5, self}, InferredBy::Rule);
  }
  check("remainder.Scalar_Tensor", {3.5, tensor({2}, at::kInt)}, InferredBy::Rule);
  check("remainder.Scalar_Tensor", {3, tensor({2}, at::kInt)}, InferredBy::Rule);
  check("abs.out", {tensor({3}, at::kComplexFloat), tensor({0})}, InferredBy::Rule);
  check("complex.out", {tensor({3}), tensor({2, 1}), tensor({0}, at::kComplexFloat)}, InferredBy::Rule);
  check("native_dropout_backward", {transposed({4, 3}), tensor({4, 3}, at::kBool), 2.0}, InferredBy::Rule);
  check("where.self", {tensor({3}), tensor({3}), tensor({3})});
  check("where.self", {tensor({3}, at::kBool), tensor({2}), tensor({3})});
  check("relu", {tensor({3}, at::kInt)}, InferredBy::Rule);
  check("relu", {tensor({3}, at::kBool)});
  check("hardtanh", {tensor({3}), 1, -1});
  check("addr", {tensor({3}), tensor({2}), tensor({3})}, InferredBy::Rule);
  check("addr", {transposed({2, 3}), tensor({2}, at::kInt), tensor({3})}, InferredBy::Rule);
  check("addr", {tensor({4}), tensor({2}), tensor({3})});
  check("glu_backward", {tensor({2, 3}), transposed({2, 6}), 1}, InferredBy::Rule);
  check("__lshift__.Scalar", {tensor({2, 3}, at::kInt), 1}, InferredBy::Rule);
}

TEST(Rules, Reductions) {
  for (const auto& self : {tensor({4, 3}), transposed({4, 3, 2}), tensor({}), tensor({4, 3}, at::kBFloat16)}) {
    for (const bool keep : {true, false}) {
      check("var.correction", {self, Sizes{0}, 1, keep}, InferredBy::Rule);
      check("std.correction", {self, none, none, keep}, InferredBy::Rule);
      check("var_mean.correction", {self, Sizes{-1}, 0, keep}, InferredBy::Rule);
      check("nansum", {self, Sizes{-1}, keep}, InferredBy::Rule);
    }
    check("prod", {self}, InferredBy::Rule);
    check("max", {self}, InferredBy::Rule);
    check("median", {self}, InferredBy::Rule);
    check("count_nonzero.dim_IntList", {self, Sizes{0}}, InferredBy::Rule);
  }
  check("var.correction", {tensor({3}, at::kLong), none, none, false});
  check("var.correction", {tensor({4, 3}), Sizes{2}, none, false});
  check("var.correction", {tensor({4, 3}), Sizes{0, 0}, none, false});
  check("std.correction_out", {tensor({4, 3}), Sizes{0}, 1, false, tensor({0})}, InferredBy::Rule);
  check("logsumexp.out", {tensor({4, 3}), Sizes{1}, true, tensor({0})}, InferredBy::Rule);
  check("median.dim_values", {transposed({4, 3}), 1, true, tensor({0}), indices({0})}, InferredBy::Rule);
  check("median.dim_values", {tensor({4, 0}), 1, true, tensor({0}), indices({0})});
  check("kthvalue.values", {tensor({4, 3}), 2, -1, false, tensor({0}), indices({0})}, InferredBy::Rule);
  check("kthvalue.values", {tensor({4, 3}), 4, -1, false, tensor({0}), indices({0})});
  check("prod", {tensor({3}, at::kBool)}, InferredBy::Rule);
  check("prod", {tensor({3}, at::kInt), at::kDouble}, InferredBy::Rule);
  check("max", {tensor({0})});
  check("trace", {tensor({3, 3}, at::kInt)}, InferredBy::Rule);
  check("trace", {tensor({3})});
  check("dot", {tensor({3}), tensor({3})}, InferredBy::Rule);
  check("dot", {tensor({3}), tensor({4})});
  check("dot", {tensor({3}), tensor({3}, at::kDouble)});
}

TEST(Rules, ModesProductsAndDistances) {
  check("mode", {transposed({4, 3}), 0, false}, InferredBy::Rule);
  check("mode", {tensor({4, 3}, at::kInt), -1, true}, InferredBy::Rule);
  check("mode", {tensor({4, 0}), 1, false});
  check("addbmm", {tensor({3}), tensor({2, 4, 5}), tensor({2, 5, 3}), 1, 1}, InferredBy::Rule);
  check("addbmm", {tensor({2, 2}), tensor({2, 4, 5}), tensor({2, 5, 3}), 1, 1});
  check("_cdist_backward", {tensor({2, 4, 3}), tensor({2, 4, 5}), tensor({2, 3, 5}), 2.0, tensor({2, 4, 3})}, InferredBy::Rule);
  check("_cdist_forward", {tensor({2, 4, 5}), tensor({3, 5}), 2.0, std::nullopt}, InferredBy::Rule);
  check("_cdist_forward", {tensor({40, 5}), tensor({30, 5}), 2.0, std::nullopt}, InferredBy::Rule);
  check("_cdist_forward", {tensor({4, 5}), tensor({3, 6}), 2.0, std::nullopt});
  check("frexp.Tensor_out", {transposed({4, 3}), tensor({0}), tensor({0}, at::kInt)}, InferredBy::Rule);
}

TEST(Rules, Losses) {
  check("multi_margin_loss", {tensor({3, 5}), indices({3}), 1, 1.0, std::nullopt, at::Reduction::None}, InferredBy::Rule);
  check("multi_margin_loss", {tensor({5}), indices({1}), 2, 1.0, std::nullopt, at::Reduction::Mean}, InferredBy::Rule);
  check("multi_margin_loss", {tensor({3, 5}), indices({2}), 1, 1.0, std::nullopt, at::Reduction::Mean});
  for (const auto& self : {tensor({4, 3}), transposed({4, 3}), strided({4, 3})}) {
    for (const int64_t reduction : {0, 1, 2}) {
      const auto gradient = reduction == 0 ? tensor({4, 3}) : tensor({});
      check("mse_loss", {self, tensor({4, 3}), reduction}, InferredBy::StructuredMeta);
      check("mse_loss_backward", {gradient, self, tensor({4, 3}), reduction}, InferredBy::Rule);
      check("smooth_l1_loss_backward.grad_input", {gradient, self, tensor({4, 3}), reduction, 1.0, tensor({4, 3})},
            InferredBy::Rule);
      check("huber_loss", {self, tensor({4, 3}), reduction, 1.0}, InferredBy::Rule);
      check("binary_cross_entropy", {self, tensor({4, 3}), none, reduction}, InferredBy::Rule);
      check("binary_cross_entropy", {self, tensor({4, 3}), tensor({3}), reduction}, InferredBy::Rule);
      check("binary_cross_entropy_backward", {gradient, self, tensor({4, 3}), none, reduction}, InferredBy::Rule);
    }
  }
  check("binary_cross_entropy", {tensor({4, 3}), tensor({4}), none, 1});
  for (const int64_t reduction : {0, 1, 2}) {
    check("nll_loss2d_forward", {channels_last({2, 3, 4, 5}), indices({2, 4, 5}), none, reduction, -100}, InferredBy::Rule);
    check("nll_loss2d_backward",
          {reduction == 0 ? tensor({2, 4, 5}) : tensor({}), tensor({2, 3, 4, 5}), indices({2, 4, 5}), tensor({3}), reduction,
           -100, tensor({})},
          InferredBy::Rule);
  }
  check("nll_loss2d_forward", {tensor({2, 3, 4, 5}), indices({2, 4, 4}), none, 1, -100});
  check("nll_loss2d_backward", {tensor({}), channels_last({2, 3, 4, 5}), indices({2, 4, 5}), none, 1, -100, tensor({})});
}

TEST(Rules, Attention) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto query = tensor({2, 5, 4, 8}, dtype).transpose(1, 2);
    const auto key = tensor({2, 7, 4, 8}, dtype).transpose(1, 2);
    check("_scaled_dot_product_flash_attention_for_cpu", {query, key, key, 0.0, false}, InferredBy::Rule);
    check("_scaled_dot_product_flash_attention_for_cpu", {query, key, key, 0.0, false, tensor({5, 7}, dtype)}, InferredBy::Rule);
    torch::jit::Stack stack{query, key, key, 0.0, false, none, none};
    const auto op = find("_scaled_dot_product_flash_attention_for_cpu");
    op.callBoxed(stack);
    check("_scaled_dot_product_flash_attention_for_cpu_backward",
          {tensor({2, 4, 5, 8}, dtype), query, key, key, stack[0], stack[1], 0.0, false}, InferredBy::Rule);
  }
  check("_scaled_dot_product_flash_attention_for_cpu",
        {tensor({2, 4, 5, 8}), tensor({2, 4, 7, 6}), tensor({2, 4, 7, 6}), 0.0, false});
}

TEST(Rules, PoolingAndPadding) {
  for (const auto& self : {tensor({2, 3, 6, 8}), channels_last({2, 3, 6, 8}), transposed({2, 3, 6, 8}), tensor({3, 6, 8})}) {
    check("_adaptive_avg_pool2d", {self, Sizes{2, 3}}, InferredBy::Rule);
    auto sizes = self.sizes().vec();
    sizes[sizes.size() - 1] = 2;
    sizes[sizes.size() - 2] = 3;
    check("_adaptive_avg_pool2d_backward", {tensor(sizes), self}, InferredBy::Rule);
    check("reflection_pad2d", {self, Sizes{1, 2, 1, 0}}, InferredBy::Rule);
    sizes[sizes.size() - 1] = 11;
    sizes[sizes.size() - 2] = 7;
    check("reflection_pad2d_backward", {tensor(sizes), self, Sizes{1, 2, 1, 0}}, InferredBy::Rule);
    check("replication_pad2d_backward", {tensor(sizes), self, Sizes{1, 2, 1, 0}}, InferredBy::Rule);
    check("pixel_unshuffle", {self, 2}, InferredBy::Rule);
  }
  check("_adaptive_avg_pool3d", {channels_last({2, 3, 4, 6, 8}), Sizes{2, 2, 2}}, InferredBy::Rule);
  check("_adaptive_avg_pool3d_backward", {tensor({2, 3, 2, 2, 2}), channels_last({2, 3, 4, 6, 8})}, InferredBy::Rule);
  check("pixel_shuffle", {channels_last({2, 8, 3, 3}), 2}, InferredBy::Rule);
  check("im2col", {channels_last({2, 3, 6, 8}), Sizes{2, 3}, Sizes{1, 1}, Sizes{1, 0}, Sizes{2, 1}}, InferredBy::Rule);
  check("im2col", {tensor({3, 6, 8}), Sizes{2, 3}, Sizes{1, 2}, Sizes{0, 0}, Sizes{1, 1}}, InferredBy::Rule);
  check("im2col", {tensor({3, 6, 8}), Sizes{9, 3}, Sizes{1, 1}, Sizes{0, 0}, Sizes{1, 1}});
  check("col2im", {tensor({2, 12, 9}), Sizes{4, 4}, Sizes{2, 2}, Sizes{1, 1}, Sizes{0, 0}, Sizes{1, 1}}, InferredBy::Rule);
  check("col2im", {tensor({2, 12, 8}), Sizes{4, 4}, Sizes{2, 2}, Sizes{1, 1}, Sizes{0, 0}, Sizes{1, 1}});
  check("pixel_shuffle", {tensor({2, 7, 3, 3}), 2});
  check("reflection_pad2d", {tensor({2, 3, 2, 2}), Sizes{3, 0, 0, 0}});
  check("_adaptive_avg_pool2d", {tensor({6, 8}), Sizes{2, 3}});
  check("constant_pad_nd", {tensor({2, 3}), Sizes{-2, -2}, 0});
  check("grid_sampler_2d", {channels_last({2, 3, 6, 8}), tensor({2, 4, 5, 2}), 0, 0, false}, InferredBy::Rule);
  check("grid_sampler_2d_backward",
        {tensor({2, 3, 4, 5}), channels_last({2, 3, 6, 8}), tensor({2, 4, 5, 2}), 0, 0, false, bools({true, true})},
        InferredBy::Rule);
}

TEST(Rules, OptimisersReturnNothing) {
  const auto one = [](int64_t n) { return list({at::ones({n}), at::ones({n, 2})}); };
  const auto steps = [] { return list({at::ones({}), at::ones({})}); };
  check("_fused_sgd_", {one(3), one(3), one(3), 0.0, 0.9, 0.1, 0.0, false, false, true}, InferredBy::Rule);
  check("_fused_adamw_", {one(3), one(3), one(3), one(3), list({}), steps(), 0.1, 0.9, 0.99, 0.0, 1e-8, false, false},
        InferredBy::Rule);
  check("_fused_adam_", {one(3), one(3), one(3), one(3), list({}), steps(), 0.1, 0.9, 0.99, 0.0, 1e-8, false, false},
        InferredBy::Rule);
}

TEST(Infer, EveryRuleBelongsToAnOperator) {
  for (const auto op : ruled_ops()) {
    const std::string name(op);
    const size_t dot = name.find('.');
    const auto schema =
        c10::Dispatcher::singleton().findSchema({name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
    EXPECT_TRUE(schema.has_value()) << name;
  }
}

TEST(Infer, AnOpThatNobodyKnowsLeavesTheStackAsItWas) {
  const auto self = at::empty({4, 4}, at::kMeta);
  torch::jit::Stack stack{self, self, 1, none};
  EXPECT_EQ(static_cast<int>(infer(find("_masked_softmax"), stack)), static_cast<int>(InferredBy::Nothing));
  ASSERT_EQ(stack.size(), 4u);
  EXPECT_TRUE(stack[0].toTensor().is_same(self));
}

TEST(Infer, ArgumentsLieOnTopOfTheStack) {
  torch::jit::Stack stack{"below", at::empty({4, 3}, at::kMeta), at::empty({3}, at::kMeta), 1};
  EXPECT_EQ(static_cast<int>(infer(find("add.Tensor"), stack)), static_cast<int>(InferredBy::StructuredMeta));
  ASSERT_EQ(stack.size(), 2u);
  EXPECT_EQ(stack[0].toStringRef(), "below");
  EXPECT_EQ(stack[1].toTensor().sizes(), c10::IntArrayRef({4, 3}));
}

TEST(Infer, ADtypeThatTheKernelLacksIsAnErrorAtOnce) {
  check("_softmax", {tensor({4, 3}, at::kLong), -1, false});
  check("mm", {tensor({4, 3}, at::kBool), tensor({3, 2}, at::kBool)});
  check("mm", {tensor({4, 3}, at::kBool), tensor({3, 2}, at::kBool)});
  check("floor_divide", {tensor({3}, at::kLong), tensor({3}, at::kLong)}, InferredBy::Rule);
  check("tril", {tensor({3, 3}, at::kBool)}, InferredBy::StructuredMeta);
}

TEST(Infer, CompositeOpsFallToTheDispatchersMetaKernel) {
  check("square", {transposed({4, 3})}, InferredBy::DispatcherMeta);
  check("kron", {tensor({2, 2}), tensor({3, 3})}, InferredBy::DispatcherMeta);
}

TEST(Infer, AnUnknownInPlaceOpKeepsItsArgumentsGeometry) {
  check("_cummax_helper", {tensor({4, 3}), tensor({4, 3}), indices({4, 3}), 1}, InferredBy::Rule);
}

}  // namespace
}  // namespace spool::torch_side
