// Variance and standard deviation, in two passes.
#include <numeric>

#include "src/ops/decompositions.h"

namespace spool {
namespace {

/// (self, dim, *, correction, keepdim); `mean` is the result that gets the mean, or no_value.
bool spread(const Node& node, Builder& b, bool root, ValueId mean_id) {
  const Arg& self = node.args[0];
  if (self.tag != Tag::Tensor || !is_floating(self.geometry.dtype) || self.geometry.numel() == 0) {
    return false;
  }
  const View input = Builder::view(self);
  const auto rank = static_cast<std::int64_t>(input.rank());
  Sizes dims = node.args[1].list;
  if (dims.empty()) {
    dims.resize(input.rank());
    std::iota(dims.begin(), dims.end(), 0);
  }
  std::int64_t count = 1;
  for (std::int64_t& d : dims) {
    d = d < 0 ? d + rank : d;
    if (d < 0 || d >= rank) {
      return false;  // a dimension of a 0-dim tensor
    }
    count *= input.size(static_cast<std::size_t>(d));
  }
  const bool keep = node.args[3].integer != 0;
  const View x = b.to(input, accumulation(input.dtype()));
  const View mean = b.div(b.sum(x, dims, true), static_cast<double>(count));
  const View squares = b.sum(b.square(b.sub(x, mean)), dims, true);
  // How many are left is only known when the plan runs: the correction is a parameter.
  const Arg& correction = node.args[2];
  View variance;
  if (correction.tag == Tag::Number) {
    const View all = b.full({}, Builder::real(static_cast<double>(count)), x.dtype());
    variance = b.div(squares, b.clamp_min(b.sub(all, correction, Builder::integer(1)), Builder::real(0)));
  } else {
    variance = b.div(squares, static_cast<double>(count - 1));
  }
  const auto define = [&](ValueId id, View result) {
    if (!keep) {
      result.geometry = row_major(result.dtype(), b.value(id).geometry.sizes);
    }
    b.define_as(id, result);
  };
  define(node.results[0], root ? b.sqrt(variance) : variance);
  if (mean_id != no_value) {
    define(mean_id, mean);
  }
  return true;
}

bool variance(const Node& node, Builder& b, Decomposed& /*known*/) { return spread(node, b, false, no_value); }
bool deviation(const Node& node, Builder& b, Decomposed& /*known*/) { return spread(node, b, true, no_value); }
bool variance_and_mean(const Node& node, Builder& b, Decomposed& /*known*/) { return spread(node, b, false, node.results[1]); }
bool deviation_and_mean(const Node& node, Builder& b, Decomposed& /*known*/) { return spread(node, b, true, node.results[1]); }

}  // namespace

void add_statistics_decompositions(DecompositionTable& table) {
  table["aten::var.correction"] = variance;
  table["aten::std.correction"] = deviation;
  table["aten::var_mean.correction"] = variance_and_mean;
  table["aten::std_mean.correction"] = deviation_and_mean;
}

}  // namespace spool
