#include "python/bindings/location.h"

#include <Python.h>
#include <frameobject.h>

#include <atomic>
#include <string>
#include <string_view>

#include "src/base/scope.h"
#include "src/runtime/explain.h"

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

/// Visits `frame` and its callers outside the packages, with (file, line, code), until `visit` gives false; steals the reference.
template <class Visit>
void visit_user_frames(PyFrameObject* frame, Visit&& visit) {
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    Py_ssize_t length = 0;
    const char* text = PyUnicode_AsUTF8AndSize(code->co_filename, &length);
    const std::string_view file(text == nullptr ? "" : text, static_cast<std::size_t>(length));
    const bool go_on = text == nullptr || inside(file) || visit(file, PyFrame_GetLineNumber(frame), code);
    Py_DECREF(code);
    PyFrameObject* caller = go_on ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = caller;
  }
  PyErr_Clear();
}

/// The nearest line outside the packages; with `stack`, also the frames around it.
std::shared_ptr<Location> user_line(PyFrameObject* frame, bool stack) {
  auto location = std::make_shared<Location>();
  visit_user_frames(frame, [&](std::string_view file, int line, PyCodeObject* code) {
    if (location->file.empty()) {
      location->file = file;
      location->line = line;
    }
    if (stack) {
      const char* function = PyUnicode_AsUTF8(code->co_name);
      location->stack.append(file).append(":").append(std::to_string(line));
      location->stack.append(" in ").append(function == nullptr ? "?" : function).append("\n");
    }
    return stack;
  });
  return location;
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
  std::shared_ptr<Location> location = user_line(frame, explain::on());
  PyGILState_Release(gil);
  location->scope = scope::current();
  return location;
}

}  // namespace spool::python
