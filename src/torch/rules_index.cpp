// Indexing, rearranging and joining tensors.
#include "src/torch/rules.h"

#include <ATen/native/TypeProperties.h>
#include <ATen/ops/cat_meta_dispatch.h>
#include <ATen/ops/index_meta_dispatch.h>

#include <algorithm>
#include <cstdlib>

namespace spool::torch_side {
namespace {

bool is_index(const at::Tensor& tensor) { return tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt; }

// Index tensors as they are given; nullopt if there is a mask among them, whose number of hits is data.
std::optional<c10::List<std::optional<at::Tensor>>> read_indices(const c10::IValue& argument) {
  auto indices = argument.toOptionalTensorList();
  for (const std::optional<at::Tensor>& index : argument.toOptionalTensorVector()) {
    if (index.has_value() && index->defined() && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte)) {
      return std::nullopt;
    }
  }
  return indices;
}

// index.Tensor(self, indices)
std::optional<Results> index(const Arguments& arguments) {
  const auto indices = read_indices(arguments[1]);
  if (!indices.has_value()) {
    return std::nullopt;
  }
  return Results{at::meta::index(arguments.tensor(0), *indices)};
}

// index_put_(self, indices, values, accumulate), _index_put_impl_(…, unsafe)
std::optional<Results> index_put(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &values = arguments.tensor(2);
  expect(self.scalar_type() == values.scalar_type());
  if (const auto indices = read_indices(arguments[1])) {
    const auto part = at::meta::index(self, *indices);
    const auto shape = part.sizes().vec();
    expect(broadcast_shape({part, values}) == shape);
  }
  return Results{self};
}

// index_select(self, dim, index)
std::vector<int64_t> selected_sizes(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &index = arguments.tensor(2);
  expect(index.dim() <= 1 && is_index(index));
  const auto dim = static_cast<size_t>(wrapped(arguments.integer(1), self.dim()));
  auto sizes = self.sizes().vec();
  if (sizes.empty()) {
    expect(index.numel() == 1);
  } else {
    expect(self.size(static_cast<int64_t>(dim)) > 0 || index.numel() == 0);
    sizes[dim] = index.numel();
  }
  return sizes;
}

std::optional<Results> index_select(const Arguments& arguments) {
  return Results{make_meta(selected_sizes(arguments), arguments.tensor(0).scalar_type())};
}

std::optional<Results> index_select_out(const Arguments& arguments) {
  expect(arguments.tensor(3).scalar_type() == arguments.tensor(0).scalar_type());
  resize_out(arguments.tensor(3), selected_sizes(arguments));
  return Results{arguments.tensor(3)};
}

// embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse)
std::optional<Results> embedding(const Arguments& arguments) {
  const auto &weight = arguments.tensor(0), &indices = arguments.tensor(1);
  expect(weight.dim() == 2 && is_index(indices));
  auto sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  return Results{make_meta(sizes, weight.scalar_type())};
}

// embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)
std::optional<Results> embedding_gradient(const Arguments& arguments) {
  const auto &gradient = arguments.tensor(0), &indices = arguments.tensor(1);
  expect(is_index(indices) && gradient.dim() > 0 && arguments.integer(2) >= 0);
  expect(gradient.numel() == indices.numel() * gradient.size(-1));
  return Results{make_meta({arguments.integer(2), gradient.size(-1)}, gradient.scalar_type())};
}

// flip(self, dims)
std::optional<Results> flip(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  std::vector<bool> seen(static_cast<size_t>(self.dim()) + 1, false);
  for (const int64_t dim : arguments.integers(1)) {
    const auto at = static_cast<size_t>(wrapped(dim, self.dim()));
    expect(!seen[at]);
    seen[at] = true;
  }
  return Results{make_meta_like(self)};
}

// Rolling one dimension joins the two parts that change places.
at::Tensor roll_one(const at::Tensor& self, int64_t shift, int64_t dim) {
  if (self.numel() == 0) {
    return make_meta_like(self);
  }
  dim = wrapped(dim, self.dim());
  const int64_t size = self.size(dim);
  const int64_t start = ((size - shift) % size + size) % size;
  auto front = self.sizes().vec();
  auto back = front;
  front[static_cast<size_t>(dim)] = size - start;
  back[static_cast<size_t>(dim)] = start;
  const std::vector<at::Tensor> parts{make_meta_strided(front, self.strides(), self.scalar_type()),
                                      make_meta_strided(back, self.strides(), self.scalar_type())};
  return at::meta::cat(parts, dim);
}

// roll(self, shifts, dims)
std::optional<Results> roll(const Arguments& arguments) {
  auto self = arguments.tensor(0);
  const auto shifts = arguments.integers(1), dims = arguments.integers(2);
  expect(!shifts.empty());
  if (dims.empty()) {
    expect(shifts.size() == 1);
    // The tensor is rolled as if it were flat.
    return Results{make_meta(self.sizes(), self.scalar_type())};
  }
  expect(shifts.size() == dims.size() && self.dim() > 0);
  for (size_t i = 0; i < shifts.size(); ++i) {
    self = roll_one(self, shifts[i], dims[i]);
  }
  return Results{self};
}

// stack(tensors, dim)
std::optional<Results> stack(const Arguments& arguments) {
  const auto tensors = arguments.tensors(0);
  expect(!tensors.empty());
  const int64_t dim = wrapped(arguments.integer(1), tensors[0].dim() + 1);
  for (const auto& tensor : tensors) {
    expect(tensor.sizes() == tensors[0].sizes());
  }
  if (dim == tensors[0].dim()) {
    std::vector<at::Tensor> parts;
    for (const auto& tensor : tensors) {
      parts.push_back(tensor.unsqueeze(dim));
    }
    return Results{at::meta::cat(parts, dim)};
  }
  // Joined along the dimension that is there, which is then split in two; strides follow from the join.
  auto sizes = tensors[0].sizes().vec();
  sizes.insert(sizes.begin() + dim, static_cast<int64_t>(tensors.size()));
  return Results{at::meta::cat(tensors, dim).view(sizes)};
}

// repeat(self, repeats)
std::optional<Results> repeat(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  auto sizes = arguments.integers(1);
  expect(static_cast<int64_t>(sizes.size()) >= self.dim());
  const size_t added = sizes.size() - static_cast<size_t>(self.dim());
  for (size_t i = 0; i < sizes.size(); ++i) {
    expect(sizes[i] >= 0);
    sizes[i] *= i < added ? 1 : self.size(static_cast<int64_t>(i - added));
  }
  return Results{make_meta(sizes, self.scalar_type())};
}

// diag_embed(self, offset, dim1, dim2): the last dimension becomes a diagonal
std::optional<Results> diagonal_matrix(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  expect(self.dim() > 0);
  const int64_t first = wrapped(arguments.integer(2), self.dim() + 1), second = wrapped(arguments.integer(3), self.dim() + 1);
  expect(first != second);
  const int64_t length = self.size(-1) + std::abs(arguments.integer(1));
  auto sizes = self.sizes().vec();
  sizes.pop_back();
  sizes.insert(sizes.begin() + std::min(first, second), length);
  sizes.insert(sizes.begin() + std::max(first, second), length);
  return Results{make_meta(sizes, self.scalar_type())};
}

// take(self, index)
std::optional<Results> take(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &index = arguments.tensor(1);
  expect(index.scalar_type() == at::kLong && (self.numel() > 0 || index.numel() == 0));
  return Results{make_meta(index.sizes(), self.scalar_type())};
}

// take.out(self, index, out)
std::optional<Results> take_out(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &index = arguments.tensor(1), &out = arguments.tensor(2);
  expect(index.scalar_type() == at::kLong && out.scalar_type() == self.scalar_type() && (self.numel() > 0 || index.numel() == 0));
  resize_out(out, index.sizes());
  return Results{out};
}

// Gradients that are zero but for a part: slice_backward, select_backward, unfold_backward(grad, input_sizes, …)
std::optional<Results> zeros_of_sizes(const Arguments& arguments) {
  return Results{make_meta(arguments.integers(1), arguments.tensor(0).scalar_type())};
}

// diagonal_copy(self, offset, dim1, dim2)
std::optional<Results> diagonal_copy(const Arguments& arguments) {
  const auto& self = arguments.tensor(0);
  expect(self.dim() >= 2);
  const auto offset = arguments.integer(1);
  const auto first = wrapped(arguments.integer(2), self.dim()), second = wrapped(arguments.integer(3), self.dim());
  expect(first != second);
  std::vector<int64_t> sizes;
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    if (dim != first && dim != second) {
      sizes.push_back(self.size(dim));
    }
  }
  const auto rows = self.size(first) + std::min<int64_t>(offset, 0), columns = self.size(second) - std::max<int64_t>(offset, 0);
  sizes.push_back(std::max<int64_t>(std::min(rows, columns), 0));
  return Results{make_meta(sizes, self.scalar_type())};
}

