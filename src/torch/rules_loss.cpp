// Losses and their gradients, as far as they have no meta function of their own.
#include "src/torch/rules.h"

#include <ATen/TensorIterator.h>
#include <ATen/core/Reduction.h>

namespace spool::torch_side {
namespace {

bool same_floating(const at::Tensor& left, const at::Tensor& right) {
  return at::isFloatingType(left.scalar_type()) && left.scalar_type() == right.scalar_type();
}

Results reduced(const at::Tensor& each, int64_t reduction) {
  return {reduction == at::Reduction::None ? each : make_meta({}, each.scalar_type())};
}

// mse_loss_backward(grad_output, self, target, reduction)
std::optional<Results> squared_error_gradient(const Arguments& arguments) {
  const auto& self = arguments.tensor(1);
  expect(same_floating(self, arguments.tensor(2)) && same_floating(self, arguments.tensor(0)));
  expect(broadcast_shape({arguments.tensor(0), self, arguments.tensor(2)}) == self.sizes().vec());
  return Results{make_meta(self.sizes(), self.scalar_type())};
}

// *_loss_backward.grad_input(grad_output, self, target, reduction, …, grad_input)
std::optional<Results> gradient_out(const Arguments& arguments) {
  const auto& out = arguments.tensor(arguments.size() - 1);
  const auto& self = arguments.tensor(1);
  expect(same_floating(self, arguments.tensor(2)) && same_floating(self, arguments.tensor(0)) && same_floating(self, out));
  broadcast_shape({arguments.tensor(0), self, arguments.tensor(2)});
  at::TensorIteratorConfig()
      .add_owned_output(out)
      .add_owned_const_input(self)
      .add_owned_const_input(arguments.tensor(2))
      .add_owned_const_input(arguments.tensor(0))
      .build();
  return Results{out};
}

// huber_loss(self, target, reduction, delta)
std::optional<Results> huber(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  expect(same_floating(self, arguments.tensor(1)) && self.sizes() == arguments.tensor(1).sizes() && arguments.real(3) > 0);
  return reduced(make_meta_like(self), arguments.integer(2));
}

void check_cross_entropy(const at::Tensor& self, const at::Tensor& target, const at::Tensor& weight) {
  expect(same_floating(self, target) && self.sizes() == target.sizes());
  if (weight.defined()) {
    expect(same_floating(self, weight) && broadcast_shape({self, weight}) == self.sizes().vec());
  }
}

// binary_cross_entropy(self, target, weight, reduction)
std::optional<Results> binary_cross_entropy(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  check_cross_entropy(self, arguments.tensor(1), arguments.optional_tensor(2));
  return reduced(make_meta_like(self), arguments.integer(3));
}

// binary_cross_entropy_backward(grad_output, self, target, weight, reduction)
std::optional<Results> binary_cross_entropy_gradient(const Arguments& arguments) {
  const auto& self = arguments.tensor(1);
  check_cross_entropy(self, arguments.tensor(2), arguments.optional_tensor(3));
  expect(broadcast_shape({arguments.tensor(0), self}) == self.sizes().vec());
  return Results{make_meta_like(self)};
}

void check_pixels(const at::Tensor& self, const at::Tensor& target, const at::Tensor& weight) {
  expect(at::isFloatingType(self.scalar_type()) && self.dim() == 4 && target.dim() == 3 && target.scalar_type() == at::kLong);
  expect(self.size(0) == target.size(0) && self.size(2) == target.size(1) && self.size(3) == target.size(2));
  expect(!weight.defined() || (weight.numel() == self.size(1) && weight.scalar_type() == self.scalar_type()));
}

// nll_loss2d_forward(self, target, weight, reduction, ignore_index)
std::optional<Results> pixel_loss(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  check_pixels(self, arguments.tensor(1), arguments.optional_tensor(2));
  const auto each = make_meta(arguments.tensor(1).sizes(), self.scalar_type());
  auto results = reduced(each, arguments.integer(3));
  results.push_back(make_meta({}, self.scalar_type()));
  return results;
}

// nll_loss2d_backward(grad_output, self, target, weight, reduction, ignore_index, total_weight)
std::optional<Results> pixel_loss_gradient(const Arguments& arguments) {
  const auto& self = arguments.tensor(1);
  check_pixels(self, arguments.tensor(2), arguments.optional_tensor(3));
  expect(arguments.tensor(6).numel() == 1 && self.is_contiguous());
  if (arguments.integer(4) == at::Reduction::None) {
    expect(arguments.tensor(0).sizes() == arguments.tensor(2).sizes());
  } else {
    expect(arguments.tensor(0).numel() == 1 && arguments.tensor(0).dim() <= 1);
  }
  return Results{make_meta(self.sizes(), self.scalar_type())};
}

// multilabel_margin_loss_forward(self, target, reduction): the loss, and where the targets are. One row gives a number.
std::optional<Results> multilabel_margin(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  const auto& target = arguments.tensor(1);
  expect(at::isFloatingType(self.scalar_type()) && target.scalar_type() == at::kLong && self.numel() > 0);
  expect(self.dim() <= 1 ? target.dim() <= 1 && target.numel() == self.numel()
                         : self.dim() == 2 && target.sizes() == self.sizes());
  const bool each = arguments.integer(2) == at::Reduction::None && target.dim() == 2;
  return Results{each ? make_meta({self.size(0)}, self.scalar_type()) : make_meta({}, self.scalar_type()),
                 make_meta(target.sizes(), self.scalar_type())};
}

// Of multi_margin_loss: one row of scores, or a batch of them, and a class for each.
void check_margins(const at::Tensor& self, const at::Tensor& target, const c10::IValue& p, const at::Tensor& weight) {
  expect(at::isFloatingType(self.scalar_type()) && target.scalar_type() == at::kLong);
  expect((self.dim() == 1 || self.dim() == 2) && self.numel() > 0 && target.dim() <= 1);
  expect(target.numel() == (self.dim() == 2 ? self.size(0) : 1));
  expect(p.toScalar().equal(1) || p.toScalar().equal(2));
  if (weight.defined()) {
    expect(weight.dim() <= 1 && weight.numel() == self.size(-1) && same_floating(weight, self));
  }
}

// multi_margin_loss(self, target, p, margin, weight, reduction)
std::optional<Results> margin_loss(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &target = arguments.tensor(1);
  check_margins(self, target, arguments[2], arguments.optional_tensor(4));
  return reduced(make_meta(target.sizes(), self.scalar_type()), arguments.integer(5));
}

// multi_margin_loss_backward(grad_output, self, target, p, margin, weight, reduction)
std::optional<Results> margin_loss_gradient(const Arguments& arguments) {
  const auto& self = arguments.tensor(1);
  expect(same_floating(arguments.tensor(0), self));
  check_margins(self, arguments.tensor(2), arguments[3], arguments.optional_tensor(5));
  return Results{make_meta(self.sizes(), self.scalar_type())};
}

}  // namespace

void add_loss_rules(RuleTable& table) {
  table["aten::mse_loss_backward"] = squared_error_gradient;
  table["aten::mse_loss_backward.grad_input"] = gradient_out;
  table["aten::smooth_l1_loss_backward.grad_input"] = gradient_out;
  table["aten::huber_loss"] = huber;
  table["aten::multi_margin_loss"] = margin_loss;
  table["aten::multilabel_margin_loss_forward"] = multilabel_margin;
  table["aten::multi_margin_loss_backward"] = margin_loss_gradient;
  table["aten::huber_loss_backward.out"] = gradient_out;
  table["aten::binary_cross_entropy"] = binary_cross_entropy;
  table["aten::binary_cross_entropy_backward"] = binary_cross_entropy_gradient;
  table["aten::nll_loss2d_forward"] = pixel_loss;
  table["aten::nll_loss2d_backward"] = pixel_loss_gradient;
}

}  // namespace spool::torch_side
