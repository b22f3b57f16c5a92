// What the runtime tells of itself, for Python: explanations of compiles and cuts.
#pragma once

#include <pybind11/pybind11.h>

namespace spool::python {

void bind_explain(pybind11::module_& m);

}  // namespace spool::python
