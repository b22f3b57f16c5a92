// Options: what the user may ask of the compiler. They are part of a plan's key, beside the engine.
#pragma once

#include <string>

namespace spool {

enum class FuseMode : unsigned char {
  Auto,    ///< where it saves memory traffic or launches
  Always,  ///< every op that a kernel can express, also alone (for tests)
  Never,
};

struct PlanOptions {
  /// No pass that changes how anything is computed: no decomposition, no fusion. Results are eager's, bit for bit.
  bool exact = false;
  FuseMode fuse = FuseMode::Auto;

  bool operator==(const PlanOptions&) const = default;
};

/// Text that differs for options that differ.
std::string describe(const PlanOptions& options);

/// The calling thread's options, for the graphs that it compiles. At first those of the settings (SPOOL_EXACT, SPOOL_FUSE).
PlanOptions& plan_options();

/// "auto", "always", "never". Throws Error(Value) for another name.
FuseMode fuse_mode(const std::string& name);
const char* name(FuseMode mode);

}  // namespace spool
