#include "src/base/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "src/base/error.h"

namespace spool {
namespace {

std::string text(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

std::size_t number(const char* name, std::size_t fallback, std::size_t least) {
  const std::string value = text(name, "");
  if (value.empty()) {
    return fallback;
  }
  std::size_t parsed = 0;
  const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  SPOOL_CHECK(code == std::errc() && end == value.data() + value.size() && parsed >= least, Value, "[", name,
              "] expected a whole number of at least ", least, ", got '", value, "'");
  return parsed;
}

bool flag(const char* name, bool fallback) {
  const std::string value = text(name, fallback ? "1" : "0");
  SPOOL_CHECK(value == "0" || value == "1", Value, "[", name, "] expected 0 or 1, got '", value, "'");
  return value == "1";
}

std::string one_of(const char* name, std::initializer_list<const char*> choices) {
  const std::string value = text(name, *choices.begin());
  std::string known;
  for (const char* choice : choices) {
    if (value == choice) {
      return value;
    }
    known += (known.empty() ? "" : ", ") + std::string(choice);
  }
  fail(ErrorKind::Value, "[", name, "] expected one of: ", known, "; got '", value, "'");
}

Settings read() {
  return {
      .engine = text("SPOOL_ENGINE", "native"),
      .dump_graphs = text("SPOOL_DUMP_GRAPHS", ""),
      .log = text("SPOOL_LOG", ""),
      .decompose = flag("SPOOL_DECOMPOSE", false),
      .cache_size = number("SPOOL_CACHE_SIZE", 1024, 1),
      .disk_cache_bytes = number("SPOOL_DISK_CACHE_BYTES", std::size_t{1} << 30U, 1),
      .max_tape_ops = number("SPOOL_MAX_TAPE_OPS", 2048, 1),
      .max_tape_bytes = number("SPOOL_MAX_TAPE_BYTES", std::size_t{2} << 30U, 1),
      .in_flight = number("SPOOL_IN_FLIGHT", 2, 1),
      .exact = flag("SPOOL_EXACT", false),
      .fuse = one_of("SPOOL_FUSE", {"auto", "always", "never"}),
      .follow = flag("SPOOL_FOLLOW", true),
  };
}

}  // namespace

bool Settings::logs(const std::string& subject) const {
  std::string_view rest = log;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    if (rest.substr(0, comma) == subject) {
      return true;
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return false;
}

const Settings& settings() {
  static const Settings instance = read();
  return instance;
}

}  // namespace spool
