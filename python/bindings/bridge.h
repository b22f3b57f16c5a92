// Binds the dynamo bridge: extraction and extracted graphs.
#pragma once

#include <pybind11/pybind11.h>

namespace spool::python {

void bind_bridge(pybind11::module_& m);

}  // namespace spool::python
