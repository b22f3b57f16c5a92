// Text against a file in tests/golden. SPOOL_UPDATE_GOLDEN=1 writes the file anew.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace spool::test {

inline void expect_golden(const std::string& file, const std::string& text) {
  const auto path = std::filesystem::path(SPOOL_SOURCE_DIR) / "tests" / "golden" / file;
  if (std::getenv("SPOOL_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
  }
  std::ifstream stream(path);
  ASSERT_TRUE(stream.is_open()) << path;
  std::ostringstream golden;
  golden << stream.rdbuf();
  EXPECT_EQ(text, golden.str());
}

}  // namespace spool::test
