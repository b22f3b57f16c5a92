// The list of engines by name.
#include <map>
#include <mutex>

#include "src/base/error.h"
#include "src/engine/engine.h"

namespace spool {
namespace {

struct Entry {
  EngineMaker make = nullptr;
  Engine* engine = nullptr;
};

struct Registry {
  std::mutex mutex;
  std::map<std::string, Entry> entries;
};

// Made at the first use, as engines register while other static objects are still being initialised; never freed, as buffers
// that engines gave out may live until the process ends.
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

}  // namespace

bool register_engine(const std::string& name, EngineMaker make) {
  const std::scoped_lock lock(registry().mutex);
  registry().entries[name].make = make;
  return true;
}

std::vector<std::string> engine_names() {
  const std::scoped_lock lock(registry().mutex);
  std::vector<std::string> names;
  for (const auto& [name, entry] : registry().entries) {
    names.push_back(name);
  }
  return names;
}

Engine& engine(const std::string& name) {
  const std::scoped_lock lock(registry().mutex);
  auto& entries = registry().entries;
  const auto found = entries.find(name);
  if (found == entries.end()) {
    std::string known;
    for (const auto& [other, entry] : entries) {
      known += (known.empty() ? "" : ", ") + other;
    }
    fail(ErrorKind::Value, "[engine] expected one of: ", known, "; got '", name, "'");
  }
  if (found->second.engine == nullptr) {
    found->second.engine = found->second.make().release();
  }
  return *found->second.engine;
}

}  // namespace spool
