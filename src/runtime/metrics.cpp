#include "src/runtime/metrics.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iomanip>
#include <map>
#include <mutex>
#include <sstream>

namespace spool::metrics {
namespace {

constexpr std::size_t kept_samples = 1024;

struct Metric {
  std::int64_t samples = 0;
  double total = 0;
  Unit unit = Unit::Count;
  std::vector<std::pair<double, double>> ring;  // the newest overwrites the oldest at samples % kept_samples
};

struct Store {
  std::mutex mutex;
  std::map<std::string, std::int64_t> counters;
  std::map<std::string, Metric> metrics;
};

Store& store() {
  static auto* instance = new Store;  // never destroyed: threads may still count while the process ends
  return *instance;
}

// A forked child must find the lock free, whichever thread was counting. Registered while the library loads, before the device does
// so: the handlers before a fork run in the opposite order, and the device's lock comes before this one.
const bool registered = [] {
  pthread_atfork([] { store().mutex.lock(); }, [] { store().mutex.unlock(); }, [] { store().mutex.unlock(); });
  return true;
}();

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

template <class Map>
std::vector<std::string> keys(const Map& map) {
  std::vector<std::string> names;
  names.reserve(map.size());
  for (const auto& [name, value] : map) {
    names.push_back(name);
  }
  return names;
}

std::string readable(double value, Unit unit) {
  std::array<char, 64> buffer{};
  const auto print = [&](const char* format, double scaled) {
    std::snprintf(buffer.data(), buffer.size(), format, scaled);
    return std::string(buffer.data());
  };
  switch (unit) {
    case Unit::Nanoseconds:
      return value < 1e3   ? print("%.0f ns", value)
             : value < 1e6 ? print("%.1f us", value / 1e3)
             : value < 1e9 ? print("%.1f ms", value / 1e6)
                           : print("%.2f s", value / 1e9);
    case Unit::Bytes:
      return value < 1024         ? print("%.0f B", value)
             : value < 1048576    ? print("%.1f KiB", value / 1024)
             : value < 1073741824 ? print("%.1f MiB", value / 1048576)
                                  : print("%.2f GiB", value / 1073741824);
    case Unit::Count: return print("%.6g", value);
  }
  return {};
}

}  // namespace

void count(const std::string& name, std::int64_t by) {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  s.counters[name] += by;
}

void sample(const std::string& name, double value, Unit unit) {
  const double when = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  Metric& metric = s.metrics[name];
  metric.unit = unit;
  metric.total += value;
  if (metric.ring.size() < kept_samples) {
    metric.ring.emplace_back(when, value);
  } else {
    metric.ring[static_cast<std::size_t>(metric.samples) % kept_samples] = {when, value};
  }
  ++metric.samples;
}

std::vector<std::string> counter_names() {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  return keys(s.counters);
}

std::optional<std::int64_t> counter(const std::string& name) {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  const auto it = s.counters.find(name);
  return it == s.counters.end() ? std::nullopt : std::optional(it->second);
}

std::vector<std::string> names() {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  return keys(s.metrics);
}

std::optional<Data> data(const std::string& name) {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  const auto it = s.metrics.find(name);
  if (it == s.metrics.end()) {
    return std::nullopt;
  }
  const Metric& metric = it->second;
  Data result{metric.samples, metric.total, metric.unit, metric.ring};
  if (metric.ring.size() == kept_samples) {
    std::rotate(result.recent.begin(),
                result.recent.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(metric.samples) % kept_samples),
                result.recent.end());
  }
  return result;
}

void clear_counters() {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  s.counters.clear();
}

void clear_metrics() {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  s.metrics.clear();
}

std::string report(const std::vector<std::string>& only) {
  const auto wanted = [&](const std::string& name) {
    return only.empty() || std::find(only.begin(), only.end(), name) != only.end();
  };
  std::ostringstream out;
  std::array<char, 256> line{};
  bool header = false;
  for (const std::string& name : names()) {
    const auto metric = data(name);
    if (!wanted(name) || !metric.has_value()) {
      continue;
    }
    if (!header) {
      std::snprintf(line.data(), line.size(), "%-26s %10s %12s %12s %12s %12s\n", "Metric", "Samples", "Total", "Mean", "Median",
                    "95 %");
      out << line.data();
      header = true;
    }
    std::vector<double> values;
    for (const auto& [when, value] : metric->recent) {
      values.push_back(value);
    }
    std::sort(values.begin(), values.end());
    const auto at = [&](double share) {
      return values.empty() ? 0.0 : values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
    };
    const double mean = metric->samples == 0 ? 0 : metric->total / static_cast<double>(metric->samples);
    std::snprintf(line.data(), line.size(), "%10lld %12s %12s %12s %12s\n", static_cast<long long>(metric->samples),
                  readable(metric->total, metric->unit).c_str(), readable(mean, metric->unit).c_str(),
                  readable(at(0.5), metric->unit).c_str(), readable(at(0.95), metric->unit).c_str());
    out << std::left << std::setw(26) << name << ' ' << line.data();
  }
  header = false;
  for (const std::string& name : counter_names()) {
    const auto value = counter(name);
    if (!wanted(name) || !value.has_value()) {
      continue;
    }
    if (!header) {
      std::snprintf(line.data(), line.size(), "%-48s %10s\n", "Counter", "Value");
      out << line.data();
      header = true;
    }
    std::snprintf(line.data(), line.size(), "%10lld\n", static_cast<long long>(*value));
    out << std::left << std::setw(48) << name << ' ' << line.data();
  }
  return out.str();
}

Timer::Timer(std::string name) : name_(std::move(name)), start_(now_ns()) {}

Timer::~Timer() { sample(name_, static_cast<double>(now_ns() - start_), Unit::Nanoseconds); }

}  // namespace spool::metrics
