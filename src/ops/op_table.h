// Op table: what an operator's schema doesn't say. An op without a row has none of these traits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spool {

struct OpTraits {
  /// Arguments that the op writes to although its schema doesn't say so, if argument `writes_if` (a bool) is true.
  std::vector<std::size_t> hidden_writes;
  std::size_t writes_if = 0;
  /// Its numbers decide a result's shape: they are structural, not parameters.
  bool numbers_decide_shape = false;
  /// It must run although nothing uses its results.
  bool effect = false;
  /// CPU tensors are allowed among its arguments, as index tensors are on every device; they are copied to the device.
  bool takes_cpu_tensors = false;
  /// Its out overload does not just write results into the memory given (it resizes them on the way, or chooses another
  /// algorithm by their layout), so engines with planned memory call the functional one.
  bool functional_only = false;
  /// PyTorch tags it as drawing random numbers, but the CPU's kernel doesn't.
  bool draws_nothing = false;
  /// It is composite for other devices, but recorded whole here: the CPU engines have one kernel for it.
  bool record_whole = false;
};

const OpTraits& traits(std::string_view op);

/// Names of the ops that have `record_whole`.
std::vector<std::string> ops_recorded_whole();

}  // namespace spool
