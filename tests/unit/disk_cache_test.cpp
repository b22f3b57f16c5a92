// The persistent cache's files.
#include "src/cache/disk_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "src/base/error.h"

namespace spool {
namespace {

namespace fs = std::filesystem;

class DiskCacheTest : public ::testing::Test {
 protected:
  void SetUp() override { folder_ = fs::temp_directory_path() / str("spool_disk_cache_", getpid()); }
  void TearDown() override { fs::remove_all(folder_); }

  DiskCache::Options options() const { return {.folder = folder_, .max_bytes = 1U << 20U, .version = "1"}; }
  fs::path only_file() const { return fs::directory_iterator(folder_)->path(); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(DiskCacheTest, FindsWhatAnotherCacheStoredForTheSameKeyAndKind) {
  DiskCache(options()).put("plan", "key", std::string("a\0b", 3));
  DiskCache other(options());
  EXPECT_EQ(other.find("plan", "key"), std::string("a\0b", 3));
  EXPECT_EQ(other.find("plan", "other key"), std::nullopt);
  EXPECT_EQ(other.find("object", "key"), std::nullopt);
}

TEST_F(DiskCacheTest, DoesNotFindEntriesOfAnotherVersion) {
  DiskCache(options()).put("plan", "key", "old");
  DiskCache::Options newer = options();
  newer.version = "2";
  DiskCache cache(newer);
  EXPECT_EQ(cache.find("plan", "key"), std::nullopt);
  cache.put("plan", "key", "new");
  EXPECT_EQ(cache.find("plan", "key"), "new");
  EXPECT_EQ(DiskCache(options()).find("plan", "key"), "old");
}

TEST_F(DiskCacheTest, IgnoresTornAndForeignFilesWithOneWarning) {
  DiskCache cache(options());
  cache.put("plan", "key", std::string(1000, 'x'));
  const fs::path file = only_file();
  for (const std::uintmax_t length : {999U, 20U, 0U}) {
    fs::resize_file(file, length);
    testing::internal::CaptureStderr();
    DiskCache fresh(options());
    EXPECT_EQ(fresh.find("plan", "key"), std::nullopt);
    EXPECT_EQ(fresh.find("plan", "key"), std::nullopt);
    const std::string warning = testing::internal::GetCapturedStderr();
    EXPECT_NE(warning.find("ignores '" + file.string() + "'"), std::string::npos) << warning;
    EXPECT_EQ(warning.find("ignores", warning.find("ignores") + 1), std::string::npos) << warning;
  }
  std::ofstream(file) << std::string(2000, 'y');
  testing::internal::CaptureStderr();
  EXPECT_EQ(DiskCache(options()).find("plan", "key"), std::nullopt);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("did not write it"), std::string::npos);
  cache.put("plan", "key", "again");
  EXPECT_EQ(cache.find("plan", "key"), "again");
}

TEST_F(DiskCacheTest, IgnoresAFileWhoseContentChanged) {
  DiskCache cache(options());
  cache.put("plan", "key", "content");
  std::fstream(only_file(), std::ios::in | std::ios::out | std::ios::binary | std::ios::ate).seekp(-1, std::ios::end).put('!');
  testing::internal::CaptureStderr();
  EXPECT_EQ(cache.find("plan", "key"), std::nullopt);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("checksum"), std::string::npos);
}

TEST_F(DiskCacheTest, StaysInsideItsBoundByDroppingWhatWasUsedLeastRecently) {
  DiskCache::Options small = options();
  small.max_bytes = 10'000;
  DiskCache cache(small);
  cache.put("plan", "kept", std::string(1000, 'k'));
  for (int i = 0; i < 40; ++i) {
    const fs::file_time_type past = fs::file_time_type::clock::now() - std::chrono::minutes(60 - i);
    for (const auto& file : fs::directory_iterator(folder_)) {
      fs::last_write_time(file, std::min(past, file.last_write_time()));
    }
    EXPECT_TRUE(cache.find("plan", "kept").has_value()) << i;  // used now
    cache.put("plan", str(i), std::string(1000, 'x'));
  }
  std::uintmax_t total = 0;
  for (const auto& file : fs::directory_iterator(folder_)) {
    total += file.file_size();
  }
  EXPECT_LE(total, 10'000U + 1'000U);
  EXPECT_EQ(cache.find("plan", "0"), std::nullopt);
  EXPECT_TRUE(cache.find("plan", "39").has_value());
}

TEST_F(DiskCacheTest, ReadonlyFindsButNeverWrites) {
  DiskCache(options()).put("plan", "key", "content");
  DiskCache::Options readonly = options();
  readonly.readonly = true;
  DiskCache cache(readonly);
  EXPECT_EQ(cache.find("plan", "key"), "content");
  cache.put("plan", "other", "content");
  EXPECT_EQ(files(), 1U);
}

TEST_F(DiskCacheTest, RefusesAFolderThatIsNone) {
  std::ofstream(folder_.string()) << "a file";
  try {
    const DiskCache cache(options());
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Value);
    EXPECT_NE(std::string(error.what()).find("[initialize_cache] expected a folder"), std::string::npos) << error.what();
  }
}

TEST_F(DiskCacheTest, WritersAtTheSameTimeLeaveOneWholeEntry) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      DiskCache cache(options());
      for (int i = 0; i < 50; ++i) {
        cache.put("plan", "key", std::string(static_cast<std::size_t>(10'000 + t), static_cast<char>('a' + t)));
        const auto found = cache.find("plan", "key");
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(found->size(), static_cast<std::size_t>(10'000 + (*found)[0] - 'a'));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(files(), 1U);
}

}  // namespace
}  // namespace spool
