// What tests of the public API look at behind it: what is pending, how many graphs were compiled and run.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <spool/spool.h>

#include <string>

#include "src/runtime/device.h"
#include "src/runtime/metrics.h"

namespace spool::test {

inline std::size_t pending() { return Device::get().tape_length(); }
inline std::int64_t counted(const std::string& name) { return metrics::counter(name).value_or(0); }
/// Graphs launched since the metrics were cleared.
inline std::int64_t launches() {
  const auto launched = metrics::data("SyncTensors");
  return launched.has_value() ? launched->samples : 0;
}

inline void clear_metrics() {
  metrics::clear_counters();
  metrics::clear_metrics();
}

/// 0, 1, 2, … of that shape on the device, with nothing pending and the metrics cleared.
inline at::Tensor ready(c10::IntArrayRef sizes) {
  const at::Tensor made = at::arange(c10::multiply_integers(sizes), at::kFloat).view(sizes).to(device());
  sync(true);
  clear_metrics();
  return made;
}

inline void expect_same(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor host = got.cpu();
  EXPECT_EQ(host.sizes(), want.sizes());
  EXPECT_EQ(host.scalar_type(), want.scalar_type());
  EXPECT_TRUE(at::equal(host, want)) << "got\n" << host << "\nexpected\n" << want;
}

/// Message of the exception of type E that `body` throws; a failure of the test if it throws none.
template <class E, class Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "no exception of the expected type was thrown";
  return "";
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace spool::test
