#include "python/bindings/explain.h"

#include <pybind11/stl.h>

#include "src/runtime/explain.h"

namespace py = pybind11;

namespace spool::python {
namespace {

using namespace explain;

py::object place(const LocationPtr& location) {
  if (location == nullptr) {
    return py::none();
  }
  py::dict shown;
  shown["file"] = location->file;
  shown["line"] = location->line;
  shown["scope"] = location->scope;
  shown["stack"] = location->stack;
  return shown;
}

template <class Items, class Show>
py::list each(const Items& items, Show show) {
  py::list shown;
  for (const auto& item : items) {
    shown.append(show(item));
  }
  return shown;
}

py::dict shown_graph(const GraphNote& graph) {
  py::dict shown;
  shown["number"] = graph.number;
  shown["engine"] = graph.engine;
  shown["text"] = graph.text;
  shown["nodes"] = each(graph.nodes, [](const GraphNote::Node& node) {
    py::dict one;
    one["op"] = node.op;
    one["text"] = node.text;
    one["body"] = node.body;
    one["reads"] = node.reads;
    one["makes"] = node.makes;
    one["location"] = place(node.location);
    one["key"] = reinterpret_cast<std::uintptr_t>(node.location.get());
    return one;
  });
  shown["values"] = each(graph.values, [](const GraphNote::Value& value) { return py::make_tuple(value.text, value.nbytes); });
  shown["inputs"] = graph.inputs;
  shown["outputs"] = graph.outputs;
  shown["buffers"] = each(graph.buffers, [](const GraphNote::Buffer& buffer) {
    return py::make_tuple(buffer.kind, buffer.offset, buffer.nbytes, buffer.first, buffer.last);
  });
  shown["arena_bytes"] = graph.arena_bytes;
  return shown;
}

py::dict shown_compile(const CompileNote& compile) {
  const Reason& reason = compile.reason;
  py::dict shown;
  shown["graph"] = compile.graph;
  shown["region"] = compile.region;
  shown["cause"] = compile.cause;
  shown["where"] = place(compile.where);
  shown["milliseconds"] = compile.milliseconds;
  shown["kind"] = name(reason.kind);
  shown["reason"] = describe(reason);
  shown["nearest"] = reason.nearest;
  shown["common"] = reason.common;
  shown["ops"] = reason.length;
  shown["op"] = reason.op;
  shown["op_where"] = place(reason.where);
  shown["earlier_where"] = place(reason.earlier);
  return shown;
}

py::dict shown_report(const Report& report) {
  py::dict shown;
  shown["compiles"] = each(report.compiles, shown_compile);
  shown["cuts"] = each(report.cuts, [](const CutNote& cut) {
    return py::make_tuple(cut.region, cut.cause, cut.where, cut.stack, cut.breaks, cut.count);
  });
  py::dict regions;
  for (const auto& [title, region] : report.regions) {
    regions[py::str(title)] = py::make_tuple(region.entries, region.launches, region.compiles, region.graphs, region.inside,
                                             region.compiling, region.running);
  }
  shown["regions"] = regions;
  py::dict graphs;
  for (const auto& [number, graph] : report.graphs) {
    graphs[py::int_(number)] = shown_graph(*graph);
  }
  shown["graphs"] = graphs;
  py::dict runs;
  for (const auto& [number, run] : report.runs) {
    const py::list steps = each(run.steps, [](const RunNote::Step& step) {
      return py::make_tuple(step.op->name, reinterpret_cast<std::uintptr_t>(step.location.get()), step.milliseconds);
    });
    runs[py::int_(number)] = py::make_tuple(run.runs, run.milliseconds, steps);
  }
  shown["runs"] = runs;
  return shown;
}

}  // namespace

void bind_explain(py::module_& m) {
  py::class_<Session>(m, "ExplainSession")
      .def(py::init<>())
      .def("stop", &Session::stop, py::call_guard<py::gil_scoped_release>())
      .def("report", [](const Session& session) {
        Report report;
        {
          const py::gil_scoped_release released;
          report = session.report();
        }
        return shown_report(report);
      });
}

}  // namespace spool::python
