// Options: what the user may ask of the compiler. They are part of a plan's key, beside the engine.
#pragma once

#include <string>

namespace spool {

struct PlanOptions {
  /// No pass that changes how anything is computed: no decomposition, no fusion. Results are eager's, bit for bit.
  bool exact = false;

  bool operator==(const PlanOptions&) const = default;
};

/// Text that differs for options that differ.
std::string describe(const PlanOptions& options);

/// The calling thread's options, for the graphs that it compiles. At first those of the settings (SPOOL_EXACT).
PlanOptions& plan_options();

}  // namespace spool
