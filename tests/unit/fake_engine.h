// An engine whose plans are functions: for tests of what is around engines.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "src/engine/engine.h"

namespace spool::test {

struct FakePlan final : Plan {
  explicit FakePlan(std::function<void(const RunArgs&)> run) : body(std::move(run)) {}
  std::function<void(const RunArgs&)> body;
};

class FakeEngine final : public Engine {
 public:
  std::string name() const override { return "fake"; }
  std::unique_ptr<Plan> compile(const Graph& /*graph*/, const PlanOptions& /*options*/, Graph* /*lowered*/) override {
    return std::make_unique<FakePlan>([](const RunArgs&) {});
  }
  std::unique_ptr<Plan> load(const Graph& lowered) override { return compile(lowered, {}, nullptr); }
  void run(Plan& plan, const RunArgs& args) override { static_cast<FakePlan&>(plan).body(args); }
  Memory allocate(std::size_t nbytes) override {
    void* data = std::malloc(nbytes == 0 ? 1 : nbytes);
    return {data, nbytes, data, [](void* context) { std::free(context); }};
  }
  MemoryInfo memory() const override { return {}; }
  Memory clone(const Memory& from) override {
    Memory copy = allocate(from.nbytes());
    std::memcpy(copy.data(), from.data(), from.nbytes());
    return copy;
  }
};

}  // namespace spool::test
