// The functions that are written out in generated code, on floats from end to end of their range.
#include <gtest/gtest.h>

#include "tests/unit/kernel_build.h"

namespace spool::test {
namespace {

/// Units in the last place. PyTorch's own functions promise 1; its tests allow about 11.
constexpr double most = 1.5;

/// Runs `op` on every `step`-th float and returns the largest error in units of the last place of the exact result.
double worst(KernelOp op, double (*exact)(double), std::uint64_t step) {
  KernelBuilder k(1, 1);
  k.store(k.add(op, DType::Float32, {k.load()}));
  constexpr std::int64_t block = 1 << 16;
  k.kernel.segments.push_back({{block}, {{0, -1, 0, {1}}, {1, -1, 0, {1}}}, {}});
  native::Extent extent;
  native::Form form = native::make_form(k.kernel, k.kernel.segments[0], false, native::vector_bytes(), extent);
  std::vector<native::KernelLaunch> launches;
  launches.emplace_back(std::move(form), std::move(extent), k.kernel.segments[0]);
  launches[0].set_code(native::compile_kernels(std::vector<native::Form>{launches[0].form()})[0]);
  std::vector<float> x(block), y(block);
  std::vector<native::LaunchArguments> arguments{
      {{reinterpret_cast<char*>(x.data()), reinterpret_cast<char*>(y.data())}, {}, nullptr}};
  double error = 0;
  for (std::uint64_t first = 0; first < std::uint64_t{1} << 32U; first += block * step) {
    for (std::int64_t i = 0; i < block; ++i) {
      x[static_cast<std::size_t>(i)] =
          std::bit_cast<float>(static_cast<std::uint32_t>(first + static_cast<std::uint64_t>(i) * step));
    }
    native::run_launches(launches, arguments);
    for (std::size_t i = 0; i < block; ++i) {
      const double want = exact(x[i]);
      const float nearest = static_cast<float>(want);
      if (nearest == y[i] || (std::isnan(want) && std::isnan(y[i]))) {
        continue;
      }
      const double unit = std::max(std::ldexp(1.0, std::ilogb(want) - 23), 0x1p-149);
      const double off = std::fabs(y[i] - want) / unit;
      if (!(off <= error)) {
        error = std::isnan(off) ? INFINITY : off;
        if (error > most) {
          ADD_FAILURE() << name(op) << " of " << x[i] << ": expected " << want << ", got " << y[i];
          return error;
        }
      }
    }
  }
  return error;
}

/// Odd, so that all exponents and signs come up; 1 looks at all floats and takes minutes.
constexpr std::uint64_t step = 61;

TEST(KernelMath, ExpIsWithinAboutAUnit) { EXPECT_LE(worst(KernelOp::Exp, std::exp, step), most); }
TEST(KernelMath, LogIsWithinAboutAUnit) { EXPECT_LE(worst(KernelOp::Log, std::log, step), most); }
TEST(KernelMath, ErfIsWithinAboutAUnit) { EXPECT_LE(worst(KernelOp::Erf, std::erf, step), most); }
TEST(KernelMath, TanhIsWithinAboutAUnit) { EXPECT_LE(worst(KernelOp::Tanh, std::tanh, step), most); }

}  // namespace
}  // namespace spool::test
