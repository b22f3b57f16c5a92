// Ops on lists of tensors (`_foreach_*`), as one op for each tensor: what eager does on the CPU, bit for bit.
#include <algorithm>
#include <string>
#include <unordered_map>

#include "src/base/error.h"
#include "src/ops/decompositions.h"

namespace spool {
namespace {

/// An op on lists, as one of tensors that takes the lists' elements in the same order.
struct PerTensor {
  const char* made;     ///< the op that makes its result
  const char* updated;  ///< the op in place
  bool number_as_tensor = false;  ///< argument 1 is a number where the op takes a tensor
  bool alpha = false;             ///< the op takes one more number, which is 1
};

using Rows = std::map<std::string, PerTensor, std::less<>>;

Rows make_rows() {
  Rows rows;
  for (const char* name : {"abs",   "acos",  "asin",    "atan",   "ceil", "cos",   "cosh",  "erf",  "erfc", "exp",
                           "expm1", "floor", "frac",    "lgamma", "log",  "log10", "log1p", "log2", "neg",  "reciprocal",
                           "round", "rsqrt", "sigmoid", "sign",   "sin",  "sinh",  "sqrt",  "tan",  "tanh", "trunc"}) {
    static auto* names = new std::unordered_map<std::string, std::string>;  // node-based: addresses stay
    const std::string& made = (*names)[name] = std::string("aten::") + name;
    const std::string& updated = (*names)[std::string(name) + "_"] = made + "_";
    rows[name] = {made.c_str(), updated.c_str()};
  }
  rows["zero"] = {nullptr, "aten::zero_"};
  rows["copy"] = {nullptr, "aten::copy_"};
  rows["add.List"] = rows["add.Tensor"] = {"aten::add.Tensor", "aten::add_.Tensor"};
  rows["add.Scalar"] = rows["add.ScalarList"] = {"aten::add.Tensor", "aten::add_.Tensor", true, true};
  rows["sub.List"] = {"aten::sub.Tensor", "aten::sub_.Tensor"};
  rows["sub.Scalar"] = rows["sub.ScalarList"] = {"aten::sub.Tensor", "aten::sub_.Tensor", true, true};
  rows["mul.List"] = rows["mul.Tensor"] = {"aten::mul.Tensor", "aten::mul_.Tensor"};
  rows["mul.Scalar"] = rows["mul.ScalarList"] = {"aten::mul.Tensor", "aten::mul_.Tensor", true};
  rows["div.List"] = rows["div.Tensor"] = {"aten::div.Tensor", "aten::div_.Tensor"};
  rows["div.Scalar"] = rows["div.ScalarList"] = {"aten::div.Tensor", "aten::div_.Tensor", true};
  rows["clamp_min.List"] = rows["maximum.List"] = {"aten::clamp_min.Tensor", "aten::clamp_min_.Tensor"};
  rows["clamp_max.List"] = rows["minimum.List"] = {"aten::clamp_max.Tensor", "aten::clamp_max_.Tensor"};
  for (const char* overload : {".Scalar", ".ScalarList"}) {
    rows[std::string("clamp_min") + overload] = rows[std::string("maximum") + overload] = {"aten::clamp_min", "aten::clamp_min_"};
    rows[std::string("clamp_max") + overload] = rows[std::string("minimum") + overload] = {"aten::clamp_max", "aten::clamp_max_"};
    rows[std::string("pow") + overload] = {"aten::pow.Tensor_Scalar", "aten::pow_.Scalar"};
    rows[std::string("lerp") + overload] = {"aten::lerp.Scalar", "aten::lerp_.Scalar"};
    rows[std::string("addcmul") + overload] = {"aten::addcmul", "aten::addcmul_"};
    rows[std::string("addcdiv") + overload] = {"aten::addcdiv", "aten::addcdiv_"};
  }
  rows["pow.List"] = {"aten::pow.Tensor_Tensor", "aten::pow_.Tensor"};
  rows["lerp.List"] = {"aten::lerp.Tensor", "aten::lerp_.Tensor"};
  return rows;
}

constexpr std::string_view prefix = "aten::_foreach_";

/// "add.List" for "aten::_foreach_add_.List"; `in_place` says which it was.
std::string row_name(std::string_view op, bool& in_place) {
  std::string name(op.substr(prefix.size()));
  const std::size_t end = std::min(name.find('.'), name.size());
  in_place = name[end - 1] == '_';
  if (in_place) {
    name.erase(end - 1, 1);
  }
  return name;
}

const PerTensor* per_tensor(std::string_view op, bool& in_place) {
  static const Rows rows = make_rows();
  const auto row = rows.find(row_name(op, in_place));
  return row == rows.end() ? nullptr : &row->second;
}

bool foreach (const Node& node, Builder & b, Decomposed& /*known*/) {
  bool in_place = false;
  const PerTensor& row = *per_tensor(node.op->name, in_place);
  const std::vector<Arg>& tensors = node.args.at(0).elements;
  const std::vector<ValueId> old = mutated(node);
  std::unordered_map<ValueId, ValueId> current;  // values that have been written to: what they are now
  std::unordered_map<ValueId, std::size_t> left;  // and how many writes are to come
  for (const Arg& tensor : tensors) {
    ++left[tensor.value];
  }
  const auto renamed = [&](Arg arg) {
    const auto now = current.find(arg.value);
    if (arg.tag == Tag::Tensor && now != current.end()) {
      arg.value = now->second;
    }
    return arg;
  };
  const auto element = [&](const Arg& arg, std::size_t i) {
    const bool list = arg.tag == Tag::TensorList || arg.tag == Tag::NumberList;
    return renamed(list ? arg.elements.at(i) : arg);
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::vector<Arg> rest;
    for (std::size_t k = 1; k < node.args.size(); ++k) {
      const Arg arg = element(node.args[k], i);
      rest.push_back(k == 1 && row.number_as_tensor ? Builder::wrapped(arg) : arg);
    }
    if (row.alpha) {
      rest.push_back(Builder::integer(1));
    }
    const View target = Builder::view(element(node.args[0], i));
    if (!in_place) {
      rest.insert(rest.begin(), Builder::tensor(target));
      const ValueId id = node.results.at(i);
      b.define(id, b.make(row.made, std::move(rest), Geometry(b.value(id).geometry)));
      continue;
    }
    const ValueId storage = tensors[i].value;
    const auto at = static_cast<std::size_t>(std::find(old.begin(), old.end(), storage) - old.begin());
    const bool last = --left[storage] == 0;
    const ValueId next = last ? node.results.at(static_cast<std::size_t>(node.fresh) + at) : b.next_of(storage);
    b.update(row.updated, target, std::move(rest), next);
    current[storage] = next;
  }
  return true;
}

}  // namespace

Decomposition foreach_decomposition(std::string_view op) {
  bool in_place = false;
  if (!op.starts_with(prefix)) {
    return nullptr;
  }
  const PerTensor* row = per_tensor(op, in_place);
  return row != nullptr && (in_place || row->made != nullptr) ? &foreach : nullptr;
}

}  // namespace spool
