#include "src/torch/replay.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>

#include "src/runtime/device.h"
#include "src/torch/encode.h"
#include "src/torch/generator.h"
#include "src/torch/lazy.h"
#include "src/torch/scalars.h"

namespace spool::torch_side {
namespace {

bool has_geometry(const at::TensorImpl& tensor, const Geometry& geometry) {
  return static_cast<DType>(tensor.dtype().toScalarType()) == geometry.dtype && tensor.storage_offset() == geometry.offset &&
         tensor.sizes() == c10::IntArrayRef(geometry.sizes) && tensor.strides() == c10::IntArrayRef(geometry.strides);
}

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

bool same_value(const c10::IValue& a, const c10::IValue& b) {
  if (a.tagKind() != b.tagKind()) {
    return false;
  }
  return a.isDouble() ? same_bits(a.toDouble(), b.toDouble()) : a == b;
}

/// A 0-dim float32 CPU tensor's content.
float& scalar_of(const at::Tensor& tensor) { return *static_cast<float*>(tensor.unsafeGetTensorImpl()->mutable_data()); }

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace

bool Replay::shares_as_recorded(const std::vector<at::Tensor>& args) const {
  for (std::size_t i = 0; i < args.size(); ++i) {
    const c10::StorageImpl* storage = storage_of(args[i]);
    std::size_t first = 0;
    while (storage_of(args[first]) != storage) {
      ++first;
    }
    if (args_[i].first != first) {
      return false;
    }
    for (const External& one : externals_) {
      // Recorded as no argument's storage: then it must be none now.
      if (one.kind == External::Kind::Kept && one.storage.unsafeGetStorageImpl() == storage) {
        return false;
      }
    }
  }
  return true;
}

bool Replay::matches(const std::vector<at::Tensor>& args) const {
  if (args.size() != args_.size()) {
    return false;
  }
  for (std::size_t i = 0; i < args.size(); ++i) {
    const Argument& known = args_[i];
    const at::TensorImpl& tensor = *args[i].unsafeGetTensorImpl();
    if (is_lazy(tensor) == known.host || args[i].requires_grad() != known.requires_grad ||
        !has_geometry(tensor, known.geometry)) {
      return false;
    }
  }
  for (const Leaf& leaf : leaves_) {
    if (storage_of(leaf.tensor) != leaf.storage || leaf.tensor.requires_grad() != leaf.requires_grad) {
      return false;
    }
    const at::Tensor& gradient = leaf.tensor.grad();
    if (gradient.defined() != leaf.had_gradient ||
        (leaf.had_gradient && (!is_lazy(gradient) || !has_geometry(*gradient.unsafeGetTensorImpl(), leaf.gradient)))) {
      return false;
    }
  }
  return shares_as_recorded(args);
}

Slot& Replay::external(const External& one, const std::vector<at::Tensor>& args) const {
  switch (one.kind) {
    case External::Kind::Argument: return slot_of(args[one.index]);
    case External::Kind::Gradient: return slot_of(leaves_[one.index].tensor.grad());
    case External::Kind::Kept: break;
  }
  return *static_cast<Slot*>(one.storage.unsafeGetStorageImpl()->data_ptr().get_context());
}

void Replay::bind(const std::vector<at::Tensor>& args) {
  slots_.clear();
  storages_.clear();
  for (const External& one : externals_) {
    slots_.push_back(&external(one, args));
  }
  for (const std::size_t nbytes : graph_.made) {
    slots_.push_back(new Slot(nbytes));
    storages_.push_back(adopt(*slots_.back()));
  }
  if (fills_external_) {
    // What is pending reads or writes what the host is about to write.
    std::vector<Slot*> filled;
    for (const HostStep& step : steps_) {
      if ((step.kind == HostStep::Kind::Fill || step.kind == HostStep::Kind::Upload) && step.to < externals_.size()) {
        filled.push_back(slots_[step.to]);
      }
    }
    with_torch_errors([&] { Device::get().cut_for(filled, "replay", Cut::Extracted, /*touched=*/true); });
  }
}

void Replay::give_numbers(const HostStep& step, torch::jit::Stack& stack) const {
  for (const HostStep::Given& given : step.numbers) {
    if (given.wrapped) {
      at::Tensor wrapped = at::scalar_tensor(values_[given.number], at::kDouble);
      wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
      stack[given.argument] = std::move(wrapped);
    } else {
      stack[given.argument] = values_[given.number];
    }
  }
}

bool Replay::call(HostStep& step) {
  if (step.increments) {
    scalar_of(places_[step.a].kept) += static_cast<float>(step.value);
    places_[step.a].kept.unsafeGetTensorImpl()->bump_version();
    return true;
  }
  torch::jit::Stack stack;
  stack.reserve(step.arguments.size());
  std::size_t next = 0;
  for (const c10::IValue& value : step.arguments) {
    stack.push_back(map_tensors(value, [&](const at::Tensor&) -> at::Tensor {
      const std::uint32_t place = step.tensors[next++];
      return place == UINT32_MAX ? at::Tensor() : tensors_[place];
    }));
  }
  give_numbers(step, stack);
  step.op->callBoxed(stack);
  std::size_t place = 0;
  std::size_t other = 0;
  bool as_recorded = true;
  for (const c10::IValue& result : stack) {
    bool any = false;
    visit_tensors(result, [&](const at::Tensor& tensor) {
      any = true;
      if (place < step.places.size()) {
        tensors_[step.places[place]] = tensor;
      }
      ++place;
    });
    if (!any) {
      as_recorded = as_recorded && other < step.results.size() && same_value(result, step.results[other]);
      ++other;
    }
  }
  return as_recorded && place == step.places.size();
}

void Replay::fill(HostStep& step) {
  Slot& slot = *slots_[step.to];
  auto buffer = std::make_shared<Buffer>();
  buffer->nbytes = slot.nbytes;
  with_torch_errors([&] { buffer->memory = Device::get().engine().allocate(slot.nbytes); });
  const at::Tensor target = cpu_alias(buffer, step.geometry);
  if (step.kind == HostStep::Kind::Upload) {
    at::Tensor(target).copy_(tensors_[step.a]);
  } else {
    torch::jit::Stack stack = step.arguments;
    stack[0] = target;
    give_numbers(step, stack);
    step.op->callBoxed(stack);
  }
  const auto lock = Device::get().lock();
  slot.buffer = std::move(buffer);
}

bool Replay::run_steps(const std::vector<at::Tensor>& args, const std::vector<double>& sources) {
  using Kind = HostStep::Kind;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].kind != HostPlace::Kind::Result) {
      tensors_[i] = places_[i].kind == HostPlace::Kind::Kept ? places_[i].kept : args[places_[i].argument];
    }
  }
  for (HostStep& step : steps_) {
    double* to = values_.data() + step.to;
    const auto a = [&] { return values_[step.a]; };
    const auto b = [&] { return values_[step.b]; };
    bool as_recorded = true;
    switch (step.kind) {
      case Kind::Call: as_recorded = call(step); break;
      case Kind::Fill:
      case Kind::Upload: fill(step); break;
      case Kind::Parameter: numbers_[step.to] = number_of(tensors_[step.a]); break;
      case Kind::Read: *to = number_of(tensors_[step.a]).real; break;
      case Kind::Source: *to = sources[step.a]; break;
      case Kind::Constant: *to = step.value; break;
      case Kind::Negate: *to = -a(); break;
      case Kind::Absolute: *to = std::fabs(a()); break;
      case Kind::Add: *to = a() + b(); break;
      case Kind::Subtract: *to = a() - b(); break;
      case Kind::Multiply: *to = a() * b(); break;
      case Kind::Divide:
        TORCH_CHECK(b() != 0, "[replay] float division by zero");
        *to = a() / b();
        break;
      case Kind::Power: *to = std::pow(a(), b()); break;
      case Kind::Less: as_recorded = (a() < b()) == (step.value != 0); break;
      case Kind::LessEqual: as_recorded = (a() <= b()) == (step.value != 0); break;
      case Kind::Equal: as_recorded = (a() == b()) == (step.value != 0); break;
      case Kind::Same: as_recorded = same_bits(a(), step.value); break;
    }
    if (!as_recorded) {
      return false;
    }
  }
  return true;
}

