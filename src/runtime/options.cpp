#include "src/runtime/options.h"

#include "src/base/settings.h"

namespace spool {

std::string describe(const PlanOptions& options) { return options.exact ? "exact" : "fast"; }

PlanOptions& plan_options() {
  thread_local PlanOptions options{.exact = settings().exact};
  return options;
}

}  // namespace spool
