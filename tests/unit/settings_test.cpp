// Settings from the environment. They are read once a process, so each test is a process of its own.
#include "src/base/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <iostream>
#include <utility>

#include "src/base/error.h"

namespace spool {
namespace {

using Variables = std::initializer_list<std::pair<const char*, const char*>>;

/// Ends the process: with 0 and what `show` makes of the settings on stderr, or with 1 and the error's message.
template <class Show>
[[noreturn]] void read_with(Variables variables, const Show& show) {
  for (const char* name :
       {"SPOOL_ENGINE", "SPOOL_DUMP_GRAPHS", "SPOOL_LOG", "SPOOL_CACHE_SIZE", "SPOOL_MAX_TAPE_OPS", "SPOOL_MAX_TAPE_BYTES",
        "SPOOL_IN_FLIGHT", "SPOOL_FOLLOW", "SPOOL_DECOMPOSE", "SPOOL_EXACT", "SPOOL_FUSE"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) {
    setenv(name, value, 1);
  }
  try {
    std::cerr << show(settings()) << std::endl;
  } catch (const Error& error) {
    std::cerr << (error.kind() == ErrorKind::Value ? "Value " : "other ") << error.what() << std::endl;
    std::_Exit(1);
  }
  std::_Exit(0);
}

std::string all(const Settings& s) {
  return str('<', s.engine, '|', s.dump_graphs, '|', s.log, '|', s.cache_size, '|', s.max_tape_ops, '|', s.max_tape_bytes, '|',
             s.in_flight, '|', s.follow, '|', s.exact, '|', s.fuse, '|', s.disk_cache_bytes, '>');
}

const auto fine = testing::ExitedWithCode(0);
const auto refused = testing::ExitedWithCode(1);

TEST(SettingsDeathTest, HaveDefaults) {
  EXPECT_EXIT(read_with({}, all), fine, "<native\\|\\|\\|1024\\|2048\\|2147483648\\|2\\|1\\|0\\|auto\\|1073741824>");
}

TEST(SettingsDeathTest, AreReadFromTheEnvironment) {
  EXPECT_EXIT(read_with({{"SPOOL_ENGINE", "reference"},
                         {"SPOOL_DUMP_GRAPHS", "/tmp/graphs"},
                         {"SPOOL_LOG", "compile"},
                         {"SPOOL_CACHE_SIZE", "1"},
                         {"SPOOL_MAX_TAPE_OPS", "12"},
                         {"SPOOL_MAX_TAPE_BYTES", "34"},
                         {"SPOOL_IN_FLIGHT", "5"},
                         {"SPOOL_FOLLOW", "0"},
                         {"SPOOL_EXACT", "1"},
                         {"SPOOL_FUSE", "never"},
                         {"SPOOL_DISK_CACHE_BYTES", "56"}},
                        all),
              fine, "<reference\\|/tmp/graphs\\|compile\\|1\\|12\\|34\\|5\\|0\\|1\\|never\\|56>");
}

TEST(SettingsDeathTest, AnEmptyVariableIsNotSet) {
  EXPECT_EXIT(read_with({{"SPOOL_ENGINE", ""}, {"SPOOL_CACHE_SIZE", ""}, {"SPOOL_FOLLOW", ""}}, all), fine,
              "<native\\|\\|\\|1024\\|2048\\|2147483648\\|2\\|1\\|0\\|auto\\|1073741824>");
}

TEST(SettingsDeathTest, WhatCannotBeReadIsRefusedByName) {
  for (const char* value : {"0", "-1", "many", "12x", " 12", "1.5", "99999999999999999999999"}) {
    EXPECT_EXIT(read_with({{"SPOOL_CACHE_SIZE", value}}, all), refused,
                "Value \\[SPOOL_CACHE_SIZE\\] expected a whole number of at least 1, got '")
        << value;
  }
  EXPECT_EXIT(read_with({{"SPOOL_IN_FLIGHT", "0"}}, all), refused, "Value \\[SPOOL_IN_FLIGHT\\]");
  EXPECT_EXIT(read_with({{"SPOOL_FOLLOW", "yes"}}, all), refused, "Value \\[SPOOL_FOLLOW\\] expected 0 or 1, got 'yes'");
}

TEST(Settings, LogSubjectsAreWholeWordsBetweenCommas) {
  Settings s{};
  EXPECT_FALSE(s.logs("compile"));
  s.log = "compile";
  EXPECT_TRUE(s.logs("compile"));
  EXPECT_FALSE(s.logs("comp"));
  s.log = "break,,launch";
  EXPECT_TRUE(s.logs("break"));
  EXPECT_TRUE(s.logs("launch"));
  EXPECT_FALSE(s.logs("compile"));
}

}  // namespace
}  // namespace spool
