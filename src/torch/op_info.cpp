#include "src/torch/op_info.h"

#include <ATen/core/enum_tag.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "src/ops/find_op.h"

namespace spool::torch_side {
namespace {

using c10::TypeKind;

c10::TypePtr without_optional(const c10::TypePtr& type) {
  const auto optional = type->cast<c10::OptionalType>();
  return optional != nullptr ? optional->getElementType() : type;
}

bool is_tensor_list(const c10::TypePtr& type) {
  const auto list = type->cast<c10::ListType>();
  return list != nullptr && without_optional(list->getElementType())->kind() == TypeKind::TensorType;
}

/// Which argument a return aliases: the one that shares an alias set with it.
ReturnInfo classify(const c10::Argument& result, const c10::FunctionSchema& schema) {
  const bool tensor = result.type()->kind() == TypeKind::TensorType;
  const bool list = is_tensor_list(result.type());
  if (!tensor && !list) {
    return {ReturnInfo::Kind::Other, 0};
  }
  if (const c10::AliasInfo* alias = result.alias_info(); alias != nullptr) {
    for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::AliasInfo* other = schema.arguments()[i].alias_info();
      if (other != nullptr && other->beforeSets() == alias->beforeSets()) {
        return {alias->isWrite() ? ReturnInfo::Kind::Argument : ReturnInfo::Kind::View, i};
      }
    }
    return {ReturnInfo::Kind::Other, 0};
  }
  return {list ? ReturnInfo::Kind::FreshList : ReturnInfo::Kind::Fresh, 0};
}

}  // namespace

OpInfo::OpInfo(const c10::OperatorHandle& operator_handle)
    : handle(operator_handle), traits(spool::traits(c10::toString(operator_handle.operator_name()))) {
  const c10::FunctionSchema& schema = handle.schema();
  op.name = c10::toString(handle.operator_name());
  op.handle = &handle;
  op.effect = traits.effect;
  for (const c10::Argument& argument : schema.arguments()) {
    op.arguments.push_back(argument.name());
    c10::TypePtr type = without_optional(argument.type());
    if (const auto list = type->cast<c10::ListType>()) {
      type = list->getElementType();
      is_number.push_back(static_cast<std::uint8_t>(type->kind() == TypeKind::NumberType));
    } else {
      const bool number = type->kind() == TypeKind::NumberType || type->kind() == TypeKind::FloatType;
      is_number.push_back(static_cast<std::uint8_t>(number && !traits.numbers_decide_shape));
    }
    const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    op.mutates.push_back(static_cast<std::uint8_t>(writes));
    op.has_mutation = op.has_mutation || writes;
  }
  op.has_mutation = op.has_mutation || !traits.hidden_writes.empty();
  for (const c10::Argument& result : schema.returns()) {
    returns.push_back(classify(result, schema));
    recordable = recordable && returns.back().kind != ReturnInfo::Kind::Other;
    has_view = has_view || returns.back().kind == ReturnInfo::Kind::View;
  }
  random = handle.hasTag(at::Tag::nondeterministic_seeded) && !traits.draws_nothing;
  recordable = recordable && !random;
}

const OpInfo& op_info(const c10::OperatorHandle& handle) {
  // An operator's schema has a fixed address for as long as it is registered. This is on every recorded op's way, so the thread
  // remembers what it has seen in a table with one place per hash.
  struct Seen {
    const c10::FunctionSchema* key = nullptr;
    const OpInfo* info = nullptr;
  };
  thread_local std::array<Seen, 512> table;
  const c10::FunctionSchema* key = &handle.schema();
  const auto address = reinterpret_cast<std::uintptr_t>(key);
  Seen& seen = table[(address >> 5U ^ address >> 14U) % table.size()];
  if (seen.key == key) {
    return *seen.info;
  }
  static std::mutex mutex;
  static auto* all = new std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<const OpInfo>>;
  const std::lock_guard lock(mutex);
  auto& info = (*all)[key];
  if (info == nullptr) {
    info = std::make_unique<const OpInfo>(handle);
  }
  seen = {key, info.get()};
  return *info;
}

namespace {

const Op* find_by_name(std::string_view name) {
  const std::size_t dot = name.find('.');
  const std::string overload(dot == std::string_view::npos ? "" : name.substr(dot + 1));
  const auto handle = c10::Dispatcher::singleton().findSchema({std::string(name.substr(0, dot)), overload});
  return handle.has_value() ? &op_info(*handle).op : nullptr;
}

[[maybe_unused]] const bool finder_is_set = (set_op_finder(&find_by_name), true);

}  // namespace
}  // namespace spool::torch_side
