// Optimiser steps over lists of tensors: they write to their arguments and return nothing.
#include "src/torch/rules.h"

namespace spool::torch_side {
namespace {

// The first `lists` arguments are lists of tensors, each empty or as long as the first.
template <size_t lists>
std::optional<Results> update(const Arguments& arguments) {
  const auto parameters = arguments.tensors(0);
  for (size_t i = 1; i < lists; ++i) {
    const auto list = arguments.tensors(i);
    expect(list.empty() || list.size() == parameters.size());
  }
  const auto gradients = arguments.tensors(1);
  expect(gradients.size() == parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    expect(parameters[i].sizes() == gradients[i].sizes() && parameters[i].scalar_type() == gradients[i].scalar_type());
  }
  return Results{};
}

// _amp_foreach_non_finite_check_and_unscale_(scaled_grads, found_inf, inv_scale)
std::optional<Results> unscale(const Arguments& arguments) {
  expect(arguments.tensor(1).numel() == 1 && arguments.tensor(2).numel() == 1);
  expect(arguments.tensor(1).scalar_type() == at::kFloat && arguments.tensor(2).scalar_type() == at::kFloat);
  return Results{};
}

}  // namespace

void add_optimiser_rules(RuleTable& table) {
  // self, grads, momentum_buffer_list
  table["aten::_fused_sgd_"] = update<3>;
  table["aten::_fused_sgd_.tensor_lr"] = update<3>;
  // self, grads, state_sums (state_steps have their own length check in the op)
  table["aten::_fused_adagrad_"] = update<3>;
  table["aten::_fused_adagrad_.tensor_lr"] = update<3>;
  // self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps
  for (const char* name :
       {"aten::_fused_adam_", "aten::_fused_adam_.tensor_lr", "aten::_fused_adamw_", "aten::_fused_adamw_.tensor_lr"}) {
    table[name] = update<6>;
  }
  table["aten::_amp_foreach_non_finite_check_and_unscale_"] = unscale;
}

}  // namespace spool::torch_side
