// The cache of machine code: what is compiled once, and that results don't depend on threads.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>

#include "src/base/error.h"
#include "tests/unit/kernel_build.h"

namespace spool::test {
namespace {

constexpr DType f32 = DType::Float32;

native::Form form_of(const KernelBuilder& k, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides) {
  Kernel kernel = k.kernel;
  kernel.segments.resize(1);
  kernel.segments[0].sizes = std::move(sizes);
  for (std::size_t a = 0; a < kernel.accesses.size(); ++a) {
    kernel.segments[0].places.push_back({static_cast<std::int32_t>(a), -1, 0, strides});
  }
  native::Extent extent;
  return native::make_form(kernel, kernel.segments[0], false, native::vector_bytes(), extent);
}

KernelBuilder scaled(double factor) {
  KernelBuilder k(2, 2);
  k.store(k.add(KernelOp::Mul, f32, {k.load(), k.constant(factor)}));
  return k;
}

TEST(KernelCache, OneCodeServesAllSizes) {
  const auto before = native::kernel_cache_stats().compiled;
  const auto code = native::compile_kernels(std::vector<native::Form>{
      form_of(scaled(3.25), {10, 20}, {20, 1}), form_of(scaled(3.25), {7, 5}, {5, 1}), form_of(scaled(3.25), {300, 1}, {1, 1})});
  EXPECT_EQ(native::kernel_cache_stats().compiled, before + 1);
  EXPECT_EQ(code[0], code[1]);
  EXPECT_EQ(code[0], code[2]);
}

TEST(KernelCache, OtherStridesAndConstantsAreOtherCode) {
  const auto code = native::compile_kernels(std::vector<native::Form>{form_of(scaled(4.25), {10, 20}, {20, 1}),
                                                                      form_of(scaled(4.25), {10, 20}, {40, 2}),
                                                                      form_of(scaled(5.25), {10, 20}, {20, 1})});
  EXPECT_NE(code[0], code[1]);
  EXPECT_NE(code[0], code[2]);
}

TEST(KernelCache, SeveralThreadsGetTheSameCode) {
  std::vector<native::KernelCodePtr> got(4);
  std::vector<std::thread> threads;
  for (auto& code : got) {
    threads.emplace_back(
        [&code] { code = native::compile_kernels(std::vector<native::Form>{form_of(scaled(6.25), {10, 20}, {20, 1})})[0]; });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& code : got) {
    EXPECT_EQ(code, got[0]);
  }
}

TEST(KernelCache, WhatNoKernelMayContainIsAnError) {
  KernelBuilder k(1, 1);
  const auto x = k.load();
  k.store(k.add(KernelOp::Shl, f32, {x, x}));
  try {
    native::compile_kernels(std::vector<native::Form>{form_of(k, {8}, {1})});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Internal);
    EXPECT_NE(std::string(error.what()).find("[compile] shl of floating point can't be in a kernel"), std::string::npos)
        << error.what();
  }
}

TEST(KernelRun, SumsHaveTheSameBitsForAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const KernelOver over : {KernelOver::Rest, KernelOver::Kept, KernelOver::All}) {
    KernelBuilder k(2, 1);
    k.store(k.reduce(KernelOp::ReduceSum, k.load(), over));
    Kernel kernel = k.kernel;
    const std::vector<std::int64_t> result = over == KernelOver::Rest   ? std::vector<std::int64_t>{1, 0}
                                             : over == KernelOver::Kept ? std::vector<std::int64_t>{0, 1}
                                                                        : std::vector<std::int64_t>{0, 0};
    kernel.segments.push_back({{700, 900}, {{0, -1, 0, {900, 1}}, {1, -1, 0, result}}, {}});
    std::vector<float> x(700 * 900), first(900), again(900);
    std::mt19937 random(5);
    for (float& value : x) {
      value = static_cast<float>(random()) * 0x1p-32F - 0.5F;
    }
    for (const int count : {1, 2, 3}) {
      at::set_num_threads(count);
      native::Extent extent;
      native::Form form = native::make_form(kernel, kernel.segments[0], false, native::vector_bytes(), extent);
      std::vector<native::KernelLaunch> launches;
      launches.emplace_back(std::move(form), std::move(extent), kernel.segments[0]);
      launches[0].set_code(native::compile_kernels(std::vector<native::Form>{launches[0].form()})[0]);
      std::vector<char> scratch(launches[0].scratch_bytes() + 64);
      std::vector<float>& y = count == 1 ? first : again;
      char* aligned = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64;
      std::vector<native::LaunchArguments> arguments{
          {{reinterpret_cast<char*>(x.data()), reinterpret_cast<char*>(y.data())}, {}, aligned}};
      native::run_launches(launches, arguments);
      if (count != 1) {
        EXPECT_EQ(first, again) << count << " threads";
      }
    }
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace spool::test
