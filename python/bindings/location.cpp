#include "python/bindings/location.h"

#include <Python.h>
#include <frameobject.h>

#include <atomic>
#include <string>
#include <string_view>

#include "src/base/scope.h"

namespace spool::python {
namespace {

/// Folder of an imported package, with a slash at its end; empty if it isn't imported.
std::string package_folder(const char* package) {
  PyObject* module = PyImport_GetModule(PyUnicode_InternFromString(package));
  if (module == nullptr) {
    PyErr_Clear();
    return {};
  }
  std::string folder;
  if (PyObject* file = PyObject_GetAttrString(module, "__file__"); file != nullptr) {
    if (const char* text = PyUnicode_AsUTF8(file); text != nullptr) {
      folder = text;
      folder.erase(folder.rfind('/') + 1);
    }
    Py_DECREF(file);
  }
  Py_DECREF(module);
  PyErr_Clear();
  return folder;
}

bool inside(std::string_view file) {
  static const std::string torch = package_folder("torch");
  static const std::string spool = package_folder("torch_spool");
  return (!torch.empty() && file.starts_with(torch)) || (!spool.empty() && file.starts_with(spool)) ||
         file.starts_with("<frozen") || file.ends_with("/contextlib.py");
}

/// A location for `frame` or its nearest caller outside the packages; steals the reference to `frame`.
std::shared_ptr<Location> user_line(PyFrameObject* frame) {
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    Py_ssize_t length = 0;
    const char* text = PyUnicode_AsUTF8AndSize(code->co_filename, &length);
    const std::string_view file(text == nullptr ? "" : text, static_cast<std::size_t>(length));
    if (text != nullptr && !inside(file)) {
      auto location = std::make_shared<Location>();
      location->file = file;
      location->line = PyFrame_GetLineNumber(frame);
      Py_DECREF(code);
      Py_DECREF(frame);
      return location;
    }
    Py_DECREF(code);
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
  }
  PyErr_Clear();
  return nullptr;
}

std::atomic<PyThreadState*> last_recording{nullptr};

/// The frame of the thread that recorded last, if that thread still exists. New reference.
PyFrameObject* last_recording_frame() {
  PyThreadState* wanted = last_recording.load();
  for (PyThreadState* state = PyInterpreterState_ThreadHead(PyInterpreterState_Get()); state != nullptr;
       state = PyThreadState_Next(state)) {
    if (state == wanted) {
      return PyThreadState_GetFrame(state);
    }
  }
  return nullptr;
}

}  // namespace

LocationPtr current_line() {
  if (Py_IsInitialized() == 0) {
    return nullptr;
  }
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  if (frame != nullptr) {
    last_recording = PyThreadState_Get();
  } else {
    frame = last_recording_frame();
  }
  std::shared_ptr<Location> location = user_line(frame);
  PyGILState_Release(gil);
  if (location != nullptr) {
    location->scope = scope::current();
  }
  return location;
}

}  // namespace spool::python
