// Operators by name, for passes that make nodes of other ops than those that were recorded.
#pragma once

#include <string_view>

#include "src/tape/op.h"

namespace spool {

/// The operator of that full name ("aten::add.Tensor"): the same object that recorded calls of it have, never freed. nullptr if
/// no such operator is known. Thread-safe.
const Op* find_op(std::string_view name);

/// Who knows all operators. The dispatcher's side sets it while the library is loaded; until then `find_op` finds nothing.
using OpFinder = const Op* (*)(std::string_view name);
void set_op_finder(OpFinder finder);

}  // namespace spool
