// Pooling, padding and sampling of images.
#include "src/torch/rules.h"

#include <algorithm>

namespace spool::torch_side {
namespace {

// A batch of images (or one image) of another size; batches keep channels-last order.
at::Tensor like_image(const at::Tensor& input, const std::vector<int64_t>& spatial, bool keep_layout = true) {
  auto sizes = input.sizes().vec();
  sizes.resize(sizes.size() - spatial.size());
  const bool batched = sizes.size() == 2;
  sizes.insert(sizes.end(), spatial.begin(), spatial.end());
  return make_meta(sizes, input.scalar_type(),
                   batched && keep_layout ? input.suggest_memory_format() : at::MemoryFormat::Contiguous);
}

void check_image(const at::Tensor& input, int64_t spatial) {
  expect(input.dim() == spatial + 1 || input.dim() == spatial + 2);
  for (int64_t d = input.dim() == spatial + 1 ? 0 : 1; d < input.dim(); ++d) {
    expect(input.size(d) > 0);
  }
}

template <int64_t spatial>
std::optional<Results> adaptive_average(const Arguments& arguments) {
  const auto& input = arguments.tensor(0);
  auto sizes = arguments.integers(1);
  check_image(input, spatial);
  expect(static_cast<int64_t>(sizes.size()) == spatial && at::isFloatingType(input.scalar_type()));
  for (const int64_t size : sizes) {
    expect(size >= 0);
  }
  return Results{like_image(input, sizes, /*keep_layout=*/spatial == 2)};
}

// _adaptive_avg_pool*d_backward(grad_output, self)
template <int64_t spatial>
std::optional<Results> adaptive_average_gradient(const Arguments& arguments) {
  const auto &gradient = arguments.tensor(0), &input = arguments.tensor(1);
  check_image(gradient, spatial);
  expect(gradient.dim() == input.dim() && gradient.scalar_type() == input.scalar_type() &&
         at::isFloatingType(input.scalar_type()));
  for (int64_t d = 0; d < input.dim() - spatial; ++d) {
    expect(gradient.size(d) == input.size(d));
  }
  return Results{
      make_meta(input.sizes(), input.scalar_type(), spatial == 2 ? input.suggest_memory_format() : at::MemoryFormat::Contiguous)};
}

// reflection_pad2d(self, padding): left, right, top, bottom
std::optional<Results> reflection_pad(const Arguments& arguments) {
  const auto& input = arguments.tensor(0);
  const auto padding = arguments.integers(1);
  check_image(input, 2);
  expect(padding.size() == 4);
  const int64_t height = input.size(-2), width = input.size(-1);
  expect(padding[0] < width && padding[1] < width && padding[2] < height && padding[3] < height);
  const std::vector<int64_t> sizes{height + padding[2] + padding[3], width + padding[0] + padding[1]};
  expect(sizes[0] >= 1 && sizes[1] >= 1);
  return Results{like_image(input, sizes)};
}

// reflection_pad2d_backward, replication_pad2d_backward(grad_output, self, padding)
std::optional<Results> pad_gradient(const Arguments& arguments) {
  const auto &gradient = arguments.tensor(0), &input = arguments.tensor(1);
  const auto padding = arguments.integers(2);
  check_image(input, 2);
  expect(padding.size() == 4 && gradient.dim() == input.dim() && gradient.scalar_type() == input.scalar_type());
  expect(gradient.size(-1) == input.size(-1) + padding[0] + padding[1] &&
         gradient.size(-2) == input.size(-2) + padding[2] + padding[3]);
  return Results{make_meta(input.sizes(), input.scalar_type(), input.suggest_memory_format())};
}

// constant_pad_nd(self, pad, value): pairs from the last dimension on
std::optional<Results> constant_pad(const Arguments& arguments) {
  const auto& input = arguments.tensor(0);
  const auto pad = arguments.integers(1);
  expect(pad.size() % 2 == 0 && static_cast<int64_t>(pad.size()) <= 2 * input.dim());
  auto sizes = input.sizes().vec();
  bool cuts_only = true;
  for (size_t i = 0; i + 1 < pad.size(); i += 2) {
    auto& size = sizes[sizes.size() - 1 - i / 2];
    // The cuts of both sides must leave something before anything is added.
    expect(size + std::min<int64_t>(pad[i], 0) + std::min<int64_t>(pad[i + 1], 0) >= 0);
    size += pad[i] + pad[i + 1];
    expect(size >= 0);
    cuts_only = cuts_only && pad[i] <= 0 && pad[i + 1] <= 0;
  }
  if (cuts_only) {
    // A copy of the part that is left.
    return Results{make_meta_like(make_meta_strided(sizes, input.strides(), input.scalar_type()))};
  }
  return Results{make_meta(sizes, input.scalar_type(), input.suggest_memory_format())};
}

// pixel_shuffle(self, upscale_factor)
std::optional<Results> pixel_shuffle(const Arguments& arguments) {
  const auto& input = arguments.tensor(0);
  const int64_t factor = arguments.integer(1);
  expect(input.dim() >= 3 && factor > 0 && input.size(-3) % (factor * factor) == 0);
  auto sizes = input.sizes().vec();
  const size_t last = sizes.size() - 1;
  sizes[last - 2] /= factor * factor;
  sizes[last - 1] *= factor;
  sizes[last] *= factor;
  return Results{
      make_meta(sizes, input.scalar_type(), input.dim() == 4 ? input.suggest_memory_format() : at::MemoryFormat::Contiguous)};
}

// pixel_unshuffle(self, downscale_factor)
std::optional<Results> pixel_unshuffle(const Arguments& arguments) {
  const auto& input = arguments.tensor(0);
  const int64_t factor = arguments.integer(1);
  expect(input.dim() >= 3 && factor > 0 && input.size(-1) % factor == 0 && input.size(-2) % factor == 0);
  auto sizes = input.sizes().vec();
  const size_t last = sizes.size() - 1;
  sizes[last - 2] *= factor * factor;
  sizes[last - 1] /= factor;
  sizes[last] /= factor;
  return Results{
      make_meta(sizes, input.scalar_type(), input.dim() == 4 ? input.suggest_memory_format() : at::MemoryFormat::Contiguous)};
}

// The number of places where a window fits, over both dimensions; refuses windows that fit nowhere.
int64_t windows(c10::IntArrayRef image, const Arguments& arguments, size_t first) {
  const auto kernel = arguments.integers(first), dilation = arguments.integers(first + 1);
  const auto padding = arguments.integers(first + 2), stride = arguments.integers(first + 3);
  expect(kernel.size() == 2 && dilation.size() == 2 && padding.size() == 2 && stride.size() == 2);
  int64_t count = 1;
  for (size_t d = 0; d < 2; ++d) {
    expect(kernel[d] > 0 && dilation[d] > 0 && padding[d] >= 0 && stride[d] > 0);
    const int64_t room = image[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1;
    expect(room >= 0);
    count *= room / stride[d] + 1;
  }
  return count;
}

// im2col(self, kernel_size, dilation, padding, stride)
std::optional<Results> image_to_columns(const Arguments& arguments) {
  const auto& input = arguments.tensor(0);
  check_image(input, 2);
  const auto kernel = arguments.integers(1);
  const int64_t count = windows(input.sizes().slice(input.dim() - 2), arguments, 1);
  auto sizes = input.sizes().vec();
  sizes.resize(sizes.size() - 2);
  sizes.back() *= kernel[0] * kernel[1];
  sizes.push_back(count);
  return Results{make_meta(sizes, input.scalar_type())};
}

// col2im(self, output_size, kernel_size, dilation, padding, stride)
std::optional<Results> columns_to_image(const Arguments& arguments) {
  const auto& input = arguments.tensor(0);
  const auto image = arguments.integers(1), kernel = arguments.integers(2);
  expect(image.size() == 2 && (input.dim() == 2 || input.dim() == 3));
  expect(windows(image, arguments, 2) == input.size(-1) && input.numel() > 0);
  const int64_t area = kernel[0] * kernel[1];
  expect(input.size(-2) % area == 0);
  auto sizes = input.sizes().vec();
  sizes.pop_back();
  sizes.back() /= area;
  sizes.insert(sizes.end(), image.begin(), image.end());
  return Results{make_meta(sizes, input.scalar_type())};
}

void check_grid(const at::Tensor& input, const at::Tensor& grid) {
  expect(input.dim() == 4 && grid.dim() == 4 && input.size(0) == grid.size(0) && grid.size(3) == 2);
  expect(input.scalar_type() == grid.scalar_type() && at::isFloatingType(input.scalar_type()));
  expect(input.size(2) > 0 && input.size(3) > 0 && input.size(1) > 0);
}

// grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners)
std::optional<Results> grid_sample(const Arguments& arguments) {
  const auto &input = arguments.tensor(0), &grid = arguments.tensor(1);
  check_grid(input, grid);
  return Results{make_meta({input.size(0), input.size(1), grid.size(1), grid.size(2)}, input.scalar_type())};
}

// grid_sampler_2d_backward(grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask)
std::optional<Results> grid_sample_gradient(const Arguments& arguments) {
  const auto &input = arguments.tensor(1), &grid = arguments.tensor(2);
  check_grid(input, grid);
  const auto wanted = arguments[6].toBoolList();
  return Results{wanted.get(0) ? c10::IValue(make_meta(input.sizes(), input.scalar_type())) : nothing(),
                 make_meta(grid.sizes(), grid.scalar_type())};
}

// max_unpool2d(self, indices, output_size): in the layout of its input
std::optional<Results> max_unpool(const Arguments& arguments) {
  const auto &input = arguments.tensor(0), &indices = arguments.tensor(1);
  const auto size = arguments.integers(2);
  expect((input.dim() == 3 || input.dim() == 4) && size.size() == 2 && input.numel() > 0);
  expect(indices.scalar_type() == at::kLong && indices.sizes() == input.sizes());
  auto sizes = input.sizes().vec();
  std::copy(size.begin(), size.end(), sizes.end() - 2);
  return Results{make_meta(sizes, input.scalar_type(), input.suggest_memory_format())};
}

}  // namespace

void add_pooling_rules(RuleTable& table) {
  table["aten::_adaptive_avg_pool2d"] = adaptive_average<2>;
  table["aten::_adaptive_avg_pool3d"] = adaptive_average<3>;
  table["aten::_adaptive_avg_pool2d_backward"] = adaptive_average_gradient<2>;
  table["aten::_adaptive_avg_pool3d_backward"] = adaptive_average_gradient<3>;
  table["aten::reflection_pad2d"] = reflection_pad;
  table["aten::reflection_pad2d_backward"] = pad_gradient;
  table["aten::replication_pad2d_backward"] = pad_gradient;
  table["aten::constant_pad_nd"] = constant_pad;
  table["aten::pixel_shuffle"] = pixel_shuffle;
  table["aten::pixel_unshuffle"] = pixel_unshuffle;
  table["aten::im2col"] = image_to_columns;
  table["aten::col2im"] = columns_to_image;
  table["aten::max_unpool2d"] = max_unpool;
  table["aten::grid_sampler_2d"] = grid_sample;
  table["aten::grid_sampler_2d_backward"] = grid_sample_gradient;
}

}  // namespace spool::torch_side
