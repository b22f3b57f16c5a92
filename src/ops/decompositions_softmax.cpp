// Softmax, log-softmax and their gradients.
#include "src/ops/decompositions.h"

namespace spool {
namespace {

/// Whether rows can be computed: floating point, not empty, and no change of type on the way (which only other devices do).
bool suits(const Arg& input, const Value& result) {
  return input.tag == Tag::Tensor && is_floating(input.geometry.dtype) && input.geometry.numel() > 0 &&
         !input.geometry.sizes.empty() && result.geometry.dtype == input.geometry.dtype;
}

std::int64_t dimension(const Arg& dim, const View& x) {
  return dim.integer < 0 ? dim.integer + static_cast<std::int64_t>(x.rank()) : dim.integer;
}

// _softmax(self, dim, half_to_float)
bool softmax(const Node& node, Builder& b, Decomposed& /*known*/) {
  if (!suits(node.args[0], b.value(node.results[0]))) {
    return false;
  }
  const View self = Builder::view(node.args[0]);
  const Sizes dims{dimension(node.args[1], self)};
  const View x = b.to(self, accumulation(self.dtype()));
  const View powers = b.exp(b.sub(x, b.amax(x, dims, true)));
  b.define(node.results[0], b.to(b.div(powers, b.sum(powers, dims, true)), self.dtype()));
  return true;
}

// _log_softmax(self, dim, half_to_float)
bool log_softmax(const Node& node, Builder& b, Decomposed& known) {
  if (!suits(node.args[0], b.value(node.results[0]))) {
    return false;
  }
  const View self = Builder::view(node.args[0]);
  const std::int64_t dim = dimension(node.args[1], self);
  const View x = b.to(self, accumulation(self.dtype()));
  const View shifted = b.sub(x, b.amax(x, {dim}, true));
  const View logarithm = b.log(b.sum(b.exp(shifted), {dim}, true));
  b.define(node.results[0], b.to(b.sub(shifted, logarithm), self.dtype()));
  known.log_softmax[node.results[0]] = {static_cast<std::size_t>(dim), shifted, logarithm};
  return true;
}

// _softmax_backward_data(grad_output, output, dim, input_dtype)
bool softmax_backward(const Node& node, Builder& b, Decomposed& /*known*/) {
  if (!suits(node.args[1], b.value(node.results[0])) || node.args[0].tag != Tag::Tensor) {
    return false;
  }
  const View output = Builder::view(node.args[1]);
  const Sizes dims{dimension(node.args[2], output)};
  const DType type = accumulation(output.dtype());
  const View gradient = b.to(Builder::view(node.args[0]), type);
  const View y = b.to(output, type);
  const View sum = b.sum(b.mul(gradient, y), dims, true);
  b.define(node.results[0], b.to(b.mul(b.sub(gradient, sum), y), output.dtype()));
  return true;
}

// _log_softmax_backward_data(grad_output, output, dim, input_dtype)
bool log_softmax_backward(const Node& node, Builder& b, Decomposed& known) {
  if (!suits(node.args[1], b.value(node.results[0])) || node.args[0].tag != Tag::Tensor) {
    return false;
  }
  const View output = Builder::view(node.args[1]);
  const std::int64_t dim = dimension(node.args[2], output);
  const DType type = accumulation(output.dtype());
  const View gradient = b.to(Builder::view(node.args[0]), type);
  const View y = b.to(output, type);
  const auto one_hot = known.one_hot_sums.find(node.args[0].value);
  const bool summed =
      one_hot != known.one_hot_sums.end() && dim == 1 && node.args[0].geometry == b.value(node.args[0].value).geometry;
  const View sum = summed ? b.to(one_hot->second, type) : b.sum(gradient, {dim}, true);
  b.define(node.results[0], b.to(b.sub(gradient, b.mul(b.exp(y), sum)), output.dtype()));
  return true;
}

}  // namespace

void add_softmax_decompositions(DecompositionTable& table) {
  table["aten::_softmax"] = softmax;
  table["aten::_log_softmax"] = log_softmax;
  table["aten::_softmax_backward_data"] = softmax_backward;
  table["aten::_log_softmax_backward_data"] = log_softmax_backward;
}

}  // namespace spool
