#include "src/torch/infer.h"

#include "src/torch/meta_table.h"
#include "src/torch/rules.h"
#include "src/torch/stand_in.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace spool::torch_side {
namespace {

std::atomic<bool (*)(std::exception_ptr)> not_implemented_classifier{nullptr};

const MetaTable& meta_table() {
  static const auto* table = [] {
    auto* filled = new MetaTable();
    fill_meta_table(*filled);
    return filled;
  }();
  return *table;
}

// Ops that rewire a tensor rather than compute: with no kernel for Meta, their "result has the geometry of the argument" would be wrong.
constexpr std::array<std::string_view, 5> kRewiring = {"aten::resize_", "aten::resize_as_", "aten::set_", "aten::set_data",
                                                       "aten::swap_"};

// Whether the op returns what it writes to, or nothing, and cannot resize it: it writes to positional arguments only.
bool only_writes_in_place(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  if (std::find(kRewiring.begin(), kRewiring.end(), schema.name()) != kRewiring.end()) {
    return false;
  }
  bool writes = false;
  for (const auto& argument : schema.arguments()) {
    const auto* alias = argument.alias_info();
    if (alias != nullptr && alias->isWrite()) {
      if (argument.kwarg_only()) {
        return false;
      }
      writes = true;
    }
  }
  return writes && std::all_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
           return result.alias_info() != nullptr && result.alias_info()->isWrite();
         });
}

// What is known about an operator; found once, at its first inference.
struct Known {
  Rule rule = nullptr;
  const c10::KernelFunction* meta_function = nullptr;
  bool depends_on_data = false;
  bool in_place = false;
  bool draws = false;  // random numbers
};

Known look_up(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  const std::string full_name = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
  Known known;
  known.rule = find_rule(full_name);
  if (const auto it = meta_table().find(full_name); it != meta_table().end()) {
    known.meta_function = &it->second;
  }
  known.depends_on_data = op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
  known.draws = op.hasTag(at::Tag::nondeterministic_seeded);
  known.in_place = only_writes_in_place(op);
  return known;
}

// References into an unordered_map stay valid while it grows.
const Known& known_about(const c10::OperatorHandle& op) {
  static auto* mutex = new std::shared_mutex();
  static auto* known = new std::unordered_map<c10::OperatorName, Known>();
  {
    const std::shared_lock lock(*mutex);
    if (const auto it = known->find(op.operator_name()); it != known->end()) {
      return it->second;
    }
  }
  Known found = look_up(op);
  const std::unique_lock lock(*mutex);
  return known->emplace(op.operator_name(), found).first->second;
}

void replace_arguments(torch::jit::Stack& stack, size_t count, Results results) {
  torch::jit::drop(stack, count);
  for (auto& result : results) {
    stack.push_back(std::move(result));
  }
}

// The arguments that the op writes to and returns, in the order of its returns.
Results written_arguments(const c10::OperatorHandle& op, const Arguments& arguments) {
  const auto& schema = op.schema();
  Results results;
  for (const auto& result : schema.returns()) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      if (alias != nullptr && alias->isWrite() && alias->beforeSets() == result.alias_info()->beforeSets()) {
        results.push_back(arguments[i]);
        break;
      }
    }
  }
  TORCH_INTERNAL_ASSERT(results.size() == schema.returns().size(), "[infer] a written result of ", schema,
                        " is no argument of it");
  return results;
}

// Some composite kernels read a value on their way, which a Meta tensor cannot give: their geometry may depend on it.
bool reads_data(const c10::Error& error) { return error.msg().find("cannot be called on meta tensors") != std::string::npos; }

bool run_dispatcher_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) {
    return false;
  }
  torch::jit::Stack saved = stack;
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
    return true;
  } catch (const c10::NotImplementedError&) {
    stack = std::move(saved);
    return false;
  } catch (const c10::Error& error) {
    if (!reads_data(error)) {
      throw;
    }
    stack = std::move(saved);
    return false;
  } catch (const std::exception&) {
    const auto classify = not_implemented_classifier.load(std::memory_order_acquire);
    if (classify == nullptr || !classify(std::current_exception())) {
      throw;
    }
    stack = std::move(saved);
    return false;
  }
}

InferredBy apply_rule(Rule rule, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const size_t count = op.schema().arguments().size();
  std::optional<Results> results;
  try {
    results = rule(Arguments(torch::jit::last(stack, count)));
  } catch (const ArgumentsRefused&) {
    run_on_stand_ins(op, stack);
    return InferredBy::Rule;
  }
  if (!results.has_value()) {
    return InferredBy::Nothing;
  }
  replace_arguments(stack, count, std::move(*results));
  return InferredBy::Rule;
}

InferredBy infer_geometry(const Known& known, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const size_t count = op.schema().arguments().size();
  if (known.rule != nullptr) {
    return apply_rule(known.rule, op, stack);
  }
  if (known.depends_on_data) {
    return InferredBy::Nothing;
  }
  if (known.meta_function != nullptr) {
    torch::jit::Stack saved = stack;
    try {
      known.meta_function->callBoxed(op, c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
      return InferredBy::StructuredMeta;
    } catch (const c10::Error&) {
      // A few meta functions refuse on Meta what they take on the CPU (index_add_ of nothing): the op itself has the last word.
      stack = std::move(saved);
      run_on_stand_ins(op, stack);
      return InferredBy::Rule;
    }
  }
  if (run_dispatcher_meta(op, stack)) {
    return InferredBy::DispatcherMeta;
  }
  if (known.in_place) {
    replace_arguments(stack, count, written_arguments(op, Arguments(torch::jit::last(stack, count))));
    return InferredBy::Rule;
  }
  return InferredBy::Nothing;
}

}  // namespace

InferredBy infer(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const Known& known = known_about(op);
  const size_t count = op.schema().arguments().size();
  TORCH_INTERNAL_ASSERT(stack.size() >= count, "[infer] ", op.schema(), " takes ", count, " arguments, the stack holds ",
                        stack.size());

  // Meta functions call operators (empty, reshape, …) that must neither be recorded for autograd nor cast.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);

  // A trial of an op that draws would move the default generator on.
  const bool try_dtypes = !known.draws && has_untried_dtypes(op, torch::jit::last(stack, count));
  torch::jit::Stack arguments;
  if (try_dtypes) {
    arguments.assign(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  }
  const InferredBy by = infer_geometry(known, op, stack);
  if (try_dtypes && (by == InferredBy::Rule || by == InferredBy::StructuredMeta)) {
    check_dtypes(op, arguments);
  }
  return by;
}

const char* structured_out_overload(std::string_view op) {
  static const auto* overloads = [] {
    auto* filled = new std::unordered_map<std::string_view, const char*>();
    for (size_t i = 0; i < kOutOverloadCount; ++i) {
      filled->emplace(kOutOverloads[i].op, kOutOverloads[i].out);
    }
    return filled;
  }();
  const auto it = overloads->find(op);
  return it == overloads->end() ? nullptr : it->second;
}

void set_not_implemented_classifier(bool (*means_not_implemented)(std::exception_ptr)) {
  not_implemented_classifier.store(means_not_implemented, std::memory_order_release);
}

}  // namespace spool::torch_side
