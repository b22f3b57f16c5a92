// Spool's own geometry rules, for ops that have no C++ meta function in PyTorch.
//
// To add one: write a function of type Rule in the file of its family (rules_<family>.cpp), add it in that file's table under the op's full
// name, and add cases to tests/unit/infer_test.cpp, which compares with what the op itself returns on the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <initializer_list>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace spool::torch_side {

using Results = c10::SmallVector<c10::IValue, 4>;

// An operator's arguments in schema order. Reading one as another type than the schema's is an internal error and throws c10::Error.
class Arguments {
 public:
  explicit Arguments(c10::ArrayRef<c10::IValue> values) : values_(values) {}

  size_t size() const { return values_.size(); }
  const c10::IValue& operator[](size_t i) const { return values_[i]; }
  bool is_none(size_t i) const { return values_[i].isNone(); }
  const at::Tensor& tensor(size_t i) const { return values_[i].toTensor(); }
  // An undefined tensor where the argument is None.
  at::Tensor optional_tensor(size_t i) const { return values_[i].isNone() ? at::Tensor() : values_[i].toTensor(); }
  int64_t integer(size_t i) const { return values_[i].toInt(); }
  bool boolean(size_t i) const { return values_[i].toBool(); }
  double real(size_t i) const { return values_[i].toDouble(); }
  std::vector<int64_t> integers(size_t i) const { return values_[i].toIntVector(); }
  std::vector<at::Tensor> tensors(size_t i) const { return values_[i].toTensorVector(); }
  std::optional<at::ScalarType> optional_dtype(size_t i) const {
    return values_[i].isNone() ? std::nullopt : std::optional(values_[i].toScalarType());
  }
  std::optional<at::MemoryFormat> optional_memory_format(size_t i) const {
    return values_[i].isNone() ? std::nullopt : std::optional(values_[i].toMemoryFormat());
  }

 private:
  c10::ArrayRef<c10::IValue> values_;
};

// Thrown by expect(): the arguments look bad. infer() then runs the op on stand-ins, so that the user sees eager's own error.
struct ArgumentsRefused {};

// What a rule checks its arguments with.
inline void expect(bool holds) {
  if (!holds) {
    throw ArgumentsRefused{};
  }
}

// Gives an op's results for its arguments, or nullopt where they depend on data. Refuses bad arguments through expect().
// Rules are pure but for resizing and restriding Meta tensors given as out= arguments; they are called from any thread.
using Rule = std::optional<Results> (*)(const Arguments&);
using RuleTable = std::unordered_map<std::string_view, Rule>;

// The rule for an op given by its full name ("aten::copy_"), or null.
Rule find_rule(std::string_view op);

// Full names of all ops that have a rule, for tests.
std::vector<std::string_view> ruled_ops();

// --- for the rules' files ---

// Meta tensors made without the dispatcher: contiguous, in a memory format, with given strides, or as at::empty_like makes them.
at::Tensor make_meta(c10::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format = at::MemoryFormat::Contiguous);
at::Tensor make_meta_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype);
at::Tensor make_meta_like(const at::Tensor& tensor, std::optional<at::ScalarType> dtype = std::nullopt,
                          at::MemoryFormat format = at::MemoryFormat::Preserve);

// The element-wise result of the inputs, with TensorIterator's broadcasting and strides but a dtype given by the rule.
at::Tensor make_elementwise(std::initializer_list<at::Tensor> inputs, at::ScalarType dtype);

// The shape that the tensors broadcast to; refuses those that do not.
std::vector<int64_t> broadcast_shape(std::initializer_list<at::Tensor> tensors);

// `dim` counted from 0; refuses one that is out of range for `rank` dimensions. A tensor of rank 0 counts as one of rank 1.
int64_t wrapped(int64_t dim, int64_t rank);

// An undefined tensor, as ops return for gradients that nobody asked for.
inline c10::IValue nothing() { return at::Tensor(); }

// Resizes a Meta tensor given as out=, as eager does: warns where a non-empty tensor changes its size.
void resize_out(const at::Tensor& out, c10::IntArrayRef sizes);

// Each adds its family's rules.
void add_attention_rules(RuleTable& table);
void add_convolution_rules(RuleTable& table);
void add_factory_rules(RuleTable& table);
void add_foreach_rules(RuleTable& table);
void add_index_rules(RuleTable& table);
void add_loss_rules(RuleTable& table);
void add_normalisation_rules(RuleTable& table);
void add_optimiser_rules(RuleTable& table);
void add_pointwise_rules(RuleTable& table);
void add_pooling_rules(RuleTable& table);
void add_reduction_rules(RuleTable& table);
void add_write_rules(RuleTable& table);

}  // namespace spool::torch_side
