// The generator, guard and hooks of device xla.
#include "src/torch/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/XLAHooksInterface.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <mutex>

namespace spool::torch_side {
namespace {

void seed(at::Generator generator, uint64_t value) {
  const std::scoped_lock lock(generator.mutex());
  generator.set_current_seed(value);
}

TEST(Generator, SeedingTheDeviceSeedsTheCpuStream) {
  seed(at::detail::getDefaultCPUGenerator(), 7);
  const auto expected = at::rand({5});
  seed(default_generator(), 7);
  EXPECT_TRUE(at::equal(expected, at::rand({5})));
  EXPECT_EQ(default_generator().device(), c10::Device(c10::DeviceType::XLA, 0));
}

TEST(Generator, StateIsThatOfTheCpuStream) {
  auto generator = default_generator();
  seed(generator, 3);
  const auto state = generator.get_state();
  EXPECT_TRUE(at::equal(state, at::detail::getDefaultCPUGenerator().get_state()));
  const auto expected = at::rand({5});
  generator.set_state(state);
  EXPECT_TRUE(at::equal(expected, at::rand({5})));
}

TEST(Generator, UnwrapsToTheCpuGeneratorThatDraws) {
  EXPECT_EQ(cpu_generator(std::nullopt), at::detail::getDefaultCPUGenerator());
  EXPECT_EQ(cpu_generator(at::Generator()), at::detail::getDefaultCPUGenerator());
  EXPECT_EQ(cpu_generator(default_generator()), at::detail::getDefaultCPUGenerator());
  const auto own = at::detail::createCPUGenerator(5);
  EXPECT_EQ(cpu_generator(own), own);
}

TEST(Generator, NewAndClonedOnesHaveStreamsOfTheirOwn) {
  auto one = new_generator();
  seed(one, 11);
  auto copy = one.clone();
  EXPECT_NE(cpu_generator(one), cpu_generator(copy));
  EXPECT_TRUE(at::equal(at::rand({5}, cpu_generator(one)), at::rand({5}, cpu_generator(copy))));
  seed(copy, 12);
  EXPECT_EQ(one.current_seed(), 11u);
}

TEST(Hooks, TellPyTorchThatTheDeviceIsThere) {
  const auto& hooks = at::detail::getXLAHooks();
  EXPECT_TRUE(hooks.isBuilt() && hooks.isAvailable() && hooks.hasXLA());
  EXPECT_EQ(hooks.deviceCount(), 1);
  EXPECT_EQ(hooks.getDefaultGenerator(), default_generator());
  EXPECT_THROW(hooks.setCurrentDevice(1), c10::Error);
}

TEST(Guard, KnowsOneDevice) {
  const auto* guard = c10::impl::getDeviceGuardImpl(c10::DeviceType::XLA);
  EXPECT_EQ(guard->deviceCount(), 1);
  EXPECT_EQ(guard->getDevice(), c10::Device(c10::DeviceType::XLA, 0));
  EXPECT_EQ(guard->exchangeDevice(c10::Device(c10::DeviceType::XLA, 0)), c10::Device(c10::DeviceType::XLA, 0));
  EXPECT_THROW(guard->setDevice(c10::Device(c10::DeviceType::XLA, 1)), c10::Error);
}

}  // namespace
}  // namespace spool::torch_side
