#include "src/cache/disk_cache.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
#include <vector>

#include "src/base/error.h"

namespace spool {
namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> magic{'S', 'p', 'o', 'o', 'l', 'C', '0', '1'};
constexpr const char* suffix = ".spool";

struct Header {
  std::array<char, 8> magic{};
  std::uint64_t version = 0;
  std::uint64_t key = 0;      ///< bytes
  std::uint64_t content = 0;  ///< bytes
  std::uint64_t check = 0;
};

std::uint64_t hash(std::string_view bytes) { return std::hash<std::string_view>{}(bytes); }

std::uint64_t check(std::string_view key, std::string_view content) { return hash(key) * 31 + hash(content); }

std::optional<std::string> slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) {
    return std::nullopt;
  }
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return file.bad() ? std::nullopt : std::optional(std::move(bytes).str());
}

}  // namespace

DiskCache::DiskCache(Options options) : options_(std::move(options)) {
  std::error_code failure;
  if (!options_.readonly) {
    fs::create_directories(options_.folder, failure);
  }
  SPOOL_CHECK(fs::is_directory(options_.folder, failure), Value, "[initialize_cache] expected a folder, but '",
              options_.folder.string(), "' is none", options_.readonly ? "" : " and can't be made", "; name another one");
  SPOOL_CHECK(options_.readonly || access(options_.folder.c_str(), W_OK) == 0, Value,
              "[initialize_cache] expected a folder that ", "can be written to, but '", options_.folder.string(),
              "' can't; pass readonly=True or name another one");
}

std::optional<std::string> DiskCache::find(std::string_view kind, std::string_view key) {
  const fs::path path = path_of(kind, key);
  std::optional<std::string> bytes = slurp(path);
  if (!bytes.has_value()) {
    return std::nullopt;
  }
  Header header;
  if (bytes->size() < sizeof(header)) {
    warn(path, "it is too short");
    return std::nullopt;
  }
  std::memcpy(&header, bytes->data(), sizeof(header));
  const std::uint64_t rest = bytes->size() - sizeof(header);
  if (header.magic != magic || header.version != hash(options_.version)) {
    warn(path, "Spool did not write it");
    return std::nullopt;
  }
  if (header.key > rest || header.content != rest - header.key) {
    warn(path, "it is torn");
    return std::nullopt;
  }
  const std::string_view stored = std::string_view(*bytes).substr(sizeof(header), header.key);
  const std::string_view content = std::string_view(*bytes).substr(sizeof(header) + header.key);
  if (header.check != check(stored, content)) {
    warn(path, "its checksum is wrong");
    return std::nullopt;
  }
  if (stored != key) {
    return std::nullopt;  // another key of the same hash: the newer one keeps the file
  }
  if (!options_.readonly) {
    std::error_code ignored;  // someone else may have removed it: then it counts as unused
    fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  }
  return std::string(content);
}

void DiskCache::put(std::string_view kind, std::string_view key, std::string_view content) {
  if (options_.readonly) {
    return;
  }
  static std::atomic<std::uint64_t> serial{0};
  const fs::path path = path_of(kind, key);
  const fs::path aside = options_.folder / str(".", getpid(), "-", serial++, ".part");
  const Header header{magic, hash(options_.version), key.size(), content.size(), check(key, content)};
  {
    std::ofstream file(aside, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
    file.write(key.data(), static_cast<std::streamsize>(key.size()));
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
    std::error_code failure;
    if (file.fail()) {
      fs::remove(aside, failure);
      warn(options_.folder, "it can't be written to");
      return;
    }
    fs::rename(aside, path, failure);
    if (failure) {
      fs::remove(aside, failure);
      warn(options_.folder, "it can't be written to");
      return;
    }
  }
  const std::lock_guard lock(mutex_);
  added_ += sizeof(header) + key.size() + content.size();
  if (!measured_ || added_ > options_.max_bytes / 16) {
    shrink();
    measured_ = true;
    added_ = 0;
  }
}

fs::path DiskCache::path_of(std::string_view kind, std::string_view key) const {
  std::ostringstream name;
  name << kind << '-' << std::hex << (hash(key) ^ hash(options_.version) * 31) << suffix;
  return options_.folder / name.str();
}

void DiskCache::warn(const fs::path& file, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (warned_.insert(file).second) {
    std::cerr << "[spool] the persistent cache ignores '" << file.string() << "': " << what << '\n';
  }
}

void DiskCache::shrink() {
  struct File {
    fs::file_time_type used;
    std::size_t nbytes;
    fs::path path;
  };
  std::vector<File> files;
  std::size_t total = 0;
  // Other processes add and remove files meanwhile: what can't be looked at is not counted.
  std::error_code failure;
  for (fs::directory_iterator at(options_.folder, failure), end; !failure && at != end; at.increment(failure)) {
    std::error_code gone;
    const auto used = at->last_write_time(gone);
    const bool part = at->path().extension() == ".part";
    if (gone || (!part && at->path().extension() != suffix)) {
      continue;
    }
    if (part) {  // a writer that died left it, if it is old
      if (fs::file_time_type::clock::now() - used > std::chrono::hours(1)) {
        fs::remove(at->path(), gone);
      }
      continue;
    }
    const std::size_t nbytes = at->file_size(gone);
    if (!gone) {
      files.push_back({used, nbytes, at->path()});
      total += nbytes;
    }
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used < b.used; });
  // Somewhat below the bound, so that not every write measures the folder.
  const std::size_t wanted = options_.max_bytes - options_.max_bytes / 8;
  if (total <= options_.max_bytes) {
    return;
  }
  for (const File& file : files) {
    if (total <= wanted) {
      break;
    }
    std::error_code gone;
    fs::remove(file.path, gone);
    total -= file.nbytes;
  }
}

}  // namespace spool
