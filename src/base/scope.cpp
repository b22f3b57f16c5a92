#include "src/base/scope.h"

#include <algorithm>
#include <vector>

#include "src/base/error.h"

namespace spool::scope {
namespace {

struct Scopes {
  std::vector<std::string> names;
  std::size_t hidden = 0;  ///< how many, from the outermost, a reset has hidden
  std::shared_ptr<const std::string> joined;  ///< null: to be made
};
thread_local Scopes scopes;

}  // namespace

void push(std::string name) {
  scopes.names.push_back(std::move(name));
  scopes.joined = nullptr;
}

void pop() {
  SPOOL_CHECK(!scopes.names.empty(), Runtime, "[scope] closed without being open in this thread");
  scopes.names.pop_back();
  scopes.hidden = std::min(scopes.hidden, scopes.names.size());
  scopes.joined = nullptr;
}

void reset() {
  scopes.hidden = scopes.names.size();
  scopes.joined = nullptr;
}

std::string current() { return *current_shared(); }

std::shared_ptr<const std::string> current_shared() {
  if (scopes.joined == nullptr) {
    std::string joined;
    for (std::size_t i = scopes.hidden; i < scopes.names.size(); ++i) {
      joined += (joined.empty() ? "" : "/") + scopes.names[i];
    }
    scopes.joined = std::make_shared<const std::string>(std::move(joined));
  }
  return scopes.joined;
}

}  // namespace spool::scope
