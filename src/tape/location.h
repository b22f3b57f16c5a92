// Where in the user's program an op was recorded.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>

namespace spool {

struct Location {
  std::string file;   ///< empty where no Python is loaded
  int line = 0;
  std::string scope;  ///< names opened with profiler scopes, joined by '/'
};

using LocationPtr = std::shared_ptr<const Location>;

/// "file.py:12 (scope)"; "unknown line" for none.
std::string describe(const LocationPtr& location);

}  // namespace spool
