// No header of PyTorch here: it ships those of its own oneDNN, of another version.
#include "src/engine/native/onednn_convolution.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/error.h"

namespace spool::native {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

const dnnl::engine& cpu() {
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

/// oneDNN's CPU streams have no state: calls run on the calling thread.
dnnl::stream& stream() {
  static auto* stream = new dnnl::stream(cpu());
  return *stream;
}

std::optional<memory::data_type> data_type(DType dtype) {
  switch (dtype) {
    case DType::Float32: return memory::data_type::f32;
    case DType::BFloat16: return memory::data_type::bf16;
    default: return std::nullopt;
  }
}

/// [N, C, spatial…] row-major, or in blocks of channels; undefined for a block that oneDNN has no name for.
Tag tag(std::size_t rank, std::int64_t block) {
  constexpr Tag plain[] = {Tag::ncw, Tag::nchw, Tag::ncdhw};
  constexpr Tag by_8[] = {Tag::nCw8c, Tag::nChw8c, Tag::nCdhw8c};
  constexpr Tag by_16[] = {Tag::nCw16c, Tag::nChw16c, Tag::nCdhw16c};
  if (rank < 3 || rank > 5) {
    return Tag::undef;
  }
  const std::size_t i = rank - 3;
  return block == 1 ? plain[i] : block == 8 ? by_8[i] : block == 16 ? by_16[i] : Tag::undef;
}

/// The block of channels that a descriptor of [N, C, spatial…] has; none if it is something else than `tag` describes.
std::optional<std::int64_t> block_of(const memory::desc& chosen, memory::data_type type) {
  for (const std::int64_t block : {1, 8, 16}) {
    const memory::dims sizes = chosen.get_dims();
    if (sizes[1] % block == 0 && chosen == memory::desc(sizes, type, tag(sizes.size(), block))) {
      return block;
    }
  }
  return std::nullopt;
}

bool positive(const std::vector<std::int64_t>& strides) {
  return std::all_of(strides.begin(), strides.end(), [](std::int64_t stride) { return stride > 0; });
}

std::size_t aligned(std::size_t nbytes) { return (nbytes + 63) / 64 * 64; }

memory at(const memory::desc& desc, void* data) { return {desc, cpu(), data}; }

/// oneDNN falls back to plain loops for what it has no kernel for.
bool fast(const dnnl::primitive_desc_base& desc) {
  const std::string_view name = desc.impl_info_str();
  return !name.starts_with("ref") && name.find("gemm:ref") == std::string_view::npos;
}

class Primitives final : public OnednnConvolution {
 public:
  /// Throws dnnl::error where oneDNN has no kernel at all; `supported` tells whether it has fast ones.
  explicit Primitives(const ConvolutionUse& use) : use_(use), type_(*data_type(use.dtype)) {
    weight_plain_ = {weight_sizes(), type_, weight_strides(use.weight_strides)};
    choose_blocks();
    if (!supported_) {
      return;
    }
    if (use.backward) {
      make_backward();
    } else {
      make_forward();
    }
  }

  bool supported() const { return supported_; }
  ConvolutionLayout layout() const override { return layout_; }

  void run(const Operands& given) const override { use_.backward ? backward(given) : forward(given); }

 private:
  // --- shapes ---

  /// Weights as oneDNN wants them: with groups in front where there are several.
  memory::dims weight_sizes() const {
    memory::dims sizes = use_.weight;
    if (use_.groups != 1) {
      sizes[0] /= use_.groups;
      sizes.insert(sizes.begin(), use_.groups);
    }
    return sizes;
  }
  memory::dims weight_strides(memory::dims strides) const {
    if (use_.groups != 1) {
      strides.insert(strides.begin(), strides[0] * (use_.weight[0] / use_.groups));
    }
    return strides;
  }
  memory::dims dilates() const {
    memory::dims dilates = use_.dilation;
    for (auto& dilate : dilates) {
      --dilate;
    }
    return dilates;
  }

  memory::desc any(const memory::dims& sizes) const { return {sizes, type_, Tag::any}; }
  memory::desc input() const { return {use_.input, type_, tag(use_.input.size(), layout_.input_block)}; }
  memory::desc output() const { return {use_.output, type_, tag(use_.output.size(), layout_.output_block)}; }
  memory::desc bias() const { return {memory::dims{use_.weight[0]}, type_, Tag::x}; }

  static dnnl::primitive_attr attributes() {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attributes;
  }

  dnnl::convolution_forward::primitive_desc forward_desc(const memory::desc& input, const memory::desc& output) const {
    constexpr auto kind = dnnl::prop_kind::forward_training;
    constexpr auto algorithm = dnnl::algorithm::convolution_direct;
    if (use_.bias && !use_.backward) {
      return {cpu(),  kind,        algorithm, input,        any(weight_sizes()), bias(),
              output, use_.stride, dilates(), use_.padding, use_.padding,        attributes()};
    }
    return {cpu(),       kind,      algorithm,    input,        any(weight_sizes()), output,
            use_.stride, dilates(), use_.padding, use_.padding, attributes()};
  }

  /// Layouts are those that oneDNN likes best going forward, so that forward and backward agree.
  void choose_blocks() {
    const auto best = forward_desc(any(use_.input), any(use_.output));
    const auto input_block = block_of(best.src_desc(), type_);
    const auto output_block = block_of(best.dst_desc(), type_);
    supported_ = input_block && output_block && fast(best);
    if (supported_) {
      layout_.input_block = *input_block;
      layout_.output_block = *output_block;
    }
  }

  // --- making ---

  void make_forward() {
    const auto desc = forward_desc(input(), output());
    supported_ = fast(desc);
    forward_ = dnnl::convolution_forward(desc);
    input_desc_ = desc.src_desc();
    output_desc_ = desc.dst_desc();
    weight_packed_ = desc.weights_desc();
    scratch_ = desc.scratchpad_desc();
    pack_ = make_reorder(weight_plain_, weight_packed_);
    layout_.workspace = aligned(weight_packed_.get_size()) + scratch_.get_size();
  }

  void make_backward() {
    const auto hint = forward_desc(input(), output());
    constexpr auto algorithm = dnnl::algorithm::convolution_direct;
    input_desc_ = input();
    output_desc_ = output();
    if (use_.input_gradient) {
      const dnnl::convolution_backward_data::primitive_desc desc(cpu(), algorithm, input(), any(weight_sizes()), output(),
                                                                 use_.stride, dilates(), use_.padding, use_.padding, hint,
                                                                 attributes());
      supported_ = supported_ && fast(desc);
      data_ = dnnl::convolution_backward_data(desc);
      weight_packed_ = desc.weights_desc();
      scratch_ = desc.scratchpad_desc();
      pack_ = make_reorder(weight_plain_, weight_packed_);
      layout_.workspace = aligned(weight_packed_.get_size()) + scratch_.get_size();
    }
    if (use_.weight_gradient || use_.bias) {
      const auto desc = weights_desc(algorithm, hint);
      supported_ = supported_ && fast(desc);
      weights_ = dnnl::convolution_backward_weights(desc);
      gradient_packed_ = desc.diff_weights_desc();
      weights_scratch_ = desc.scratchpad_desc();
      if (use_.weight_gradient) {
        unpack_ = make_reorder(gradient_packed_, {weight_sizes(), type_, weight_strides(use_.weight_gradient_strides)});
      }
      layout_.workspace = std::max(layout_.workspace, aligned(gradient_packed_.get_size()) + weights_scratch_.get_size());
    }
  }

  dnnl::convolution_backward_weights::primitive_desc weights_desc(dnnl::algorithm algorithm,
                                                                  const dnnl::convolution_forward::primitive_desc& hint) const {
    if (use_.bias) {
      return {cpu(),       algorithm, input(),      any(weight_sizes()), bias(), output(),
              use_.stride, dilates(), use_.padding, use_.padding,        hint,   attributes()};
    }
    return {cpu(),        algorithm,    input(), any(weight_sizes()), output(), use_.stride, dilates(),
            use_.padding, use_.padding, hint,    attributes()};
  }

  struct Reorder {
    dnnl::reorder primitive;
    memory::desc from, to;
  };
  static Reorder make_reorder(const memory::desc& from, const memory::desc& to) {
    return {dnnl::reorder(dnnl::reorder::primitive_desc(cpu(), from, cpu(), to)), from, to};
  }
  static void reorder(const Reorder& made, void* from, void* to) {
    made.primitive.execute(stream(), {{DNNL_ARG_FROM, at(made.from, from)}, {DNNL_ARG_TO, at(made.to, to)}});
  }

  // --- running ---

  void forward(const Operands& given) const {
    auto* workspace = static_cast<std::byte*>(given.workspace);
    reorder(pack_, given.weight, workspace);
    std::unordered_map<int, memory> arguments{
        {DNNL_ARG_SRC, at(input_desc_, given.input)},
        {DNNL_ARG_WEIGHTS, at(weight_packed_, workspace)},
        {DNNL_ARG_DST, at(output_desc_, given.output)},
        {DNNL_ARG_SCRATCHPAD, at(scratch_, workspace + aligned(weight_packed_.get_size()))},
    };
    if (use_.bias) {
      arguments.emplace(DNNL_ARG_BIAS, at(bias(), given.bias));
    }
    forward_.execute(stream(), arguments);
  }

  void backward(const Operands& given) const {
    auto* workspace = static_cast<std::byte*>(given.workspace);
    if (use_.input_gradient) {
      reorder(pack_, given.weight, workspace);
      data_.execute(stream(), {{DNNL_ARG_DIFF_DST, at(output_desc_, given.output)},
                               {DNNL_ARG_WEIGHTS, at(weight_packed_, workspace)},
                               {DNNL_ARG_DIFF_SRC, at(input_desc_, given.input_gradient)},
                               {DNNL_ARG_SCRATCHPAD, at(scratch_, workspace + aligned(weight_packed_.get_size()))}});
    }
    if (use_.weight_gradient || use_.bias) {
      std::unordered_map<int, memory> arguments{
          {DNNL_ARG_SRC, at(input_desc_, given.input)},
          {DNNL_ARG_DIFF_WEIGHTS, at(gradient_packed_, workspace)},
          {DNNL_ARG_DIFF_DST, at(output_desc_, given.output)},
          {DNNL_ARG_SCRATCHPAD, at(weights_scratch_, workspace + aligned(gradient_packed_.get_size()))},
      };
      if (use_.bias) {
        arguments.emplace(DNNL_ARG_DIFF_BIAS, at(bias(), given.bias));
      }
      weights_.execute(stream(), arguments);
      if (use_.weight_gradient) {
        reorder(unpack_, workspace, given.weight_gradient);
      }
    }
  }

  const ConvolutionUse use_;
  const memory::data_type type_;
  bool supported_ = false;
  ConvolutionLayout layout_;
  memory::desc input_desc_, output_desc_;
  memory::desc weight_plain_, weight_packed_, gradient_packed_;
  memory::desc scratch_, weights_scratch_;
  dnnl::convolution_forward forward_;
  dnnl::convolution_backward_data data_;
  dnnl::convolution_backward_weights weights_;
  Reorder pack_, unpack_;
};

class Reordering final : public OnednnReorder {
 public:
  Reordering(memory::desc from, memory::desc to)
      : from_(std::move(from)), to_(std::move(to)), primitive_(dnnl::reorder::primitive_desc(cpu(), from_, cpu(), to_)) {}

  void run(const void* from, void* to) const override {
    // oneDNN takes what it reads as non-const, too.
    primitive_.execute(stream(), {{DNNL_ARG_FROM, at(from_, const_cast<void*>(from))}, {DNNL_ARG_TO, at(to_, to)}});
  }

 private:
  memory::desc from_, to_;
  dnnl::reorder primitive_;
};

/// Uses as words: equal words, equal uses.
std::string key(const ConvolutionUse& use) {
  std::string key = str(name(use.dtype), use.backward, use.bias, use.input_gradient, use.weight_gradient, ' ', use.groups, ' ',
                        omp_get_max_threads());
  for (const auto* list : {&use.input, &use.weight, &use.output, &use.stride, &use.padding, &use.dilation, &use.weight_strides,
                           &use.weight_gradient_strides}) {
    key += '|';
    for (const std::int64_t number : *list) {
      key += str(number, ',');
    }
  }
  return key;
}

std::shared_ptr<const OnednnConvolution> make(const ConvolutionUse& use) {
  if (!data_type(use.dtype) || use.input.size() < 3 || use.input.size() > 5 || !positive(use.weight_strides) ||
      !positive(use.weight_gradient_strides)) {
    return nullptr;
  }
  try {
    auto made = std::make_shared<const Primitives>(use);
    return made->supported() ? made : nullptr;
  } catch (const dnnl::error& error) {
    // No kernel for it: PyTorch's serve. Anything else is no matter of the shape.
    if (error.status != dnnl_unimplemented && error.status != dnnl_invalid_arguments) {
      fail(error.status == dnnl_out_of_memory ? ErrorKind::OutOfMemory : ErrorKind::Runtime,
           "[convolution] oneDNN: ", error.what());
    }
    return nullptr;
  }
}

}  // namespace

std::shared_ptr<const OnednnConvolution> onednn_convolution(const ConvolutionUse& use) {
  static std::mutex mutex;
  static auto* known = new std::unordered_map<std::string, std::shared_ptr<const OnednnConvolution>>;
  const std::string name = key(use);
  const std::scoped_lock lock(mutex);
  const auto found = known->find(name);
  return found != known->end() ? found->second : known->emplace(name, make(use)).first->second;
}

std::shared_ptr<const OnednnReorder> onednn_reorder(const Geometry& from, std::int64_t from_block, const Geometry& to,
                                                    std::int64_t to_block) {
  const auto type = data_type(from.dtype);
  const auto desc = [&](const Geometry& geometry, std::int64_t block) -> memory::desc {
    if (block == 1) {
      return {geometry.sizes, *type, geometry.strides};
    }
    memory::dims sizes(geometry.sizes.begin(), geometry.sizes.end() - 1);
    sizes[1] *= block;
    const Tag form = tag(sizes.size(), block);
    return {sizes, *type, form};
  };
  if (!type || !positive(from.strides) || !positive(to.strides)) {
    return nullptr;
  }
  try {
    return std::make_shared<const Reordering>(desc(from, from_block), desc(to, to_block));
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented && error.status != dnnl_invalid_arguments) {
      fail(error.status == dnnl_out_of_memory ? ErrorKind::OutOfMemory : ErrorKind::Runtime,
           "[convolution] oneDNN: ", error.what());
    }
    return nullptr;
  }
}

}  // namespace spool::native
