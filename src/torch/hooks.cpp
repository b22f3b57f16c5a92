// What PyTorch asks about device xla beyond running ops: whether it is there, its generators, its pinned memory.
#include "src/torch/generator.h"

#include <ATen/detail/XLAHooksInterface.h>
#include <c10/core/CPUAllocator.h>

#include <memory>
#include <string>

namespace spool::torch_side {
namespace {

void check_index(const char* call, c10::DeviceIndex index) {
  TORCH_CHECK(index == 0 || index == -1, "[", call, "] there is one xla device, xla:0, but index ", static_cast<int>(index),
              " was asked for; use torch_spool.device()");
}

struct Hooks final : public at::XLAHooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  void init() const override {}
  bool hasXLA() const override { return true; }
  std::string showConfig() const override { return "Spool (lazy tensors on device xla)"; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    check_index("hasPrimaryContext", index);
    return true;
  }

  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex index) const override { check_index("setCurrentDevice", index); }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    check_index("exchangeDevice", index);
    return 0;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    // A negative index means "leave it as it is" here.
    if (index >= 0) {
      check_index("maybeExchangeDevice", index);
    }
    return 0;
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    check_index("default_generator", index);
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    check_index("Generator", index);
    return new_generator();
  }

  // Nothing copies to this device by DMA, so page-locked memory would gain nothing: ordinary host memory serves, and none of it is pinned.
  bool isPinnedPtr(const void* /*data*/) const override { return false; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  c10::Device getDeviceFromPtr(void* /*data*/) const override { return {c10::DeviceType::XLA, 0}; }
};

// PyTorch looks the hooks up under this name; it is part of its interface.
const c10::Registerer<std::string, std::unique_ptr<at::XLAHooksInterface>> register_hooks(
    "torch_xla::detail::XLAHooks", at::XLAHooksRegistry(),
    []() -> std::unique_ptr<at::XLAHooksInterface> { return std::make_unique<Hooks>(); });

}  // namespace
}  // namespace spool::torch_side
