// Where in the user's program an op was recorded. A known tape is followed without looking for the user's line: an op's location is
// that of its first recording on that path.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>

namespace spool {

struct Location {
  std::string file;  ///< empty where no Python is loaded
  int line = 0;
  std::string scope;  ///< names opened with profiler scopes, joined by '/'
  std::string
      stack;  ///< the user's frames, innermost first, one a line; only of what is recorded while someone asks for explanations
};

using LocationPtr = std::shared_ptr<const Location>;

/// "file.py:12 (scope)"; "unknown line" for none.
std::string describe(const LocationPtr& location);
/// The same without the scope.
std::string describe_line(const LocationPtr& location);

}  // namespace spool
