#include "src/engine/native/blocked_pool.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "src/base/error.h"

#ifndef _OPENMP
#error "at::parallel_for needs OpenMP to run on more than one thread"
#endif

namespace spool::native {
namespace {

/// One plane is a block of channels of one image. Lengths in elements of the block.
struct Window {
  std::int64_t planes, height, width, out_height, out_width;
  std::int64_t kernel[2], stride[2], padding[2];
};

/// The part of a window that lies in the image: taps [first, last).
struct Span {
  std::int64_t start, first, last;
};
Span span(std::int64_t position, std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  const std::int64_t start = position * stride - padding;
  return {start, std::max<std::int64_t>(0, -start), std::min(kernel, size - start)};
}

/// Calls `visit(position of the output, rows, columns)` for all positions of a plane.
template <class Visit>
void for_each_window(const Window& window, const Visit& visit) {
  for (std::int64_t y = 0; y < window.out_height; ++y) {
    const Span rows = span(y, window.height, window.kernel[0], window.stride[0], window.padding[0]);
    for (std::int64_t x = 0; x < window.out_width; ++x) {
      visit(y * window.out_width + x, rows, span(x, window.width, window.kernel[1], window.stride[1], window.padding[1]));
    }
  }
}

template <int lanes>
void pool_plane(const Window& window, const float* input, float* output, std::uint8_t* taps) {
  for_each_window(window, [&](std::int64_t at, const Span& rows, const Span& columns) {
    float best[lanes];
    std::int32_t tap[lanes];
    std::fill_n(best, lanes, -std::numeric_limits<float>::infinity());
    std::fill_n(tap, lanes, static_cast<std::int32_t>(rows.first * window.kernel[1] + columns.first));
    for (std::int64_t r = rows.first; r < rows.last; ++r) {
      for (std::int64_t c = columns.first; c < columns.last; ++c) {
        const float* from = input + ((rows.start + r) * window.width + columns.start + c) * lanes;
        const auto here = static_cast<std::int32_t>(r * window.kernel[1] + c);
        for (int lane = 0; lane < lanes; ++lane) {
          const bool take = from[lane] > best[lane] || from[lane] != from[lane];
          best[lane] = take ? from[lane] : best[lane];
          tap[lane] = take ? here : tap[lane];
        }
      }
    }
    for (int lane = 0; lane < lanes; ++lane) {
      output[at * lanes + lane] = best[lane];
      taps[at * lanes + lane] = static_cast<std::uint8_t>(tap[lane]);
    }
  });
}

template <int lanes>
void unpool_plane(const Window& window, const float* output, const std::uint8_t* taps, float* input) {
  std::fill_n(input, window.height * window.width * lanes, 0.0F);
  for_each_window(window, [&](std::int64_t at, const Span& rows, const Span& columns) {
    for (int lane = 0; lane < lanes; ++lane) {
      const std::int64_t tap = taps[at * lanes + lane];
      const std::int64_t row = rows.start + tap / window.kernel[1];
      const std::int64_t column = columns.start + tap % window.kernel[1];
      input[(row * window.width + column) * lanes + lane] += output[at * lanes + lane];
    }
  });
}

class PoolStep final : public Step {
 public:
  /// Of the forward call or the backward one: the image or its gradient, the result or its gradient, the taps.
  PoolStep(const Node& node, const Window& window, std::int64_t block, at::Tensor image, at::Tensor pooled, at::Tensor taps)
      : Step(node),
        window_(window),
        block_(block),
        backward_(node.op == &ops::max_pool_backward),
        image_(std::move(image)),
        pooled_(std::move(pooled)),
        taps_(std::move(taps)) {}

  void run(RunState& /*state*/) override {
    auto* image = static_cast<float*>(image_.mutable_data_ptr());
    auto* pooled = static_cast<float*>(pooled_.mutable_data_ptr());
    auto* taps = static_cast<std::uint8_t*>(taps_.mutable_data_ptr());
    const std::int64_t in = window_.height * window_.width * block_;
    const std::int64_t out = window_.out_height * window_.out_width * block_;
    const auto pool = block_ == 16 ? &pool_plane<16> : &pool_plane<8>;
    const auto unpool = block_ == 16 ? &unpool_plane<16> : &unpool_plane<8>;
    at::parallel_for(0, window_.planes, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        if (backward_) {
          unpool(window_, pooled + plane * out, taps + plane * out, image + plane * in);
        } else {
          pool(window_, image + plane * in, pooled + plane * out, taps + plane * out);
        }
      }
    });
  }

 private:
  const Window window_;
  const std::int64_t block_;
  const bool backward_;
  at::Tensor image_;
  at::Tensor pooled_;
  at::Tensor taps_;
};

}  // namespace

std::unique_ptr<Step> blocked_pool_step(const Graph& graph, const Node& node, const StepTensors& tensors) {
  const bool backward = node.op == &ops::max_pool_backward;
  if (!backward && node.op != &ops::max_pool) {
    return nullptr;
  }
  const auto& first = node.args[0].geometry.sizes;
  const auto& made = graph.values[static_cast<std::size_t>(node.results[0])].geometry.sizes;
  const auto& image = backward ? made : first;
  const auto& pooled = backward ? first : made;
  const std::int64_t block = image.back();
  SPOOL_ASSERT(block == 8 || block == 16, "Pooling in blocks of ", block, ".");
  Window window{image[0] * image[1], image[2], image[3], pooled[2], pooled[3], {}, {}, {}};
  std::copy_n(node.args[1].list.begin(), 2, window.kernel);
  std::copy_n(node.args[2].list.begin(), 2, window.stride);
  std::copy_n(node.args[3].list.begin(), 2, window.padding);
  const at::Tensor given = tensors.operand(node.args[0]);
  const at::Tensor result = tensors.result(node.results[0]);
  if (backward) {
    return std::make_unique<PoolStep>(node, window, block, result, given, tensors.operand(node.args[4]));
  }
  return std::make_unique<PoolStep>(node, window, block, given, result, tensors.result(node.results[1]));
}

}  // namespace spool::native
