// Metrics: named counters and sampled values, under the names that torch_xla's users know. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spool::metrics {

enum class Unit { Nanoseconds, Bytes, Count };

/// Adds to a counter, made at its first use.
void count(const std::string& name, std::int64_t by = 1);
/// Adds a sample to a metric, made at its first use with `unit`. The last 1024 samples are kept; totals are exact.
void sample(const std::string& name, double value, Unit unit);

struct Data {
  std::int64_t samples = 0;  ///< how many there have been
  double total = 0;          ///< their sum, in the metric's unit
  Unit unit = Unit::Count;
  std::vector<std::pair<double, double>> recent;  ///< (seconds since the epoch, value), oldest first
};

std::vector<std::string> counter_names();
std::optional<std::int64_t> counter(const std::string& name);
std::vector<std::string> names();
std::optional<Data> data(const std::string& name);
void clear_counters();
void clear_metrics();

/// A readable table of the metrics and counters in `only` (all, if empty): totals, means, percentiles.
std::string report(const std::vector<std::string>& only = {});

/// Samples the time from construction to destruction as `name`.
class Timer {
 public:
  explicit Timer(std::string name);
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();

 private:
  std::string name_;
  std::int64_t start_;
};

}  // namespace spool::metrics
