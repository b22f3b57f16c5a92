#include "python/bindings/replay.h"

#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/device.h"
#include "src/runtime/options.h"
#include "src/torch/lazy.h"
#include "src/torch/replay.h"
#include "src/torch/replay_recording.h"

namespace spool::python {
namespace {

namespace py = pybind11;
using torch_side::Followed;
using torch_side::HostStep;
using torch_side::Replay;
using torch_side::ReplayRecording;

/// Whether a Python value is compared by what it is, not by which object it is.
bool is_plain(PyObject* value) {
  return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) ||
         PyUnicode_CheckExact(value) || PyBytes_CheckExact(value) || PyComplex_CheckExact(value);
}

bool same_value(PyObject* now, PyObject* known) {
  if (now == known) {
    return true;
  }
  if (now == nullptr || known == nullptr || Py_TYPE(now) != Py_TYPE(known) || !is_plain(now)) {
    return false;
  }
  const int equal = PyObject_RichCompareBool(now, known, Py_EQ);
  if (equal < 0) {
    throw py::error_already_set();
  }
  return equal != 0;
}

/// Modes that decide what a call records.
struct Modes {
  bool grad = c10::GradMode::is_enabled();
  bool inference = c10::InferenceMode::is_enabled();
  bool autocast_lazy = at::autocast::is_autocast_enabled(at::kXLA);
  bool autocast_host = at::autocast::is_autocast_enabled(at::kCPU);
  at::ScalarType lazy_type = at::autocast::get_autocast_dtype(at::kXLA);
  at::ScalarType host_type = at::autocast::get_autocast_dtype(at::kCPU);
  bool autocast_cache = at::autocast::is_autocast_cache_enabled();
  at::ScalarType default_type = c10::get_default_dtype_as_scalartype();
  Engine* engine = &Device::get().engine();
  PlanOptions options = plan_options();

  bool operator==(const Modes&) const = default;
};

/// One argument, or what is in one.
struct Node {
  enum class Kind { Tensor, Number, Value, Tuple, List, Dict };
  Kind kind = Kind::Value;
  py::object value;  ///< Value: the value; Tuple: its type
  std::vector<py::object> keys;
  std::vector<Node> children;

  static bool is_tuple(PyObject* value) { return PyTuple_CheckExact(value); }

  explicit Node(PyObject* from) {
    if (THPVariable_Check(from)) {
      kind = Kind::Tensor;
    } else if (PyFloat_CheckExact(from)) {
      kind = Kind::Number;
    } else if (PyTuple_CheckExact(from) || PyList_CheckExact(from)) {
      kind = PyTuple_CheckExact(from) ? Kind::Tuple : Kind::List;
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(from); ++i) {
        children.emplace_back(PySequence_Fast_GET_ITEM(from, i));
      }
    } else if (PyDict_CheckExact(from)) {
      kind = Kind::Dict;
      PyObject* key = nullptr;
      PyObject* item = nullptr;
      Py_ssize_t at = 0;
      while (PyDict_Next(from, &at, &key, &item) != 0) {
        keys.push_back(py::reinterpret_borrow<py::object>(key));
        children.emplace_back(item);
      }
    } else {
      value = py::reinterpret_borrow<py::object>(from);
    }
  }

