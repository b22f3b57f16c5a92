#include "src/ops/op_table.h"

#include <map>

namespace spool {
namespace {

const std::map<std::string, OpTraits, std::less<>>& table() {
  static const std::map<std::string, OpTraits, std::less<>> rows{
      // Batch norm updates its running statistics while training; only the newer overloads say so.
      {"aten::native_batch_norm", {.hidden_writes = {3, 4}, .writes_if = 5}},
      {"aten::native_batch_norm.out", {.hidden_writes = {3, 4}, .writes_if = 5}},

      {"aten::arange.start_out", {.numbers_decide_shape = true}},
      {"aten::arange.out", {.numbers_decide_shape = true}},
      {"aten::range.out", {.numbers_decide_shape = true}},
      {"aten::range.out_", {.numbers_decide_shape = true}},

      {"aten::_assert_async", {.effect = true}},
      {"aten::_assert_async.msg", {.effect = true}},

      {"aten::index.Tensor", {.takes_cpu_tensors = true}},
      {"aten::index.Tensor_out", {.takes_cpu_tensors = true}},
      {"aten::_unsafe_index.Tensor", {.takes_cpu_tensors = true}},
      {"aten::index_put_", {.takes_cpu_tensors = true}},
      {"aten::index_put", {.takes_cpu_tensors = true}},
      {"aten::_index_put_impl_", {.takes_cpu_tensors = true}},

      {"aten::_scaled_dot_product_flash_attention_for_cpu", {.draws_nothing = true}},

      {"aten::mse_loss", {.functional_only = true}},
      {"aten::smooth_l1_loss", {.functional_only = true}},

      {"aten::convolution", {.record_whole = true}},
      {"aten::convolution_backward", {.record_whole = true}},
      {"aten::_conj_physical", {.record_whole = true}},
      {"aten::conj_physical_", {.record_whole = true}},
      {"aten::mode.values", {.record_whole = true}},
  };
  return rows;
}

}  // namespace

const OpTraits& traits(std::string_view op) {
  static const OpTraits none;
  static const OpTraits linear_algebra{.functional_only = true};  // LAPACK's layouts: columns first
  const auto row = table().find(op);
  if (row != table().end()) {
    return row->second;
  }
  return op.starts_with("aten::linalg_") || op.starts_with("aten::_linalg_") ? linear_algebra : none;
}

std::vector<std::string> ops_recorded_whole() {
  std::vector<std::string> names;
  for (const auto& [name, row] : table()) {
    if (row.record_whole) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace spool
