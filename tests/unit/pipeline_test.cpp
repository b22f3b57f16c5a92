#include "src/passes/pipeline.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/unit/small_graph.h"

namespace spool::test {
namespace {

TEST(Pipeline, DumpsWhatEachPassChanged) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "spool_pipeline_test" / "graphs";
  std::filesystem::remove_all(folder);
  setenv("SPOOL_DUMP_GRAPHS", folder.c_str(), 1);  // before anything has read the settings
  SmallGraph g;
  const ValueId x = g.input(f32({4}));
  g.output(g.make(neg, {g.read(x)}, f32({4})));
  const Graph clean = g.graph;
  g.make(neg, {g.read(x)}, f32({4}));

  EXPECT_EQ(text(optimise(g.graph)), text(clean));
  EXPECT_EQ(text(optimise(clean)), text(clean));
  const auto read = [&](const char* file) {
    std::ostringstream content;
    content << std::ifstream(folder / file).rdbuf();
    return content.str();
  };
  EXPECT_EQ(read("graph_0.txt").rfind("as recorded:\n" + text(g.graph, true), 0), 0) << read("graph_0.txt");
  EXPECT_NE(read("graph_0.txt").find("after dead_code ("), std::string::npos);
  EXPECT_NE(read("graph_0.txt").find(":\n" + text(clean, true)), std::string::npos);
  EXPECT_NE(read("graph_1.txt").find("(unchanged)"), std::string::npos);
  std::filesystem::remove_all(folder.parent_path());
}

}  // namespace
}  // namespace spool::test
