// Python's side of replays: signatures of calls, and the call itself.
#pragma once

#include <pybind11/pybind11.h>

namespace spool::python {

void bind_replay(pybind11::module_& m);

}  // namespace spool::python
