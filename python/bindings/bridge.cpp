#include "python/bindings/bridge.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/device.h"
#include "src/runtime/metrics.h"
#include "src/torch/bridge.h"
#include "src/torch/lazy.h"

namespace spool::python {
namespace {

namespace py = pybind11;
using torch_side::BridgeGraph;
using torch_side::BridgeRecording;

bool is_host(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor.key_set().has(c10::DispatchKey::Python);
}

at::Tensor upload(const at::Tensor& host) { return host.detach().to(torch_side::lazy_device()); }

/// A recording whose end Python decides, whatever still refers to it.
class Recording {
 public:
  Recording() {
    torch_side::with_torch_errors([&] { recording_ = std::make_unique<BridgeRecording>(); });
  }

  at::Tensor stand_in(const at::Tensor& tensor) { return open().stand_in(tensor); }
  std::shared_ptr<BridgeGraph> finish(const std::vector<at::Tensor>& outputs) { return open().finish(outputs); }
  /// Ends it, on the thread that made it. Gives why the graph can't be extracted; empty if nothing forbade it.
  std::string close() {
    const std::string reason = open().reason();
    recording_ = nullptr;
    return reason;
  }

 private:
  BridgeRecording& open() {
    TORCH_CHECK(recording_ != nullptr, "[extract] this recording is closed");
    return *recording_;
  }

  std::unique_ptr<BridgeRecording> recording_;
};

/// A tensor of the CPU that the graph takes, on the device: its content when it is asked for.
class Uploaded {
 public:
  explicit Uploaded(at::Tensor host) : host_(std::move(host)) {}

  const at::Tensor& get() {
    // An inference tensor has no version, so nothing says whether it has changed.
    const bool versioned = !host_.is_inference();
    if (!lazy_.defined() || !versioned || host_._version() != version_) {
      version_ = versioned ? host_._version() : 0;
      lazy_ = upload(host_);
    }
    return lazy_;
  }

 private:
  at::Tensor host_;
  at::Tensor lazy_;
  int64_t version_ = 0;
};

/// An extracted graph with what Python passes and gets: its arguments in order, the tensors that it keeps, its outputs.
class Callable {
 public:
  /// `kept` are the graph's inputs after those among `args`. `outputs` holds a 1-tuple with a place among the graph's outputs for a
  /// lazy tensor, and anything else as it is; a CPU tensor is copied for each call.
  Callable(std::shared_ptr<BridgeGraph> graph, const py::tuple& args, const std::vector<at::Tensor>& kept, py::tuple outputs)
      : graph_(std::move(graph)), outputs_(std::move(outputs)) {
    for (const py::handle arg : args) {
      Arg known;
      if (THPVariable_Check(arg.ptr())) {
        const at::Tensor& tensor = THPVariable_Unpack(arg.ptr());
        known.kind = is_host(tensor) ? Arg::Kind::Host : Arg::Kind::Lazy;
        if (known.kind == Arg::Kind::Host) {
          known.sizes = tensor.sizes().vec();
          known.dtype = tensor.scalar_type();
          ++hosts_;
        }
      } else {
        known.value = py::reinterpret_borrow<py::object>(arg);
      }
      args_.push_back(std::move(known));
    }
    for (const at::Tensor& tensor : kept) {
      kept_.push_back({tensor, is_host(tensor) ? std::make_unique<Uploaded>(tensor) : nullptr});
    }
  }

