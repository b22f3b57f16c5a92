#include "src/runtime/extract.h"

#include <algorithm>
#include <iostream>
#include <unordered_map>

#include "src/base/error.h"
#include "src/base/settings.h"
#include "src/runtime/device.h"

namespace spool {

Extraction::Extraction() : stand_in_(std::make_shared<Buffer>()) {
  SPOOL_CHECK(here_ == nullptr, Runtime,
              "[extract] this thread is extracting a graph already; a graph can't extract another one");
  here_ = this;
}

Extraction::~Extraction() {
  here_ = nullptr;
  const auto lock = Device::get().lock();
  tape_.reset();
}

Slot& Extraction::placeholder(std::size_t nbytes) const {
  auto* slot = new Slot(nbytes);
  slot->buffer = stand_in_;
  return *slot;
}

void Extraction::abandon(const std::string& why) {
  if (reason_.empty()) {
    reason_ = why;
    if (settings().logs("break")) {
      std::cerr << "[spool] a graph was not extracted: " << why << '\n';
    }
  }
  fail(ErrorKind::Runtime, "[extract] the graph can't be compiled as one: ", reason_);
}

void Extraction::admit(const Call& call) {
  if (!reason_.empty()) {
    abandon(reason_);
  }
  for (const Slot* slot : call.slots) {
    if (!tape_.touches(*slot) && (slot->tape != 0 || (slot->buffer != nullptr && !intact(*slot)))) {
      abandon(str(call.op->name, " uses a tensor that is no input of the graph"));
    }
  }
}

Extracted Extraction::finish(std::span<Slot* const> inputs, std::span<Slot* const> results) {
  if (!reason_.empty()) {
    abandon(reason_);
  }
  Device& device = Device::get();
  const auto lock = device.lock();
  if (!tape_.generators().empty()) {
    abandon("it draws random numbers");
  }
  std::unordered_map<const Slot*, std::uint32_t> storages;
  for (Slot* slot : inputs) {
    if (!intact(*slot)) {
      abandon("an input was written to from the host");
    }
    storages.emplace(slot, static_cast<std::uint32_t>(storages.size()));
  }
  Extracted extracted;
  for (Slot* slot : results) {
    if (slot->buffer != nullptr || (slot->tape != 0 && !tape_.touches(*slot))) {
      abandon("it returns a tensor that is no input and that it does not compute");
    }
    storages.emplace(slot, static_cast<std::uint32_t>(storages.size()));
    extracted.made.push_back(slot->nbytes);
  }
  const std::vector<bool> live = tape_.live();
  std::vector<std::uint32_t> storage_of(live.size(), 0);
  for (std::size_t i = 0; i < live.size(); ++i) {
    const auto known = storages.find(&*tape_.slots()[i]);
    if (known != storages.end()) {
      storage_of[i] = known->second;
    } else if (live[i]) {
      abandon("something outside the graph keeps a tensor that it computes");
    }
  }
  extracted.read.resize(inputs.size());
  extracted.replaced.resize(inputs.size());
  extracted.numbers = std::move(tape_.numbers());
  if (tape_.empty()) {
    return extracted;
  }
  extracted.executable = device.compile(tape_.path(), live);
  if (extracted.executable != nullptr) {
    for (GraphInput& input : extracted.executable->inputs) {
      input.slot = storage_of[input.slot];
      extracted.read[input.slot] = 1;
    }
    for (GraphOutput& output : extracted.executable->outputs) {
      output.slot = storage_of[output.slot];
      if (output.slot < inputs.size()) {
        extracted.replaced[output.slot] = 1;
      }
    }
  }
  return extracted;
}

}  // namespace spool
