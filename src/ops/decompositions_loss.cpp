// Losses and their gradients, as far as they are no pointwise ops or plain sums of such (pointwise.cpp).
#include <limits>

#include "src/ops/decompositions.h"

namespace spool {
namespace {

enum Reduction : std::int64_t { None = 0, Mean = 1, Sum = 2 };

bool suits(const Arg& x) { return x.tag == Tag::Tensor && is_floating(x.geometry.dtype) && x.geometry.numel() > 0; }

bool suit(const Arg& self, const Arg& target) {
  return suits(self) && suits(target) && self.geometry.dtype == target.geometry.dtype;
}

/// Defines a loss from that of each element.
bool reduced(Builder& b, ValueId id, const View& each, std::int64_t reduction) {
  if (reduction == None) {
    b.define_as(id, each);
  } else {
    const View total = b.total(each);
    b.define_as(id, reduction == Mean ? b.div(total, static_cast<double>(each.geometry.numel())) : total);
  }
  return true;
}

/// What a gradient of the reduced loss is scaled by to be one of each element's.
double share(const View& self, std::int64_t reduction) {
  return reduction == Mean ? 1.0 / static_cast<double>(self.geometry.numel()) : 1.0;
}

struct Pair {
  View gradient, x, t, difference;
};

Pair load(Builder& b, const Arg& self, const Arg& target, const Arg* gradient = nullptr) {
  const DType type = accumulation(self.geometry.dtype);
  Pair pair;
  pair.gradient = gradient != nullptr ? b.to(Builder::view(*gradient), type) : View{};
  pair.x = b.to(Builder::view(self), type);
  pair.t = b.to(Builder::view(target), type);
  pair.difference = b.sub(pair.x, pair.t);
  return pair;
}

/// The result of a call that makes it, or that writes all of its last argument.
ValueId only_result(const Node& node, const Builder& b) {
  if (node.results.size() != 1) {
    return no_value;
  }
  if (node.fresh == 1) {
    return node.results[0];
  }
  const Arg& out = node.args.back();
  return out.tag == Tag::Tensor && out.geometry == b.value(out.value).geometry ? node.results[0] : no_value;
}

/// Whether a gradient's node suits: arguments (grad_output, self, target, reduction, …).
bool gradient_suits(const Node& node, const Builder& b) {
  const ValueId result = only_result(node, b);
  return suit(node.args[1], node.args[2]) && suits(node.args[0]) && node.args[0].geometry.dtype == node.args[1].geometry.dtype &&
         result != no_value && b.value(result).geometry.sizes == node.args[1].geometry.sizes &&
         node.args[2].geometry.sizes == node.args[1].geometry.sizes;
}

// smooth_l1_loss(self, target, reduction, beta)
bool smooth_l1_loss(const Node& node, Builder& b, Decomposed& /*known*/) {
  if (!suit(node.args[0], node.args[1])) {
    return false;
  }
  const View size = b.abs(load(b, node.args[0], node.args[1]).difference);
  const Arg& beta = node.args[3];
  const View parabola = b.div(b.mul(b.square(size), 0.5), beta);
  const View line = b.sub(size, beta, Builder::real(0.5));
  const View each = b.where(b.compare("aten::lt", size, beta), Builder::tensor(parabola), Builder::tensor(line));
  return reduced(b, node.results[0], each, node.args[2].integer);
}

// smooth_l1_loss_backward(grad_output, self, target, reduction, beta), also with grad_input
bool smooth_l1_loss_backward(const Node& node, Builder& b, Decomposed& /*known*/) {
  if (!gradient_suits(node, b)) {
    return false;
  }
  const Pair p = load(b, node.args[1], node.args[2], &node.args[0]);
  const Arg& beta = node.args[4];
  const View inside = b.compare("aten::lt", b.abs(p.difference), beta);
  const View line = b.div(p.difference, beta);
  const View slope = b.where(inside, Builder::tensor(line), Builder::tensor(b.sign(p.difference)));
  b.define_as(only_result(node, b), b.mul(b.mul(slope, share(p.x, node.args[3].integer)), p.gradient));
  return true;
}

// huber_loss(self, target, reduction, delta)
bool huber_loss(const Node& node, Builder& b, Decomposed& /*known*/) {
  if (!suit(node.args[0], node.args[1])) {
    return false;
  }
  const View size = b.abs(load(b, node.args[0], node.args[1]).difference);
  const Arg& delta = node.args[3];
  const View parabola = b.mul(b.square(size), 0.5);
  const View line = b.mul(b.sub(size, delta, Builder::real(0.5)), delta);
  const View each = b.where(b.compare("aten::le", size, delta), Builder::tensor(parabola), Builder::tensor(line));
  return reduced(b, node.results[0], each, node.args[2].integer);
}

// huber_loss_backward(grad_output, self, target, reduction, delta), also with grad_input
bool huber_loss_backward(const Node& node, Builder& b, Decomposed& /*known*/) {
  if (!gradient_suits(node, b)) {
    return false;
  }
  const Pair p = load(b, node.args[1], node.args[2], &node.args[0]);
  const Arg& delta = node.args[4];
  const View inside = b.compare("aten::lt", b.abs(p.difference), delta);
  const View slope = b.where(inside, Builder::tensor(p.difference), Builder::tensor(b.mul(b.sign(p.difference), delta)));
  b.define_as(only_result(node, b), b.mul(b.mul(slope, share(p.x, node.args[3].integer)), p.gradient));
  return true;
}

// binary_cross_entropy_backward(grad_output, self, target, weight, reduction). The forward op stays whole: it refuses probabilities
// outside [0, 1].
bool binary_cross_entropy_backward(const Node& node, Builder& b, Decomposed& /*known*/) {
  if (!gradient_suits(node, b)) {
    return false;
  }
  const Pair p = load(b, node.args[1], node.args[2], &node.args[0]);
  const View complement = b.add(b.neg(p.x), Builder::real(1));
  const View slope = b.div(p.difference, b.clamp_min(b.mul(complement, p.x), Builder::real(1e-12)));
  View gradient = b.mul(slope, p.gradient);
  if (node.args[3].tag == Tag::Tensor) {
    gradient = b.mul(gradient, b.to(Builder::view(node.args[3]), p.x.dtype()));
  }
  const double scale = share(p.x, node.args[4].integer);
  b.define_as(node.results[0], scale == 1.0 ? gradient : b.mul(gradient, scale));
  return true;
}

// log_sigmoid_forward(self) → (output, buffer); the buffer is exp(-|x|) on the CPU, empty elsewhere
bool log_sigmoid(const Node& node, Builder& b, Decomposed& /*known*/) {
  if (!suits(node.args[0])) {
    return false;
  }
  const View self = Builder::view(node.args[0]);
  const View x = b.to(self, accumulation(self.dtype()));
  const View power = b.exp(b.neg(b.abs(x)));
  const View least = b.clamp_max(x, Builder::real(0));
  b.define_as(node.results[0], b.sub(least, b.unary("aten::log1p", power)));
  if (node.results[1] != no_value && b.value(node.results[1]).geometry.numel() == 0) {
    b.define_undefined(node.results[1]);
  } else if (node.results[1] != no_value) {
    b.define_as(node.results[1], power);
  }
  return true;
}

// log_sigmoid_backward(grad_output, self, buffer), also with grad_input: grad * (1 - sigmoid(x)), without overflow
bool log_sigmoid_backward(const Node& node, Builder& b, Decomposed& /*known*/) {
  const ValueId result = only_result(node, b);
  if (!suit(node.args[0], node.args[1]) || result == no_value || b.value(result).geometry.sizes != node.args[1].geometry.sizes ||
      node.args[0].geometry.sizes != node.args[1].geometry.sizes) {
    return false;
  }
  const DType type = accumulation(node.args[1].geometry.dtype);
  const View gradient = b.to(Builder::view(node.args[0]), type);
  const View x = b.to(Builder::view(node.args[1]), type);
  const View power = b.exp(b.neg(b.abs(x)));
  const View one_more = b.add(power, Builder::real(1));
  const View positive = b.div(power, one_more);
  const View negative = b.unary("aten::reciprocal", one_more);
  const View slope = b.where(b.compare("aten::lt", x, Builder::real(0)), Builder::tensor(negative), Builder::tensor(positive));
  b.define_as(result, b.mul(gradient, slope));
  return true;
}

// The negative log-likelihood of log-probabilities [N, C, …], as a comparison of each class with the target [N, …], so that it joins the
// kernel that computes the log-probabilities; worth it only if that is one of ours. What a target weighs comes from ATen's own
// kernel, on a tensor of a single -1 expanded to the classes: so do its errors for targets out of range.
ClassTargets class_targets(const Node& node, std::size_t first, const char* op, Builder& b, Decomposed& known) {
  const View self = Builder::view(node.args[first]);
  const View target = Builder::view(node.args[first + 1]);
  const Arg& weight = node.args[first + 2];
  const Arg& ignored = node.args[first + 4];
  // Whole values only, so that their ids stand for them.
  const bool whole = target.geometry == b.value(target.value).geometry &&
                     (weight.tag != Tag::Tensor || weight.geometry == b.value(weight.value).geometry);
  const auto key = std::tuple(target.value, weight.value, ignored.integer, self.dtype(), self.geometry.sizes);
  if (const auto same = known.class_targets.find(key); whole && same != known.class_targets.end()) {
    return same->second;
  }
  ClassTargets made;
  const View least = b.full({1}, Builder::real(-1), self.dtype());
  Arg each;
  each.tag = Tag::Int;
  const View weights =
      b.make_all(op,
                 {Builder::tensor(Builder::expanded(least, self.geometry.sizes)), node.args[first + 1], weight, each, ignored},
                 {row_major(self.dtype(), target.geometry.sizes), row_major(self.dtype(), {})})
          .front();
  made.weight = b.to(weights, accumulation(self.dtype()));
  made.valid = b.compare("aten::ne", target, Builder::integer(ignored.integer));
  // Classes are fewer than 2^31: compared as int32, as many at a time as float32.
  const View classes = Builder::placed(b.to(b.count_up(self.size(1)), DType::Int32), {1}, self.rank());
  const View wanted = Builder::unsqueezed(b.to(target, DType::Int32), 1);
  made.hit = b.compare("aten::eq", classes, Builder::tensor(wanted));
  if (whole) {
    known.class_targets[key] = made;
  }
  return made;
}

bool likelihood_suits(const Node& node, std::size_t first, const Decomposed& known) {
  const Arg& self = node.args[first];
  const auto softmax = known.log_softmax.find(self.value);
  const auto& sizes = self.geometry.sizes;
  if (!suits(self) || softmax == known.log_softmax.end() || softmax->second.dim != 1 || sizes.size() < 2 ||
      sizes[1] > std::numeric_limits<std::int32_t>::max() || node.args[first + 1].tag != Tag::Tensor ||
      node.args[first + 1].geometry.dtype != DType::Int64) {
    return false;
  }
  Sizes without_classes = sizes;
  without_classes.erase(without_classes.begin() + 1);
  return node.args[first + 1].geometry.sizes == without_classes;
}

// nll_loss_forward(self, target, weight, reduction, ignore_index) → (output, total_weight), nll_loss2d_forward
template <const char* const& op>
bool nll_loss(const Node& node, Builder& b, Decomposed& known) {
  if (!likelihood_suits(node, 0, known)) {
    return false;
  }
  const ClassTargets targets = class_targets(node, 0, op, b, known);
  View picked;
  if (node.args[0].geometry == b.value(node.args[0].value).geometry) {
    const LogSoftmax& made = known.log_softmax.at(node.args[0].value);
    // Of the difference's two parts only one has to be picked, and that in the pass that sums the powers.
    const View shifted = b.sum(b.where(targets.hit, Builder::tensor(made.shifted), Builder::real(0)), {1}, true);
    picked = b.sub(shifted, made.logarithm);
    picked.geometry = row_major(picked.dtype(), targets.valid.geometry.sizes);
  } else {
    const View x = b.to(Builder::view(node.args[0]), accumulation(node.args[0].geometry.dtype));
    picked = b.sum(b.where(targets.hit, Builder::tensor(x), Builder::real(0)), {1}, false);
  }
  const View each = b.where(targets.valid, Builder::tensor(b.neg(b.mul(picked, targets.weight))), Builder::real(0));
  const std::int64_t reduction = node.args[3].integer;
  if (reduction == None) {
    b.define_as(node.results[0], each);
    b.define(node.results[1], b.full({}, Builder::real(0), b.value(node.results[1]).geometry.dtype));
    return true;
  }
  const View total = b.kept(b.total(targets.weight), node.results[1]);
  const View sum = b.total(each);
  b.define_as(node.results[0], reduction == Mean ? b.div(sum, total) : sum);
  return true;
}

// nll_loss_backward(grad_output, self, target, weight, reduction, ignore_index, total_weight), nll_loss2d_backward
template <const char* const& op>
bool nll_loss_backward(const Node& node, Builder& b, Decomposed& known) {
  if (!likelihood_suits(node, 1, known) || !suits(node.args[0]) || !suits(node.args[6])) {
    return false;
  }
  const ClassTargets targets = class_targets(node, 1, op, b, known);
  const DType type = targets.weight.dtype();
  const std::int64_t reduction = node.args[4].integer;
  const auto scalar = [&](const Arg& arg) {
    View view = Builder::view(arg);
    view.geometry.sizes.clear();
    view.geometry.strides.clear();
    return b.to(view, type);
  };
  View gradient = reduction == None ? b.to(Builder::view(node.args[0]), type) : scalar(node.args[0]);
  if (reduction == Mean) {
    gradient = b.div(gradient, scalar(node.args[6]));
  }
  const View each = b.where(targets.valid, Builder::tensor(b.neg(b.mul(targets.weight, gradient))), Builder::real(0));
  const View row = Builder::unsqueezed(each, 1);
  b.define_as(node.results[0], b.where(targets.hit, Builder::tensor(row), Builder::real(0)));
  known.one_hot_sums[node.results[0]] = row;
  return true;
}

constexpr const char* rows = "aten::nll_loss_forward";
constexpr const char* pixels = "aten::nll_loss2d_forward";

}  // namespace

void add_loss_decompositions(DecompositionTable& table) {
  table["aten::smooth_l1_loss"] = smooth_l1_loss;
  table["aten::smooth_l1_loss_backward"] = smooth_l1_loss_backward;
  table["aten::smooth_l1_loss_backward.grad_input"] = smooth_l1_loss_backward;
  table["aten::huber_loss"] = huber_loss;
  table["aten::huber_loss_backward"] = huber_loss_backward;
  table["aten::huber_loss_backward.out"] = huber_loss_backward;
  table["aten::binary_cross_entropy_backward"] = binary_cross_entropy_backward;
  table["aten::log_sigmoid_forward"] = log_sigmoid;
  table["aten::log_sigmoid_backward"] = log_sigmoid_backward;
  table["aten::log_sigmoid_backward.grad_input"] = log_sigmoid_backward;
  table["aten::nll_loss_forward"] = nll_loss<rows>;
  table["aten::nll_loss_backward"] = nll_loss_backward<rows>;
  table["aten::nll_loss2d_forward"] = nll_loss<pixels>;
  table["aten::nll_loss2d_backward"] = nll_loss_backward<pixels>;
}

}  // namespace spool
