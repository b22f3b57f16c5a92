// The table of PyTorch's own C++ meta functions, by operator. tools/gen_meta_table.py writes its content when Spool is built.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

namespace spool::torch_side {

// Keys are full names such as "aten::add.Tensor"; the values take and leave arguments on a stack like any boxed kernel.
using MetaTable = std::unordered_map<std::string_view, c10::KernelFunction>;

// `name` must be a string literal: the table keeps no copy.
template <class Result, class... Arguments>
void add_meta_function(MetaTable& table, std::string_view name, Result (*function)(Arguments...)) {
  table.emplace(name, c10::KernelFunction::makeFromUnboxedRuntimeFunction(function));
}

// Generated: adds every meta function known at build time.
void fill_meta_table(MetaTable& table);

struct OutOverload {
  std::string_view op;
  const char* out;
};

// Generated: for functional and in-place structured ops the overload that writes to a given tensor.
extern const OutOverload kOutOverloads[];
extern const size_t kOutOverloadCount;

}  // namespace spool::torch_side
