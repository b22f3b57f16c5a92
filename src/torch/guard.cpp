// The device guard of xla: one device, one stream. Autograd reads devices and streams through it.
#include "src/torch/guard.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

namespace spool::torch_side {
namespace {

std::atomic<void (*)()> device_waiter{nullptr};

void wait_for_device() {
  if (auto* wait = device_waiter.load(std::memory_order_acquire)) {
    wait();
  }
}

const c10::Device kDevice(c10::DeviceType::XLA, 0);

struct DeviceGuardImpl final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::XLA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    setDevice(device);
    return kDevice;
  }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.is_xla(), "[device guard] expected a device of type xla, got ", device);
    TORCH_CHECK(device.index() <= 0, "[device guard] there is one xla device, xla:0, but xla:", static_cast<int>(device.index()),
                " was asked for; use torch_spool.device()");
  }
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}

  c10::Stream getStream(c10::Device /*device*/) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream getDefaultStream(c10::Device /*device*/) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  // The queue is in order, so more streams than the one would add nothing: every request is given the default one.
  c10::Stream getStreamFromGlobalPool(c10::Device /*device*/, bool /*isHighPriority*/) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream getNewStream(c10::Device /*device*/, int /*priority*/) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream exchangeStream(c10::Stream /*stream*/) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  bool queryStream(const c10::Stream& /*stream*/) const override {
    // Whether it is finished cannot be asked without waiting; the truth after waiting is always "yes".
    wait_for_device();
    return true;
  }
  void synchronizeStream(const c10::Stream& /*stream*/) const override { wait_for_device(); }
  void synchronizeDevice(const c10::DeviceIndex /*device_index*/) const override { wait_for_device(); }

  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};

C10_REGISTER_GUARD_IMPL(XLA, DeviceGuardImpl);

}  // namespace

void set_device_waiter(void (*wait)()) { device_waiter.store(wait, std::memory_order_release); }

}  // namespace spool::torch_side