// searchsorted.Tensor(sorted_sequence, self, *, out_int32, right, side, sorter)
std::optional<Results> search_sorted(const Arguments& arguments) {
  const auto &sequence = arguments.tensor(0), &self = arguments.tensor(1);
  expect(sequence.scalar_type() == self.scalar_type() && sequence.dim() > 0 && arguments.is_none(4) && arguments.is_none(5));
  if (sequence.dim() > 1) {
    expect(sequence.dim() == self.dim());
    for (int64_t d = 0; d + 1 < self.dim(); ++d) {
      expect(sequence.size(d) == self.size(d));
    }
  }
  return Results{make_meta(self.sizes(), arguments.boolean(2) ? at::kInt : at::kLong)};
}

// bucketize.Tensor(self, boundaries, *, out_int32, right)
std::optional<Results> bucketize(const Arguments& arguments) {
  const auto &self = arguments.tensor(0), &boundaries = arguments.tensor(1);
  expect(boundaries.dim() == 1 && boundaries.scalar_type() == self.scalar_type());
  return Results{make_meta(self.sizes(), arguments.boolean(2) ? at::kInt : at::kLong)};
}

// repeat_interleave.Tensor(repeats, *, output_size): without the size, it is the sum of the data
std::optional<Results> repeat_interleave(const Arguments& arguments) {
  const auto& repeats = arguments.tensor(0);
  if (arguments.is_none(1)) {
    return std::nullopt;
  }
  expect(repeats.dim() == 1 && is_index(repeats) && arguments.integer(1) >= 0);
  return Results{make_meta({arguments.integer(1)}, repeats.scalar_type())};
}

