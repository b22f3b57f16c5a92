#include "src/cache/persistent.h"

#include <mutex>

#include "src/base/settings.h"

namespace spool {
namespace {

std::mutex mutex;

std::shared_ptr<DiskCache>& opened() {
  static auto* const cache = new std::shared_ptr<DiskCache>;  // never destroyed: a plan may be compiled while the process ends
  return *cache;
}

}  // namespace

void open_persistent_cache(const std::filesystem::path& folder, bool readonly, const std::string& version) {
  auto cache = std::make_shared<DiskCache>(
      DiskCache::Options{.folder = folder, .readonly = readonly, .max_bytes = settings().disk_cache_bytes, .version = version});
  const std::lock_guard lock(mutex);
  opened() = std::move(cache);
}

std::shared_ptr<DiskCache> persistent_cache() {
  const std::lock_guard lock(mutex);
  return opened();
}

}  // namespace spool