  bool matches(PyObject* other, std::vector<at::Tensor>& tensors, std::vector<double>& numbers) const {
    switch (kind) {
      case Kind::Tensor:
        if (!THPVariable_Check(other)) {
          return false;
        }
        tensors.push_back(THPVariable_Unpack(other));
        return true;
      case Kind::Number:
        if (!PyFloat_CheckExact(other)) {
          return false;
        }
        numbers.push_back(PyFloat_AS_DOUBLE(other));
        return true;
      case Kind::Value: return same_value(other, value.ptr());
      case Kind::Tuple:
      case Kind::List: {
        const bool right = kind == Kind::Tuple ? PyTuple_CheckExact(other) : PyList_CheckExact(other);
        if (!right || PySequence_Fast_GET_SIZE(other) != static_cast<Py_ssize_t>(children.size())) {
          return false;
        }
        for (std::size_t i = 0; i < children.size(); ++i) {
          if (!children[i].matches(PySequence_Fast_GET_ITEM(other, static_cast<Py_ssize_t>(i)), tensors, numbers)) {
            return false;
          }
        }
        return true;
      }
      case Kind::Dict: {
        if (!PyDict_CheckExact(other) || PyDict_GET_SIZE(other) != static_cast<Py_ssize_t>(children.size())) {
          return false;
        }
        PyObject* key = nullptr;
        PyObject* item = nullptr;
        Py_ssize_t at = 0;
        // In the same order, too: code may go through it.
        for (std::size_t i = 0; PyDict_Next(other, &at, &key, &item) != 0; ++i) {
          if (!same_value(key, keys[i].ptr()) || !children[i].matches(item, tensors, numbers)) {
            return false;
          }
        }
        return true;
      }
    }
    return false;
  }
};

/// Something that a function's code may look at, and what was there.
struct Watched {
  enum class Kind { Item, Cell, Length, Forgotten };
  Kind kind = Kind::Item;
  py::object holder;  ///< Item: a dict; Cell: a cell; Length: a list or dict
  py::object key;
  py::object known;
  Py_ssize_t length = 0;
};

class Signature {
 public:
  Signature(const py::tuple& args, const py::dict& kwargs) : args_(args.ptr()), kwargs_(kwargs.ptr()) {}

  void watch_item(const py::dict& holder, py::object key) {
    PyObject* known = PyDict_GetItemWithError(holder.ptr(), key.ptr());
    watched_.push_back({Watched::Kind::Item, holder, std::move(key), py::reinterpret_borrow<py::object>(known)});
  }
  void watch_cell(py::object cell) {
    PyObject* known = PyCell_GET(cell.ptr());
    watched_.push_back({Watched::Kind::Cell, std::move(cell), {}, py::reinterpret_borrow<py::object>(known)});
  }
  void watch_length(py::object holder) {
    const Py_ssize_t length = PyObject_Size(holder.ptr());
    watched_.push_back({Watched::Kind::Length, std::move(holder), {}, {}, length});
  }

  /// The place of the first thing watched that is not as it was; -1 if all are.
  std::ptrdiff_t changed() const {
    for (const Watched& one : watched_) {
      bool same = false;
      switch (one.kind) {
        case Watched::Kind::Item:
          same = same_value(PyDict_GetItemWithError(one.holder.ptr(), one.key.ptr()), one.known.ptr());
          break;
        case Watched::Kind::Cell: same = same_value(PyCell_GET(one.holder.ptr()), one.known.ptr()); break;
        case Watched::Kind::Length: same = PyObject_Size(one.holder.ptr()) == one.length; break;
        case Watched::Kind::Forgotten: same = true; break;
      }
      if (!same) {
        return &one - watched_.data();
      }
    }
    return -1;
  }
  /// It may change from now on.
  void forget(std::size_t i) { watched_[i] = {Watched::Kind::Forgotten}; }

  bool takes(PyObject* args, PyObject* kwargs, std::vector<at::Tensor>& tensors, std::vector<double>& numbers) const {
    return modes_ == Modes() && args_.matches(args, tensors, numbers) && kwargs_.matches(kwargs, tensors, numbers) &&
           changed() < 0;
  }
  /// Whether a call is one of this signature, whatever the things watched are.
  bool matches_call(const py::tuple& args, const py::dict& kwargs) const {
    std::vector<at::Tensor> tensors;
    std::vector<double> numbers;
    return modes_ == Modes() && args_.matches(args.ptr(), tensors, numbers) && kwargs_.matches(kwargs.ptr(), tensors, numbers);
  }

 private:
  Modes modes_;
  Node args_;
  Node kwargs_;
  std::vector<Watched> watched_;
};