bool Replay::run_host(const std::vector<at::Tensor>& args, const std::vector<double>& sources) {
  numbers_ = graph_.numbers;
  if (steps_.empty()) {
    bind(args);
    return true;
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  tensors_.assign(places_.size(), at::Tensor());
  values_.resize(registers_);
  // What the steps change is put back if a number turns out to go another way.
  std::vector<std::pair<at::Tensor, at::Tensor>> before;
  at::Tensor generator;
  at::Generator drawn_from = at::detail::getDefaultCPUGenerator();
  if (guarded_) {
    for (const HostPlace& place : places_) {
      if (place.written) {
        const at::Tensor& tensor = place.kind == HostPlace::Kind::Kept ? place.kept : args[place.argument];
        before.emplace_back(tensor, tensor.clone());
      }
    }
    if (draws_) {
      const std::scoped_lock lock(drawn_from.mutex());
      generator = drawn_from.get_state();
    }
  }
  bind(args);
  const bool done = run_steps(args, sources);
  if (!done) {
    for (auto& [tensor, content] : before) {
      tensor.copy_(content);
    }
    if (generator.defined()) {
      const std::scoped_lock lock(drawn_from.mutex());
      drawn_from.set_state(generator);
    }
    storages_.clear();
  }
  return done;
}

void Replay::launch() {
  for (std::size_t i = 0; i < notes_.size(); ++i) {
    if (notes_[i].from >= 0) {
      numbers_[i].real = values_[static_cast<std::size_t>(notes_[i].from)];
    }
  }
  with_torch_errors([&] { Device::get().launch(graph_, slots_, std::move(numbers_)); });
}

Replay::Results Replay::finish(const std::vector<at::Tensor>& args) {
  const auto made = [&](const Made& one) {
    const std::size_t at = one.storage;
    if (at >= externals_.size()) {
      return make_tensor(storages_[at - externals_.size()], one.geometry);
    }
    const External& external = externals_[at];
    const c10::Storage& storage = external.kind == External::Kind::Argument   ? args[external.index].storage()
                                  : external.kind == External::Kind::Gradient ? leaves_[external.index].tensor.grad().storage()
                                                                              : external.storage;
    return make_tensor(storage, one.geometry);
  };
  Results results;
  results.tensors.reserve(outputs_.size());
  for (const Output& output : outputs_) {
    switch (output.kind) {
      case Output::Kind::Argument: results.tensors.push_back(args[output.index]); break;
      case Output::Kind::Kept: results.tensors.push_back(output.kept); break;
      case Output::Kind::On: results.tensors.push_back(made(output.made)); break;
      case Output::Kind::Host: results.tensors.push_back(tensors_[output.index]); break;
      case Output::Kind::Earlier: results.tensors.push_back(results.tensors[output.index]); break;
      case Output::Kind::Number:
        results.tensors.emplace_back();
        results.numbers.push_back(values_[output.index]);
        break;
    }
  }
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args_[i].written && !args[i].is_inference()) {
      args[i].unsafeGetTensorImpl()->bump_version();
    }
  }
  std::vector<at::Tensor> gradients;  // made before any is replaced: one may be a view of another
  for (const Leaf& leaf : leaves_) {
    if (leaf.after == Leaf::After::New) {
      gradients.push_back(made(leaf.made));
    }
  }
  std::size_t next = 0;
  for (Leaf& leaf : leaves_) {
    if (leaf.written && !leaf.tensor.is_inference()) {
      leaf.tensor.unsafeGetTensorImpl()->bump_version();
    }
    if (leaf.after == Leaf::After::New) {
      leaf.tensor.mutable_grad() = std::move(gradients[next++]);
    } else if (leaf.after == Leaf::After::None && leaf.had_gradient) {
      leaf.tensor.mutable_grad() = at::Tensor();
    }
  }
  tensors_.clear();
  storages_.clear();
  return results;
}

