#include "src/ops/decompositions.h"

namespace spool {

Decomposition decomposition(std::string_view op) {
  static const DecompositionTable table = [] {
    DecompositionTable filled;
    add_normalisation_decompositions(filled);
    add_softmax_decompositions(filled);
    add_statistics_decompositions(filled);
    add_loss_decompositions(filled);
    return filled;
  }();
  const auto row = table.find(op);
  return row == table.end() ? foreach_decomposition(op) : row->second;
}

}  // namespace spool