/// A function that has been recorded, for calls of one signature.
class Call {
 public:
  /// `sources`: (dict, key) of numbers that are read before each run; they follow the float arguments. `build` makes the result of
  /// a list of leaves; None: the only leaf is the result. `leaves` hold None for a tensor, True for a number, or a 1-tuple with a
  /// constant.
  Call(std::shared_ptr<Signature> signature, std::shared_ptr<Replay> replay, std::vector<std::pair<py::dict, py::object>> sources,
       std::vector<py::object> leaves, py::object build)
      : signature_(std::move(signature)),
        replay_(std::move(replay)),
        sources_(std::move(sources)),
        leaves_(std::move(leaves)),
        build_(std::move(build)) {}

  py::object run(const py::tuple& args, const py::dict& kwargs) {
    const py::object refused = py::reinterpret_borrow<py::object>(Py_NotImplemented);
    std::vector<at::Tensor> tensors;
    std::vector<double> numbers;
    if (!signature_->takes(args.ptr(), kwargs.ptr(), tensors, numbers)) {
      return refused;
    }
    for (const auto& [holder, key] : sources_) {
      PyObject* value = PyDict_GetItemWithError(holder.ptr(), key.ptr());
      if (value == nullptr || !PyFloat_CheckExact(value)) {
        return refused;
      }
      numbers.push_back(PyFloat_AS_DOUBLE(value));
    }
    std::optional<Replay::Results> results;
    {
      // The lock is waited for without the GIL: who has it may need the GIL.
      std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock.owns_lock()) {
        const py::gil_scoped_release released;
        lock.lock();
      }
      if (!replay_->matches(tensors)) {
        return refused;
      }
      results = replay_->run(tensors, numbers, [](const auto& launch) {
        const py::gil_scoped_release released;
        launch();
      });
    }
    if (!results.has_value()) {
      return refused;
    }
    return result(*results);
  }

 private:
  py::object result(const Replay::Results& results) const {
    std::size_t next = 0;
    std::size_t number = 0;
    const auto leaf = [&](const py::object& known) -> py::object {
      if (PyTuple_CheckExact(known.ptr())) {
        return py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(known.ptr(), 0));
      }
      const std::size_t at = next++;
      return known.is_none() ? py::cast(results.tensors[at]) : py::float_(results.numbers[number++]);
    };
    if (build_.is_none()) {
      return leaf(leaves_[0]);
    }
    py::list list(leaves_.size());
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      list[i] = leaf(leaves_[i]);
    }
    return build_(list);
  }

  std::shared_ptr<Signature> signature_;
  std::shared_ptr<Replay> replay_;
  std::vector<std::pair<py::dict, py::object>> sources_;
  std::vector<py::object> leaves_;
  py::object build_;
  std::mutex mutex_;
};

std::optional<Followed> of_node(const py::handle& node) {
  const py::object followed = py::getattr(node, "followed", py::none());
  if (followed.is_none()) {
    return std::nullopt;
  }
  const auto [at, value] = py::cast<std::pair<std::uint32_t, double>>(followed);
  return Followed{at, value};
}

std::optional<Followed> follow_number(const c10::SymNode& node) {
  const auto* python = dynamic_cast<const torch::impl::PythonSymNodeImpl*>(node.get());
  if (python == nullptr) {
    return std::nullopt;
  }
  const py::gil_scoped_acquire gil;
  return of_node(const_cast<torch::impl::PythonSymNodeImpl*>(python)->getPyObj());
}

std::optional<Followed> follow_tensor(const at::Tensor& wrapped) {
  const py::gil_scoped_acquire gil;
  const py::object number = py::getattr(py::cast(wrapped), "_wrapped_number", py::none());
  return number.is_none() ? std::nullopt : of_node(py::getattr(number, "node", py::none()));
}

