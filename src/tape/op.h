// Op: what the core knows of one operator. One object per operator and process, made by the dispatcher's side at the
// operator's first use and never freed, so that it is compared by address.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spool {

struct Op {
  std::string name;                      ///< "aten::add.Tensor"; "spool::empty" for the core's own
  const void* handle = nullptr;          ///< the dispatcher's operator (const c10::OperatorHandle*), opaque to the core
  std::vector<std::uint8_t> mutates;     ///< per argument: 1 if the op writes to it (schema, plus what the schema hides)
  bool has_mutation = false;
  bool effect = false;                   ///< must run even if nothing uses its results (assertions)
  std::vector<std::string> arguments;    ///< their names, for messages; may be empty
};

namespace ops {
/// A value of undefined content: the first use of storage that nothing has written.
extern const Op empty;
/// A kernel that passes have made of several ops; the node carries it (graph/kernel.h).
extern const Op fused;
}  // namespace ops

}  // namespace spool
