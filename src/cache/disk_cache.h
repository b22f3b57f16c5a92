// Disk cache: a folder of small files that processes share. Says nothing about what it keeps: a key and a content, both bytes.
//
// Each entry is one file, written aside and renamed into place, so that readers and concurrent writers see whole files only. A file
// that is torn, or was not written by this cache, is ignored with a warning (once for each file); one of another version (Spool,
// PyTorch, LLVM, processor) has another name and is left alone until the bound removes it. The bound: when the folder
// holds more than it may, the files that were used least recently go first.
//
// Threading: all methods from any thread. Failures to write are warned about once and otherwise harmless: nothing throws but the
// constructor.
#pragma once

#include <cstddef>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace spool {

class DiskCache {
 public:
  struct Options {
    std::filesystem::path folder;
    bool readonly = false;
    std::size_t max_bytes = 0;
    std::string version;  ///< entries are found only by processes with the same one
  };

  /// Makes the folder if it isn't there. Throws Error(Value) if that can't be, or if it can't be written to (unless `readonly`).
  explicit DiskCache(Options options);

  /// The content stored for exactly this key; nothing if there is none.
  std::optional<std::string> find(std::string_view kind, std::string_view key);
  /// Stores it, unless `readonly`; then removes what exceeds the bound.
  void put(std::string_view kind, std::string_view key, std::string_view content);

  const Options& options() const { return options_; }

 private:
  std::filesystem::path path_of(std::string_view kind, std::string_view key) const;
  void warn(const std::filesystem::path& file, const std::string& what);
  void shrink();

  const Options options_;
  std::mutex mutex_;
  std::set<std::filesystem::path> warned_;
  std::size_t added_ = 0;  ///< bytes written since the folder was last measured
  bool measured_ = false;
};

}  // namespace spool