std::string Replay::text() const {
  static constexpr const char* names[] = {"call",     "fill",   "upload",   "parameter",  "read",     "source",
                                          "constant", "negate", "absolute", "add",        "subtract", "multiply",
                                          "divide",   "power",  "less",     "less_equal", "equal",    "same"};
  std::string lines;
  for (const HostStep& step : steps_) {
    std::string places;
    for (const std::uint32_t place : step.tensors) {
      places += str(" ", place == UINT32_MAX ? std::string("-") : std::to_string(place));
    }
    lines +=
        str(names[static_cast<std::size_t>(step.kind)], step.op == nullptr ? "" : " " + c10::toString(step.op->operator_name()),
            places, " a=", step.a, " b=", step.b, " to=", step.to, " value=", step.value, " at ", describe(step.where), "\n");
  }
  for (std::size_t i = 0; i < places_.size(); ++i) {
    static constexpr const char* kinds[] = {"a result", "an argument", "kept"};
    lines +=
        str("place ", i, ": ", kinds[static_cast<std::size_t>(places_[i].kind)], places_[i].written ? ", written" : "", "\n");
  }
  return lines;
}

std::string Replay::differs(const Replay& later) const {
  if (graph_.executable != later.graph_.executable || graph_.storage_of != later.graph_.storage_of) {
    return "its operations, or which of their results are kept, differ from call to call";
  }
  if (args_ != later.args_ || graph_.made != later.graph_.made || graph_.replaced != later.graph_.replaced) {
    return "what its arguments share, or what it keeps, differs from call to call";
  }
  if (externals_ != later.externals_) {
    return "it uses tensors that are made anew between calls (and are no arguments); pass them as arguments, or update them in "
           "place";
  }
  if (steps_.size() != later.steps_.size() || places_.size() != later.places_.size() || registers_ != later.registers_) {
    return "what it does with CPU tensors and numbers differs from call to call";
  }
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const HostPlace& a = places_[i];
    const HostPlace& b = later.places_[i];
    bool same = a.kind == b.kind && a.argument == b.argument && a.written == b.written;
    if (same && a.kind == HostPlace::Kind::Kept && !a.kept.is_same(b.kept)) {
      same = !a.written && a.content.defined() && b.content.defined() && a.content.scalar_type() == b.content.scalar_type() &&
             a.content.sizes() == b.content.sizes() && a.content.equal(b.content);
    }
    if (!same) {
      return "it uses a CPU tensor that is made anew in each call, with another content; pass it as an argument";
    }
  }
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const HostStep& a = steps_[i];
    const HostStep& b = later.steps_[i];
    const std::string where = str(" at ", describe(b.where));
    bool same = a.kind == b.kind && a.a == b.a && a.b == b.b && a.to == b.to && a.geometry == b.geometry &&
                a.tensors == b.tensors && a.numbers == b.numbers && a.places == b.places &&
                a.arguments.size() == b.arguments.size() && a.results.size() == b.results.size() &&
                (a.op == nullptr) == (b.op == nullptr) && (a.op == nullptr || a.op->operator_name() == b.op->operator_name());
    if (a.kind == HostStep::Kind::Same && same && !same_bits(a.value, b.value)) {
      return str(
          "a number that changes (", a.value, ", then ", b.value, ") is used", where,
          " in a way that can't be followed: converted to a plain Python number, or given to an operation that takes it as "
          "part of its form. Keep it out of the function, or pass what depends on it as an argument");
    }
    same = same && same_bits(a.value, b.value);
    for (std::size_t j = 0; same && j < a.arguments.size(); ++j) {
      const bool followed =
          std::any_of(a.numbers.begin(), a.numbers.end(), [&](const HostStep::Given& one) { return one.argument == j; });
      same = followed || a.arguments[j].isTensor() || a.arguments[j].isTensorList() || a.arguments[j].isOptionalTensorList() ||
             a.arguments[j].isGenerator() || same_value(a.arguments[j], b.arguments[j]);
    }
    for (std::size_t j = 0; same && j < a.results.size(); ++j) {
      same = same_value(a.results[j], b.results[j]);
    }
    if (!same) {
      return str("what it does with CPU tensors and numbers", where, " differs from call to call");
    }
  }
  for (std::size_t i = 0; i < notes_.size(); ++i) {
    const NumberNote& a = notes_[i];
    const NumberNote& b = later.notes_[i];
    const Number& x = graph_.numbers[i];
    const Number& y = later.graph_.numbers[i];
    const bool same = x.integer == y.integer && same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
    if (a.from != b.from || a.stepped != b.stepped || (!same && a.from < 0 && !a.stepped)) {
      return str("a number of ", b.op == nullptr ? "an operation" : b.op->name, " at ", describe(b.where), " changes (",
                 x.integer != y.integer ? str(x.integer, ", then ", y.integer) : str(x.real, ", then ", y.real),
                 ") and nothing that can be followed explains it. Followed are float arguments, the numbers of an optimiser's "
                 "param_groups, and item() of CPU tensors. Pass the number as a float argument, or keep it in a tensor of the "
                 "device");
    }
  }
  for (std::size_t i = 0; i < outputs_.size() && outputs_.size() == later.outputs_.size(); ++i) {
    const Output& a = outputs_[i];
    const Output& b = later.outputs_[i];
    if (a.kind != b.kind || a.index != b.index || !(a.made == b.made) || !a.kept.is_same(b.kept)) {
      return "its results differ from call to call";
    }
  }
  if (outputs_.size() != later.outputs_.size() || leaves_.size() != later.leaves_.size()) {
    return "its results, or the parameters it uses, differ from call to call";
  }
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (!leaves_[i].tensor.is_same(later.leaves_[i].tensor) || leaves_[i].storage != later.leaves_[i].storage ||
        leaves_[i].after != later.leaves_[i].after || !(leaves_[i].made == later.leaves_[i].made)) {
      return "the parameters it uses, or their gradients, differ from call to call";
    }
  }
  return "";
}

}  // namespace spool::torch_side
