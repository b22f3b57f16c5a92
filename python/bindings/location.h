// The user's line: the innermost Python frame outside PyTorch and this package.
#pragma once

#include "src/tape/location.h"

namespace spool::python {

/// Takes the GIL. On a thread without Python frames (autograd's), the line where the last recording Python thread stands, which is
/// the call of backward(). Null where Python is not running.
LocationPtr current_line();

}  // namespace spool::python
