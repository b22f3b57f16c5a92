#include "src/runtime/options.h"

#include "src/base/error.h"
#include "src/base/settings.h"

namespace spool {

std::string describe(const PlanOptions& options) { return options.exact ? "exact" : std::string("fuse ") + name(options.fuse); }

PlanOptions& plan_options() {
  thread_local PlanOptions options{.exact = settings().exact, .fuse = fuse_mode(settings().fuse)};
  return options;
}

FuseMode fuse_mode(const std::string& name) {
  for (const FuseMode mode : {FuseMode::Auto, FuseMode::Always, FuseMode::Never}) {
    if (name == spool::name(mode)) {
      return mode;
    }
  }
  fail(ErrorKind::Value, "[options] expected fuse to be one of: auto, always, never; got '", name, "'");
}

const char* name(FuseMode mode) {
  switch (mode) {
    case FuseMode::Auto: return "auto";
    case FuseMode::Always: return "always";
    case FuseMode::Never: return "never";
  }
  return "?";
}

}  // namespace spool
