// torch_spool._C: a thin layer over the C++ API.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <spool/spool.h>

#include "python/bindings/bridge.h"
#include "python/bindings/explain.h"
#include "python/bindings/location.h"
#include "python/bindings/replay.h"
#include "src/base/scope.h"
#include "src/runtime/closures.h"
#include "src/runtime/device.h"
#include "src/runtime/metrics.h"
#include "src/runtime/options.h"
#include "src/torch/infer.h"
#include "src/torch/lazy.h"
#include "src/torch/recorder.h"

namespace py = pybind11;

namespace {

using WithoutGil = py::call_guard<py::gil_scoped_release>;

/// A Python callable that any thread may call and destroy.
std::function<void()> with_gil(py::function fn) {
  auto held = std::shared_ptr<py::function>(new py::function(std::move(fn)), [](py::function* function) {
    const py::gil_scoped_acquire gil;
    delete function;
  });
  return [held] {
    const py::gil_scoped_acquire gil;
    (*held)();
  };
}

// While a thread waits it gives up the lock of the interpreter, if it has it, and looks for Ctrl-C.
spool::WaitHooks wait_hooks() {
  return {
      .enter = []() -> void* { return Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr; },
      .leave =
          [](void* state) {
            if (state != nullptr) {
              PyEval_RestoreThread(static_cast<PyThreadState*>(state));
            }
          },
      .poll =
          [](void* state) {
            if (Py_IsInitialized() == 0) {
              return;
            }
            // Ctrl-C is the Python main thread's; PyErr_CheckSignals does nothing elsewhere.
            if (state != nullptr) {
              PyEval_RestoreThread(static_cast<PyThreadState*>(state));
              const bool interrupted = PyErr_CheckSignals() != 0;
              if (interrupted) {
                python_error error;
                error.persist();
                PyEval_SaveThread();
                throw error;  // NOLINT(misc-throw-by-value-catch-by-reference): PyTorch's binding catches it
              }
              PyEval_SaveThread();
              return;
            }
            const py::gil_scoped_acquire gil;
            if (PyErr_CheckSignals() != 0) {
              python_error error;
              error.persist();
              throw error;
            }
          },
  };
}

bool means_not_implemented(std::exception_ptr failure) {
  const py::gil_scoped_acquire gil;
  try {
    std::rethrow_exception(std::move(failure));
  } catch (python_error& error) {
    return PyErr_GivenExceptionMatches(error.type, PyExc_NotImplementedError) != 0;
  } catch (const py::error_already_set& error) {
    return error.matches(PyExc_NotImplementedError);
  } catch (...) {
    return false;
  }
}

void bind_metrics(py::module_& m) {
  namespace metrics = spool::metrics;
  m.def("counter_names", &metrics::counter_names);
  m.def("counter_value", &metrics::counter, py::arg("name"));
  m.def("metric_names", &metrics::names);
  m.def(
      "metric_data",
      [](const std::string& name) -> py::object {
        const auto data = metrics::data(name);
        if (!data.has_value()) {
          return py::none();
        }
        return py::make_tuple(data->samples, data->total, data->recent);
      },
      py::arg("name"));
  m.def(
      "metric_unit",
      [](const std::string& name) -> std::optional<std::string> {
        const auto data = metrics::data(name);
        if (!data.has_value()) {
          return std::nullopt;
        }
        return data->unit == metrics::Unit::Nanoseconds ? "ns" : data->unit == metrics::Unit::Bytes ? "bytes" : "count";
      },
      py::arg("name"));
  m.def("clear_counters", &metrics::clear_counters);
  m.def("clear_metrics", &metrics::clear_metrics);
  m.def("clear_all", [] {
    metrics::clear_counters();
    metrics::clear_metrics();
  });
  m.def("metrics_report", &metrics::report, py::arg("names") = std::vector<std::string>{});
}

void bind_state(py::module_& m) {
  m.def("tape_length", [] { return spool::Device::get().tape_length(); });
  m.def("cache_size", [] { return spool::Device::get().cache_size(); });
  m.def("cache_capacity", [] { return spool::Device::get().cache_capacity(); });
  m.def("set_cache_capacity", [](std::size_t capacity) {
    spool::torch_side::with_torch_errors([&] { spool::Device::get().set_cache_capacity(capacity); });
  });
  m.def("live_slots", [] { return spool::Slot::live(); });
  m.def("set_follow", [](bool on) { spool::Device::get().set_follow(on); });
  m.def("set_recorder_timing", &spool::torch_side::set_recorder_timing);
  m.def("recorder_stats", [] {
    const auto stats = spool::torch_side::recorder_stats();
    py::dict result;
    result["ops"] = stats.ops;
    result["followed"] = stats.followed;
    result["recorder_ns"] = stats.nanoseconds;
    return result;
  });
  m.def("memory_info", [] {
    const auto use = spool::memory_use();
    return std::pair(use.used, use.peak);
  });
  m.def("set_engine", &spool::set_engine, WithoutGil());
  m.def("engine_name", &spool::engine_name);
  m.def("scope_push", &spool::scope::push);
  m.def("scope_pop", [] { spool::torch_side::with_torch_errors([] { spool::scope::pop(); }); });
  m.def("current_scope", &spool::scope::current);
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "C++ side of torch_spool; use the functions of the package instead.";
  spool::torch_side::record_backward_here();
  spool::set_wait_hooks(wait_hooks());
  spool::set_location_hook(&spool::python::current_line);
  spool::torch_side::set_not_implemented_classifier(&means_not_implemented);

  m.def("device_count", &spool::device_count);
  m.def("sync", &spool::sync, py::arg("wait"), py::arg("reset_scope"), WithoutGil());
  m.def("synchronize", &spool::synchronize, WithoutGil());
  m.def("barrier", &spool::barrier, WithoutGil());
  m.def("wait_device_ops", &spool::wait_device_ops, WithoutGil());
  m.def("step_begin", &spool::detail::begin_step, WithoutGil());
  m.def("step_end", &spool::detail::end_step, py::arg("failed"), WithoutGil());
  m.def(
      "region_begin",
      [](const std::string& name, bool full_graph, std::int64_t max_graphs) {
        return spool::detail::begin_compile(name, name, full_graph, max_graphs);
      },
      py::arg("name"), py::arg("full_graph"), py::arg("max_graphs"), WithoutGil());
  m.def("region_end", &spool::detail::end_compile, py::arg("id"), py::arg("failed"), WithoutGil());
  m.def("set_eager_mode", &spool::set_eager_mode, WithoutGil());
  m.def("is_eager_mode", &spool::is_eager_mode);
  m.def("compile_options", [] {
    py::dict options;
    options["exact"] = spool::plan_options().exact;
    options["fuse"] = spool::name(spool::plan_options().fuse);
    return options;
  });
  m.def(
      "set_compile_options",
      [](bool exact, const std::string& fuse) {
        spool::torch_side::with_torch_errors([&] { spool::plan_options() = {.exact = exact, .fuse = spool::fuse_mode(fuse)}; });
      },
      py::arg("exact"), py::arg("fuse"));
  m.def("manual_seed", &spool::manual_seed, WithoutGil());
  m.def("get_rng_state", &spool::get_rng_state);
  m.def("set_rng_state", &spool::set_rng_state);
  m.def(
      "add_step_closure",
      [](py::function fn, bool run_async) {
        std::function<void()> closure = with_gil(std::move(fn));
        const py::gil_scoped_release released;
        spool::add_step_closure(std::move(closure), run_async);
      },
      py::arg("fn"), py::arg("run_async"));
  m.def("initialize_cache", &spool::initialize_cache, py::arg("path"), py::arg("readonly"), WithoutGil());
  m.def("graph_text", &spool::graph_text, py::arg("tensors"), WithoutGil());
  m.def(
      "unlazy",
      [](const std::vector<at::Tensor>& tensors) {
        spool::torch_side::with_torch_errors([&] {
          for (const at::Tensor& tensor : tensors) {
            if (spool::torch_side::is_lazy(tensor)) {
              spool::Device::get().read(spool::torch_side::slot_of(tensor), "unlazy");
            }
          }
        });
      },
      py::arg("tensors"), WithoutGil());
  m.def(
      "optimization_barrier_",
      [](const std::vector<at::Tensor>& tensors) {
        // Graphs run in program order, so there is nothing to hold back; only the arguments are checked.
        for (const at::Tensor& tensor : tensors) {
          TORCH_CHECK(spool::torch_side::is_lazy(tensor), "[optimization_barrier_] expected tensors on ", spool::device());
        }
      },
      py::arg("tensors"), WithoutGil());
  m.def(
      "shut_down",
      [] {
        spool::Device::get().shut_down();
        spool::closures::drain();
      },
      WithoutGil());
  bind_metrics(m);
  bind_state(m);
  spool::python::bind_bridge(m);
  spool::python::bind_replay(m);
  spool::python::bind_explain(m);
}