HostStep::Kind kind_of(const std::string& name) {
  using Kind = HostStep::Kind;
  static const std::unordered_map<std::string, Kind> kinds{
      {"source", Kind::Source}, {"constant", Kind::Constant}, {"neg", Kind::Negate},   {"abs", Kind::Absolute},
      {"add", Kind::Add},       {"sub", Kind::Subtract},      {"mul", Kind::Multiply}, {"truediv", Kind::Divide},
      {"pow", Kind::Power},     {"lt", Kind::Less},           {"le", Kind::LessEqual}, {"eq", Kind::Equal},
  };
  return kinds.at(name);
}

}  // namespace

void bind_replay(py::module_& m) {
  torch_side::set_follow_hooks({.number = &follow_number, .tensor = &follow_tensor});
  py::class_<Signature, std::shared_ptr<Signature>>(m, "ReplaySignature")
      .def(py::init<const py::tuple&, const py::dict&>(), py::arg("args"), py::arg("kwargs"))
      .def("watch_item", &Signature::watch_item, py::arg("holder"), py::arg("key"))
      .def("watch_cell", &Signature::watch_cell, py::arg("cell"))
      .def("watch_length", &Signature::watch_length, py::arg("holder"))
      .def("changed", &Signature::changed)
      .def("forget", &Signature::forget, py::arg("i"))
      .def("matches_call", &Signature::matches_call, py::arg("args"), py::arg("kwargs"));
  py::class_<Replay, std::shared_ptr<Replay>>(m, "Replay")
      .def("differs", &Replay::differs, py::arg("later"))
      .def("text", &Replay::text);
  py::class_<ReplayRecording>(m, "ReplayRecording")
      .def(py::init<std::vector<at::Tensor>, const std::vector<at::Tensor>&>(), py::arg("args"), py::arg("leaves"))
      .def("start", &ReplayRecording::start)
      .def("end_body", &ReplayRecording::end_body)
      .def("stop", &ReplayRecording::stop)
      .def("problem", &ReplayRecording::problem)
      .def("refuse", &ReplayRecording::refuse, py::arg("why"))
      .def(
          "step",
          [](ReplayRecording& self, const std::string& kind, std::uint32_t a, std::uint32_t b, double value) {
            return self.step(kind_of(kind), a, b, value);
          },
          py::arg("kind"), py::arg("a") = 0, py::arg("b") = 0, py::arg("value") = 0)
      .def(
          "item",
          [](ReplayRecording& self, const at::Tensor& tensor) -> std::optional<std::pair<std::uint32_t, double>> {
            const auto followed = self.item(tensor);
            return followed.has_value() ? std::optional(std::pair(followed->at, followed->value)) : std::nullopt;
          },
          py::arg("tensor"))
      .def(
          "same", [](ReplayRecording& self, std::uint32_t at, double value) { self.same({at, value}); }, py::arg("at"),
          py::arg("value"))
      .def(
          "compared",
          [](ReplayRecording& self, const std::string& kind, std::uint32_t a, std::uint32_t b, bool value) {
            self.compared(kind_of(kind), a, b, value);
          },
          py::arg("kind"), py::arg("a"), py::arg("b"), py::arg("value"))
      .def(
          "finish",
          [](ReplayRecording& self, const std::vector<std::optional<at::Tensor>>& results,
             const std::vector<std::uint32_t>& numbers) {
            std::vector<at::Tensor> tensors;
            for (const auto& one : results) {
              tensors.push_back(one.value_or(at::Tensor()));
            }
            return self.finish(tensors, numbers);
          },
          py::arg("results"), py::arg("numbers"));
  py::class_<Call>(m, "ReplayCall")
      .def(py::init<std::shared_ptr<Signature>, std::shared_ptr<Replay>, std::vector<std::pair<py::dict, py::object>>,
                    std::vector<py::object>, py::object>(),
           py::arg("signature"), py::arg("replay"), py::arg("sources"), py::arg("leaves"), py::arg("build"))
      .def("run", &Call::run, py::arg("args"), py::arg("kwargs"));
}

}  // namespace spool::python