  /// The outputs as a list; NotImplemented where the arguments aren't those that the graph was made for.
  py::object run(const py::tuple& args) {
    const py::object refused = py::reinterpret_borrow<py::object>(Py_NotImplemented);
    if (args.size() != args_.size()) {
      return refused;
    }
    std::vector<const at::Tensor*> tensors;  // borrowed: `args`, `uploads` and `kept_` hold them
    tensors.reserve(args_.size() + kept_.size());
    std::vector<at::Tensor> uploads;
    uploads.reserve(hosts_);
    for (std::size_t i = 0; i < args_.size(); ++i) {
      PyObject* arg = PyTuple_GET_ITEM(args.ptr(), static_cast<Py_ssize_t>(i));
      const Arg& known = args_[i];
      if (known.kind == Arg::Kind::Other) {
        // Of one type and equal: 1, 1.0 and True make different graphs.
        if (Py_TYPE(arg) != Py_TYPE(known.value.ptr()) || THPVariable_Check(arg)) {
          return refused;
        }
        const int equal = PyObject_RichCompareBool(arg, known.value.ptr(), Py_EQ);
        if (equal < 0) {
          throw py::error_already_set();
        }
        if (equal == 0) {
          return refused;
        }
        continue;
      }
      if (!THPVariable_Check(arg)) {
        return refused;
      }
      const at::Tensor& tensor = THPVariable_Unpack(arg);
      if (known.kind == Arg::Kind::Host) {
        if (!is_host(tensor) || tensor.sizes() != c10::IntArrayRef(known.sizes) || tensor.scalar_type() != known.dtype) {
          return refused;
        }
        uploads.push_back(upload(tensor));
        tensors.push_back(&uploads.back());
      } else {
        tensors.push_back(&tensor);
      }
    }
    for (Kept& kept : kept_) {
      tensors.push_back(kept.uploaded == nullptr ? &kept.tensor : &kept.uploaded->get());
    }
    const auto called = graph_->call(tensors, [](const auto& launch) {
      const py::gil_scoped_release released;
      launch();
    });
    if (!called.has_value()) {
      return refused;
    }
    const std::vector<at::Tensor>& results = *called;
    py::list outputs(outputs_.size());
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const py::handle output = PyTuple_GET_ITEM(outputs_.ptr(), static_cast<Py_ssize_t>(i));
      if (PyTuple_CheckExact(output.ptr())) {
        outputs[i] = py::cast(results[py::cast<std::size_t>(PyTuple_GET_ITEM(output.ptr(), 0))]);
      } else if (THPVariable_Check(output.ptr())) {
        outputs[i] = py::cast(THPVariable_Unpack(output.ptr()).clone());
      } else {
        outputs[i] = output;
      }
    }
    return outputs;
  }

 private:
  struct Arg {
    enum class Kind { Lazy, Host, Other };
    Kind kind = Kind::Other;
    std::vector<int64_t> sizes;  ///< Host
    at::ScalarType dtype = at::kFloat;  ///< Host
    py::object value;  ///< Other
  };
  struct Kept {
    at::Tensor tensor;
    std::unique_ptr<Uploaded> uploaded;  ///< where `tensor` is the CPU's
  };

  std::shared_ptr<BridgeGraph> graph_;
  std::vector<Arg> args_;
  std::size_t hosts_ = 0;  ///< arguments that are CPU tensors
  std::vector<Kept> kept_;
  py::tuple outputs_;
};

}  // namespace

void bind_bridge(py::module_& m) {
  py::class_<BridgeGraph, std::shared_ptr<BridgeGraph>>(m, "BridgeGraph");
  py::class_<Recording>(m, "BridgeRecording")
      .def(py::init())
      .def("stand_in", &Recording::stand_in, py::arg("tensor"))
      .def("finish", &Recording::finish, py::arg("outputs"), py::call_guard<py::gil_scoped_release>())
      .def("close", &Recording::close);
  py::class_<Callable>(m, "BridgeCallable")
      .def(py::init<std::shared_ptr<BridgeGraph>, const py::tuple&, const std::vector<at::Tensor>&, py::tuple>(),
           py::arg("graph"), py::arg("args"), py::arg("kept"), py::arg("outputs"))
      .def("run", &Callable::run, py::arg("args"));
  m.def("bridge_can_take", [](const at::Tensor& tensor) { return torch_side::can_bridge(tensor) || is_host(tensor); });
  m.def("bridge_upload", &upload, py::arg("tensor"));
  m.def("bridge_launch_pending", &torch_side::launch_pending, py::arg("tensors"), py::call_guard<py::gil_scoped_release>());
  m.def("bridge_count_fallback", [] { metrics::count("BridgeFallback"); });
  m.def("bridge_count_split", [] { metrics::count("BridgeSplit"); });
  m.def("in_full_graph", [] { return Device::get().in_full_graph(); });
}

}  // namespace spool::python
