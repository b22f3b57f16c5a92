#include "src/engine/native/planned_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <algorithm>

namespace spool::native {
namespace {

/// Smaller allocations come from malloc's own lists, which is as fast.
constexpr std::size_t smallest_scratch = 4096;
/// What the cache keeps. Workspaces are mostly packed weights: this holds those of a ResNet's largest convolution several times.
constexpr std::size_t most_cached = std::size_t{64} << 20U;

thread_local bool session_open = false;

}  // namespace

PlannedAllocator& PlannedAllocator::instance() {
  static auto* allocator = [] {
    auto* made = new PlannedAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(made);
    // A child that is forked while a plan runs must not find the lock held by a thread that it does not have.
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); }, [] { instance().mutex_.unlock(); });
    return made;
  }();
  return *allocator;
}

PlannedAllocator::Session::Session() {
  instance();
  session_open = true;
}

PlannedAllocator::Session::~Session() {
  end_call();
  session_open = false;
}

void PlannedAllocator::Session::begin_call(std::span<Place> places, std::span<const std::int16_t> order) {
  PlannedAllocator& allocator = instance();
  const std::scoped_lock lock(allocator.mutex_);
  allocator.places_ = places;
  allocator.order_ = order;
  allocator.allocated_.clear();
  ++allocator.call_;
}

std::span<void* const> PlannedAllocator::Session::end_call() {
  PlannedAllocator& allocator = instance();
  const std::scoped_lock lock(allocator.mutex_);
  allocator.places_ = {};
  allocator.order_ = {};
  return allocator.allocated_;
}

c10::DataPtr PlannedAllocator::allocate(std::size_t nbytes) {
  if (!session_open || nbytes == 0) {
    return previous_->allocate(nbytes);
  }
  const std::scoped_lock lock(mutex_);
  void* data = planned(nbytes);
  if (data == nullptr && nbytes >= smallest_scratch) {
    data = cached(nbytes);
  }
  if (data == nullptr) {
    c10::DataPtr passed_on = previous_->allocate(nbytes);
    note(passed_on.get());
    return passed_on;
  }
  note(data);
  return {data, data, &release, at::kCPU};
}

void PlannedAllocator::note(void* data) {
  if (!places_.empty()) {
    allocated_.push_back(data);
  }
}

/// The planned place for the call's next allocation; null if it is not a result.
void* PlannedAllocator::planned(std::size_t nbytes) {
  std::size_t index = 0;
  if (order_.empty()) {
    while (index < places_.size() && (places_[index].taken || places_[index].nbytes != nbytes)) {
      ++index;
    }
  } else {
    const std::size_t ordinal = allocated_.size();
    index = ordinal < order_.size() && order_[ordinal] >= 0 ? static_cast<std::size_t>(order_[ordinal]) : places_.size();
  }
  if (index >= places_.size() || places_[index].taken || places_[index].nbytes != nbytes) {
    return nullptr;
  }
  places_[index].taken = true;
  live_.push_back({places_[index].data, nbytes, static_cast<std::int32_t>(index), call_});
  return places_[index].data;
}

/// A block of scratch: the cached one that fits best, if it is not far too large, otherwise a new one.
void* PlannedAllocator::cached(std::size_t nbytes) {
  auto best = free_.end();
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    if (block->nbytes >= nbytes && block->nbytes <= 2 * nbytes && (best == free_.end() || block->nbytes < best->nbytes)) {
      best = block;
    }
  }
  if (best != free_.end()) {
    live_.push_back(*best);
    free_bytes_ -= best->nbytes;
    free_.erase(best);
  } else {
    live_.push_back({previous_->raw_allocate(nbytes), nbytes});
    counter_.add(nbytes);
  }
  return live_.back().data;
}

void PlannedAllocator::free_block(const Block& block) {
  previous_->raw_deallocate(block.data);
  counter_.subtract(block.nbytes);
}

void PlannedAllocator::give_back(void* data) {
  std::unique_lock lock(mutex_);
  const auto found = std::find_if(live_.rbegin(), live_.rend(), [&](const Block& block) { return block.data == data; });
  if (found == live_.rend()) {
    lock.unlock();
    previous_->raw_deallocate(data);
    return;
  }
  const Block block = *found;
  live_.erase(std::next(found).base());
  if (block.place >= 0) {
    // A temporary that had a result's size: the result itself may still come.
    if (block.call == call_ && static_cast<std::size_t>(block.place) < places_.size()) {
      places_[static_cast<std::size_t>(block.place)].taken = false;
    }
    return;
  }
  if (block.nbytes > most_cached) {
    free_block(block);
    return;
  }
  free_.push_back(block);
  free_bytes_ += block.nbytes;
  while (free_bytes_ > most_cached) {
    free_bytes_ -= free_.front().nbytes;
    free_block(free_.front());
    free_.erase(free_.begin());
  }
}

void PlannedAllocator::release(void* data) {
  if (data != nullptr) {
    instance().give_back(data);
  }
}

c10::DeleterFnPtr PlannedAllocator::raw_deleter() const { return &release; }

void PlannedAllocator::copy_data(void* to, const void* from, std::size_t nbytes) const { default_copy_data(to, from, nbytes); }

}  // namespace spool::native
