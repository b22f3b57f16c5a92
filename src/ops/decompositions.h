// Decompositions: composite ops in terms of pointwise ops and reductions, which engines fuse. One row for each op; the functions stand in
// decompositions_*.cpp by family, on a Builder.
//
// What a decomposition computes is as accurate as ATen's kernel, not equal to the last bit: statistics take two passes, and
// float16 and bfloat16 are computed in float32 and rounded once. Results lie as recorded.
#pragma once

#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "src/graph/graph.h"
#include "src/ops/builder.h"

namespace spool {

/// What losses of classes share: of the targets [N, …], what each weighs and whether it counts; of [N, C, …], whether that class is the
/// target.
struct ClassTargets {
  View weight, valid, hit;
};

/// A log-softmax taken apart: x - max and log(sum(exp(x - max))), whose difference it is.
struct LogSoftmax {
  std::size_t dim = 0;
  View shifted, logarithm;
};

/// What one decomposition tells later ones of the same graph.
struct Decomposed {
  /// By the value that it gave.
  std::unordered_map<ValueId, LogSoftmax> log_softmax;
  /// Gradients that are zero but for at most one class of dimension 1: the sums over classes.
  std::unordered_map<ValueId, View> one_hot_sums;
  /// By what they are made of: targets, class weights (or no value), their geometries and the class that is ignored.
  std::map<std::tuple<ValueId, ValueId, std::int64_t, DType, Sizes>, ClassTargets> class_targets;
};

/// Makes nodes that define all results of `node`, or returns false if this call of the op is better left whole (what it has made by
/// then is dropped).
using Decomposition = bool (*)(const Node& node, Builder& b, Decomposed& known);
using DecompositionTable = std::map<std::string_view, Decomposition>;

/// nullptr if the op is not composite.
Decomposition decomposition(std::string_view op);

/// That of an op on lists of tensors, or nullptr.
Decomposition foreach_decomposition(std::string_view op);

void add_normalisation_decompositions(DecompositionTable& table);
void add_softmax_decompositions(DecompositionTable& table);
void add_statistics_decompositions(DecompositionTable& table);
void add_loss_decompositions(DecompositionTable& table);

}  // namespace spool