// Ops whose CPU kernels give some results sizes of their own choice (bookkeeping for their backward): nobody but the kernel knows them.
std::optional<Results> known_to_kernel(const Arguments& /*arguments*/) { return std::nullopt; }

}  // namespace

void add_index_rules(RuleTable& table) {
  table["aten::_embedding_bag"] = known_to_kernel;
  table["aten::_embedding_bag_forward_only"] = known_to_kernel;
  table["aten::_embedding_bag_dense_backward"] = known_to_kernel;
  table["aten::index.Tensor"] = index;
  table["aten::index_put_"] = index_put;
  table["aten::_index_put_impl_"] = index_put;
  table["aten::index_select"] = index_select;
  table["aten::index_select.out"] = index_select_out;
  table["aten::embedding"] = embedding;
  table["aten::embedding_dense_backward"] = embedding_gradient;
  table["aten::flip"] = flip;
  table["aten::roll"] = roll;
  table["aten::stack"] = stack;
  table["aten::repeat"] = repeat;
  table["aten::diag_embed"] = diagonal_matrix;
  table["aten::diagonal_copy"] = diagonal_copy;
  table["aten::take"] = take;
  table["aten::take.out"] = take_out;
  table["aten::slice_backward"] = zeros_of_sizes;
  table["aten::select_backward"] = zeros_of_sizes;
  table["aten::unfold_backward"] = zeros_of_sizes;
  table["aten::searchsorted.Tensor"] = search_sorted;
  table["aten::bucketize.Tensor"] = bucketize;
  table["aten::repeat_interleave.Tensor"] = repeat_interleave;
}

}  // namespace spool::torch_side
