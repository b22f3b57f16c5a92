#include "src/torch/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/core/TensorImpl.h>

#include <mutex>
#include <utility>

namespace spool::torch_side {
namespace {

// Forwards everything to a CPU generator. Callers lock this object's mutex by PyTorch's convention, while ops that draw lock the wrapped
// generator's: each call here therefore takes the wrapped one's as well.
class LazyGenerator final : public c10::GeneratorImpl {
 public:
  explicit LazyGenerator(at::Generator inner)
      : c10::GeneratorImpl(c10::Device(c10::DeviceType::XLA, 0), c10::DispatchKeySet(c10::DispatchKey::XLA)),
        inner_(std::move(inner)) {}

  const at::Generator& inner() const { return inner_; }

  void set_current_seed(uint64_t seed) override {
    const std::scoped_lock lock(inner_.mutex());
    inner_.unsafeGetGeneratorImpl()->set_current_seed(seed);
  }
  void set_offset(uint64_t offset) override {
    const std::scoped_lock lock(inner_.mutex());
    inner_.unsafeGetGeneratorImpl()->set_offset(offset);
  }
  uint64_t get_offset() const override {
    const std::scoped_lock lock(inner_.mutex());
    return inner_.unsafeGetGeneratorImpl()->get_offset();
  }
  uint64_t current_seed() const override {
    const std::scoped_lock lock(inner_.mutex());
    return inner_.unsafeGetGeneratorImpl()->current_seed();
  }
  uint64_t seed() override {
    const std::scoped_lock lock(inner_.mutex());
    return inner_.unsafeGetGeneratorImpl()->seed();
  }
  void set_state(const c10::TensorImpl& new_state) override {
    const std::scoped_lock lock(inner_.mutex());
    inner_.unsafeGetGeneratorImpl()->set_state(new_state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const std::scoped_lock lock(inner_.mutex());
    return inner_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  LazyGenerator* clone_impl() const override {
    const std::scoped_lock lock(inner_.mutex());
    return new LazyGenerator(at::Generator(inner_.unsafeGetGeneratorImpl()->clone()));
  }

  // A Generator is a handle: its methods are not const, but using them does not change which generator is wrapped.
  mutable at::Generator inner_;
};

}  // namespace

const at::Generator& default_generator() {
  // Never destroyed: generators may be used by other objects' destructors at process exit.
  static const auto* generator = new at::Generator(at::make_generator<LazyGenerator>(at::detail::getDefaultCPUGenerator()));
  return *generator;
}

at::Generator new_generator() { return at::make_generator<LazyGenerator>(at::detail::createCPUGenerator()); }

at::Generator cpu_generator(const std::optional<at::Generator>& generator) {
  if (!generator.has_value() || !generator->defined()) {
    return at::detail::getDefaultCPUGenerator();
  }
  const auto device = generator->device().type();
  if (device == c10::DeviceType::CPU) {
    return *generator;
  }
  const auto* lazy = dynamic_cast<const LazyGenerator*>(generator->unsafeGetGeneratorImpl());
  TORCH_CHECK(lazy != nullptr, "Expected a 'xla' device type for generator but found '", device, "'");
  return lazy->inner();
}

}  // namespace spool::torch_side
