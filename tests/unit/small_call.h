// Calls of made-up ops on slots of our own, for tests of the tape and what follows it.
#pragma once

#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "src/tape/call.h"
#include "src/tape/signature.h"
#include "src/tape/slot.h"
#include "src/tape/tape.h"

namespace spool::test {

/// What a lazy storage is to a slot: it owns one reference and says when it goes.
class Storage {
 public:
  explicit Storage(Slot& slot) : slot_(&slot) {}
  Storage(Storage&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  Storage& operator=(Storage&& other) noexcept {
    std::swap(slot_, other.slot_);
    return *this;
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() { drop(); }

  void drop() {
    if (slot_ != nullptr) {
      std::exchange(slot_, nullptr)->release();
    }
  }
  Slot& operator*() const { return *slot_; }
  Slot* operator->() const { return slot_; }

 private:
  Slot* slot_;
};

/// Storage of that size which nothing has written.
inline Storage uninitialised(std::size_t nbytes) { return Storage(*new Slot(nbytes)); }

/// Storage of that size with content.
inline Storage filled(std::size_t nbytes) {
  Storage storage = uninitialised(nbytes);
  storage->buffer = std::make_shared<Buffer>();
  storage->buffer->nbytes = nbytes;
  return storage;
}

/// Writes a call's words as the recorder does, one argument a method.
class SmallCall {
 public:
  explicit SmallCall(const Op& op) { call_.op = &op; }
  operator const Call&() const { return call_; }  // NOLINT(google-explicit-constructor): stands for the call it writes

  SmallCall& read(const Storage& storage, const Geometry& geometry) { return tensor(*storage, geometry, false); }
  SmallCall& write(const Storage& storage, const Geometry& geometry) { return tensor(*storage, geometry, true); }
  SmallCall& none() { return words({head(Tag::None)}); }
  SmallCall& integer(std::int64_t value) { return words({head(Tag::Int), value}); }
  SmallCall& boolean(bool value) { return words({head(Tag::Bool, static_cast<std::uint32_t>(value))}); }
  SmallCall& real(double value) { return words({head(Tag::Double), std::bit_cast<std::int64_t>(value)}); }
  SmallCall& device() { return words({head(Tag::Device)}); }
  SmallCall& integers(const std::vector<std::int64_t>& values) {
    words({head(Tag::IntList, static_cast<std::uint32_t>(values.size()))});
    return words(values);
  }
  SmallCall& booleans(const std::vector<std::int64_t>& values) {
    words({head(Tag::BoolList, static_cast<std::uint32_t>(values.size()))});
    return words(values);
  }
  SmallCall& reals(const std::vector<double>& values) {
    words({head(Tag::DoubleList, static_cast<std::uint32_t>(values.size()))});
    for (const double value : values) {
      words({std::bit_cast<std::int64_t>(value)});
    }
    return *this;
  }
  SmallCall& text(const std::string& value) {
    words({head(Tag::String, static_cast<std::uint32_t>(value.size()))});
    for (std::size_t at = 0; at < value.size(); at += 8) {
      std::int64_t packed = 0;
      std::memcpy(&packed, value.data() + at, std::min<std::size_t>(8, value.size() - at));
      words({packed});
    }
    return *this;
  }
  SmallCall& number(double value) {
    call_.numbers.push_back({.real = value});
    return words({head(Tag::Number, NumberType{}.encode())});
  }
  SmallCall& generator(GeneratorState state = std::make_shared<int>(0)) {
    call_.generators.push_back(std::move(state));
    return words({head(Tag::Generator)});
  }
  /// The next `length` arguments are the elements of a list.
  SmallCall& list_of(Tag tag, std::uint32_t length) { return words({head(tag, length)}); }

 private:
  SmallCall& words(const std::vector<std::int64_t>& more) {
    call_.words.insert(call_.words.end(), more.begin(), more.end());
    return *this;
  }
  SmallCall& tensor(Slot& slot, const Geometry& geometry, bool writes) {
    const auto ndim = static_cast<std::uint32_t>(geometry.sizes.size());
    words({head(Tag::Tensor, static_cast<std::uint32_t>(static_cast<std::uint8_t>(geometry.dtype)) |
                                 static_cast<std::uint32_t>(geometry.itemsize) << 8U | ndim << 16U),
           geometry.offset});
    words(geometry.sizes);
    words(geometry.strides);
    call_.slots.push_back(&slot);
    call_.writes.push_back(static_cast<std::uint8_t>(writes));
    return *this;
  }

  Call call_;
};

inline Results one_result(const Geometry& geometry) {
  return {.tensors = {FreshResult{geometry, geometry.storage_bytes()}}, .list_lengths = {}};
}

/// A tape and its signatures, recorded on as the recorder does: follow, else infer and append.
struct Recording {
  SignatureTable signatures;
  Tape tape;
  bool followed = false;  ///< whether the last call was

  const TapeNode& record(const Call& call, const Results& results = {}, const LocationPtr& location = {}) {
    const TapeNode* node = tape.follow(call);
    followed = node != nullptr;
    if (!followed) {
      node = tape.append(signatures.intern(call, results), call, location);
    }
    return *node;
  }
  /// Records a call with one fresh result and gives its storage.
  Storage make(const Call& call, const Geometry& result) {
    record(call, one_result(result));
    return Storage(tape.result(0));
  }
};

}  // namespace spool::test
