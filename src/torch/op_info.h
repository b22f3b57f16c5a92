// What the recorder knows of an operator, derived once from its schema and the op table.
// Thread-safe. Objects live as long as the process.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string>
#include <vector>

#include "src/ops/op_table.h"
#include "src/tape/op.h"

namespace spool::torch_side {

struct ReturnInfo {
  enum class Kind { Fresh, FreshList, Argument, View, Other };
  Kind kind = Kind::Fresh;
  std::size_t argument = 0;  ///< Argument, View: which argument it is or aliases
};

struct OpInfo {
  explicit OpInfo(const c10::OperatorHandle& handle);

  c10::OperatorHandle handle;
  Op op;                                 ///< the core's view; `op.handle` points to `handle`
  std::vector<std::uint8_t> is_number;   ///< per argument: a Scalar or float that only flows into values
  std::vector<ReturnInfo> returns;
  const OpTraits& traits;
  bool recordable = true;                ///< its results are tensors and no random numbers; inference has the last word
  bool random = false;                   ///< draws random numbers
  bool has_view = false;                 ///< some result is a view of an argument: metadata only
};

const OpInfo& op_info(const c10::OperatorHandle& handle);

}  // namespace spool::torch_side
