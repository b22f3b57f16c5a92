#include "src/torch/replay_recording.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "src/runtime/device.h"
#include "src/torch/encode.h"
#include "src/torch/generator.h"
#include "src/torch/lazy.h"
#include "src/torch/scalars.h"

namespace spool::torch_side {
namespace {

// PyTorch keeps this key for a C++ mode of its own that fakes tensors; it lies right above the backends, and no tensor here has it.
constexpr c10::DispatchKey our_key = c10::DispatchKey::Fake;
/// A CPU tensor that is larger is known by what it is, not by its content.
constexpr std::int64_t largest_content = 1 << 16;

FollowHooks hooks;
thread_local ReplayRecording* recording = nullptr;

void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, our_key);
  if (recording == nullptr) {
    op.redispatchBoxed(below, stack);
  } else {
    recording->op(op, below, *stack);
  }
}

/// At the first use, so that a process which replays nothing has nothing on the key.
void register_key() {
  static auto* library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "_", our_key, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&intercept>());
    return made;
  }();
  static_cast<void>(library);
}

/// Whether the op is one for a backend, not made of others that come by themselves.
bool is_leaf(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::XLA) ||
         !(op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
           op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd));
}

at::Tensor generator_state() {
  const c10::impl::ExcludeDispatchKeyGuard plainly(our_key);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

bool is_host(const at::Tensor& tensor) { return tensor.device().is_cpu() && tensor.layout() == at::kStrided; }

}  // namespace

void set_follow_hooks(const FollowHooks& set) { hooks = set; }

ReplayRecording::ReplayRecording(std::vector<at::Tensor> args, const std::vector<at::Tensor>& leaves) : args_(std::move(args)) {
  for (std::size_t i = 0; i < args_.size(); ++i) {
    const at::Tensor& tensor = args_[i];
    std::uint32_t first = 0;
    while (!args_[first].storage().is_alias_of(tensor.storage())) {
      ++first;
    }
    replay_->args_.push_back(
        {.geometry = geometry_of(tensor), .host = !is_lazy(tensor), .requires_grad = tensor.requires_grad(), .first = first});
    if (is_lazy(tensor)) {
      see(tensor);
    } else {
      const auto place = static_cast<std::uint32_t>(replay_->places_.size());
      if (place_.emplace(tensor.unsafeGetTensorImpl(), place).second) {
        replay_->places_.push_back({.kind = HostPlace::Kind::Argument, .argument = i});
      }
    }
  }
  for (const at::Tensor& tensor : leaves) {
    if (!is_lazy(tensor)) {
      continue;
    }
    const at::Tensor& gradient = tensor.grad();
    Entry entry;
    if (gradient.defined()) {
      entry.tensor.emplace(gradient.getIntrusivePtr());
      entry.slot = SlotPtr(slot_of(gradient));
    }
    replay_->leaves_.push_back({.tensor = tensor,
                                .storage = tensor.storage().unsafeGetStorageImpl(),
                                .requires_grad = tensor.requires_grad(),
                                .had_gradient = gradient.defined(),
                                .gradient = gradient.defined() ? geometry_of(gradient) : Geometry()});
    entries_.push_back(std::move(entry));
  }
}

ReplayRecording::~ReplayRecording() { stop(); }

void ReplayRecording::start() {
  TORCH_CHECK(Watch::here() == nullptr, "[compile] a function with replay=True is being recorded in this thread already");
  register_key();
  generator_ = generator_state();
  open_ = true;
  recording = this;
  open();
  c10::impl::tls_set_dispatch_key_included(our_key, true);
}

void ReplayRecording::end_body() {
  if (recording == this) {
    c10::impl::tls_set_dispatch_key_included(our_key, false);
    recording = nullptr;
    check_generator();
  }
}

void ReplayRecording::stop() {
  end_body();
  if (open_) {
    close();
    open_ = false;
  }
}

void ReplayRecording::check_generator() {
  const at::Tensor now = generator_state();
  const c10::impl::ExcludeDispatchKeyGuard plainly(our_key);
  if (!now.equal(generator_)) {
    refuse(str("it sets the state of PyTorch's random generator (a seed, a checkpointed forward) before ",
               describe(current_location())));
  }
  generator_ = now;
}

void ReplayRecording::refuse(const std::string& why) {
  if (problem_.empty()) {
    problem_ = why;
  }
}

std::uint32_t ReplayRecording::step(HostStep::Kind kind, std::uint32_t a, std::uint32_t b, double value) {
  HostStep made;
  made.kind = kind;
  made.a = a;
  made.b = b;
  made.value = value;
  made.to = static_cast<std::uint32_t>(replay_->registers_++);
  replay_->steps_.push_back(std::move(made));
  return replay_->steps_.back().to;
}

std::optional<Followed> ReplayRecording::item(const at::Tensor& tensor) {
  if (!open_ || !tensor.defined() || !is_host(tensor) || tensor.dim() != 0 ||
      (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kDouble)) {
    return std::nullopt;
  }
  const std::uint32_t place = place_of(tensor);
  return Followed{step(HostStep::Kind::Read, place), number_of(tensor).real};
}

void ReplayRecording::same(const Followed& number) {
  HostStep made;
  made.kind = HostStep::Kind::Same;
  made.a = number.at;
  made.value = number.value;
  made.where = current_location();
  replay_->steps_.push_back(std::move(made));
  replay_->guarded_ = true;
}

void ReplayRecording::compared(HostStep::Kind kind, std::uint32_t a, std::uint32_t b, bool value) {
  HostStep made;
  made.kind = kind;
  made.a = a;
  made.b = b;
  made.value = value ? 1 : 0;
  made.where = current_location();
  replay_->steps_.push_back(std::move(made));
  replay_->guarded_ = true;
}

std::uint32_t ReplayRecording::place_of(const at::Tensor& host) {
  const auto [known, is_new] = place_.emplace(host.unsafeGetTensorImpl(), static_cast<std::uint32_t>(replay_->places_.size()));
  if (is_new) {
    HostPlace place{.kind = HostPlace::Kind::Kept, .kept = host};
    if (host.numel() <= largest_content) {
      const c10::impl::ExcludeDispatchKeyGuard plainly(our_key);
      const at::AutoDispatchBelowADInplaceOrView guard;
      place.content = host.clone();
    }
    replay_->places_.push_back(std::move(place));
    hosts_.emplace_back(host.getIntrusivePtr());
  }
  return known->second;
}

void ReplayRecording::see(const at::Tensor& lazy) {
  Slot& slot = slot_of(lazy);
  Seen& seen = seen_[&slot];
  if (!seen.storage.has_value()) {
    seen.slot = SlotPtr(slot);
    seen.storage.emplace(lazy.unsafeGetTensorImpl()->unsafe_storage().getWeakStorageImpl());
  }
}

void ReplayRecording::born(const at::Tensor& lazy, const OpInfo& info) {
  Slot& slot = slot_of(lazy);
  if (!seen_.contains(&slot)) {
    see(lazy);
    Seen& seen = seen_[&slot];
    seen.born = true;
    seen.by = &info.op;
    seen.where = current_location();
  }
}

std::vector<std::pair<std::size_t, Followed>> ReplayRecording::take_numbers(const OpInfo& info, torch::jit::Stack& stack) {
  std::vector<std::pair<std::size_t, Followed>> followed;
  const std::size_t count = info.is_number.size();
  for (std::size_t i = 0; i < count; ++i) {
    c10::IValue& value = stack[stack.size() - count + i];
    if (value.isSymFloat()) {
      const c10::SymNode node = value.toSymFloat().toSymNodeImpl();
      const auto number = hooks.number != nullptr ? hooks.number(node) : std::nullopt;
      value = number.has_value() ? number->value : node->guard_float(__FILE__, __LINE__);
      if (number.has_value()) {
        followed.emplace_back(i, *number);
      }
    } else if (value.isList() && !value.isTensorList() && !value.isOptionalTensorList()) {
      const auto elements = value.toListRef();
      if (std::any_of(elements.begin(), elements.end(), [](const c10::IValue& one) { return one.isSymFloat(); })) {
        auto list = c10::impl::GenericList(c10::NumberType::get());
        for (const c10::IValue& one : elements) {
          list.push_back(one.isSymFloat() ? c10::IValue(one.toSymFloat().guard_float(__FILE__, __LINE__)) : one);
        }
        value = std::move(list);
      }
    } else if (value.isTensor() && value.toTensor().defined()) {
      const at::Tensor& tensor = value.toTensor();
      if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && is_host(tensor) && tensor.scalar_type() == at::kDouble &&
          std::isnan(number_of(tensor).real) && hooks.tensor != nullptr) {
        if (const auto number = hooks.tensor(tensor); number.has_value()) {
          const c10::impl::ExcludeDispatchKeyGuard plainly(our_key);
          const at::AutoDispatchBelowADInplaceOrView guard;
          at::Tensor plain = at::scalar_tensor(number->value, at::kDouble);
          plain.unsafeGetTensorImpl()->set_wrapped_number(true);
          value = plain;
          followed.emplace_back(i, *number);
        }
      }
    }
  }
  return followed;
}

void ReplayRecording::op(const c10::OperatorHandle& handle, c10::DispatchKeySet below, torch::jit::Stack& stack) {
  backward_ = backward_ || torch::autograd::get_current_graph_task_id() != -1;
  if (handle.operator_name().name.starts_with("profiler::")) {
    handle.redispatchBoxed(below, &stack);
    return;
  }
  const OpInfo& info = op_info(handle);
  const auto followed = take_numbers(info, stack);
  bool lazy = false;
  bool other = false;
  for (auto it = stack.end() - static_cast<std::ptrdiff_t>(info.is_number.size()); it != stack.end(); ++it) {
    lazy = lazy || (it->isDevice() && it->toDevice() == lazy_device()) ||
           (it->isDevice() && it->toDevice().type() == c10::DeviceType::XLA);
    visit_tensors(*it, [&](const at::Tensor& tensor) {
      lazy = lazy || is_lazy(tensor);
      other = other || (!is_lazy(tensor) && !is_host(tensor));
    });
  }
  if (other) {
    for (const auto& [argument, number] : followed) {
      same(number);
    }
    handle.redispatchBoxed(below, &stack);
  } else if (lazy) {
    lazy_op(info, below, stack, followed);
  } else {
    host_op(info, below, stack, followed);
  }
}

HostStep ReplayRecording::host_call(const OpInfo& info, const torch::jit::Stack& stack,
                                    const std::vector<std::pair<std::size_t, Followed>>& followed) {
  HostStep made;
  made.op = &info.handle;
  const std::size_t count = info.is_number.size();
  for (std::size_t i = 0; i < count; ++i) {
    const c10::IValue& value = stack[stack.size() - count + i];
    const auto number = std::find_if(followed.begin(), followed.end(), [&](const auto& one) { return one.first == i; });
    if (number != followed.end()) {
      made.numbers.push_back({i, number->second.at, value.isTensor()});
    }
    made.arguments.push_back(map_tensors(value, [&](const at::Tensor& tensor) -> at::Tensor {
      if (!tensor.defined() || is_lazy(tensor) || number != followed.end()) {
        made.tensors.push_back(UINT32_MAX);
      } else {
        made.tensors.push_back(place_of(tensor));
        HostPlace& place = replay_->places_[made.tensors.back()];
        place.written = place.written || info.op.mutates[i] != 0;
      }
      return {};
    }));
  }
  made.where = current_location();
  return made;
}

void ReplayRecording::host_op(const OpInfo& info, c10::DispatchKeySet below, torch::jit::Stack& stack,
                              const std::vector<std::pair<std::size_t, Followed>>& followed) {
  HostStep made = host_call(info, stack, followed);
  const std::size_t first = stack.size() - info.is_number.size();
  if (info.op.name == "aten::add_.Tensor" && followed.empty()) {
    const at::Tensor& self = stack[first].toTensor();
    const at::Tensor& by = stack[first + 1].toTensor();
    const bool kept = replay_->places_[made.tensors[0]].kind == HostPlace::Kind::Kept;
    if (kept && self.dim() == 0 && self.scalar_type() == at::kFloat && by.unsafeGetTensorImpl()->is_wrapped_number() &&
        stack[first + 2].isInt() && stack[first + 2].toInt() == 1) {
      const Number number = number_of(by);
      made.increments = true;
      made.a = made.tensors[0];
      made.value =
          number_type_of(*by.unsafeGetTensorImpl()).kind == NumberKind::Int ? static_cast<double>(number.integer) : number.real;
    }
  }
  replay_->draws_ = replay_->draws_ || info.random;
  if (info.random) {
    check_generator();
  }
  {
    const c10::impl::ExcludeDispatchKeyGuard plainly(our_key);
    info.handle.redispatchBoxed(below, &stack);
  }
  if (info.random) {
    generator_ = generator_state();
  }
  for (std::size_t i = first; i < stack.size(); ++i) {
    bool any = false;
    visit_tensors(stack[i], [&](const at::Tensor& tensor) {
      any = true;
      const auto [known, is_new] =
          place_.emplace(tensor.unsafeGetTensorImpl(), static_cast<std::uint32_t>(replay_->places_.size()));
      if (is_new) {
        replay_->places_.push_back({});
        hosts_.emplace_back(tensor.getIntrusivePtr());
      }
      made.places.push_back(known->second);
    });
    if (!any) {
      made.results.push_back(stack[i]);
      replay_->guarded_ = true;
    }
  }
  replay_->steps_.push_back(std::move(made));
}

void ReplayRecording::lazy_op(const OpInfo& info, c10::DispatchKeySet below, torch::jit::Stack& stack,
                              const std::vector<std::pair<std::size_t, Followed>>& followed) {
  const std::size_t count = info.is_number.size();
  const std::size_t first = stack.size() - count;
  if (info.traits.takes_cpu_tensors) {
    for (std::size_t i = first; i < stack.size(); ++i) {
      stack[i] = map_tensors(stack[i], [](const at::Tensor& tensor) {
        const bool host = tensor.defined() && tensor.device().is_cpu() && tensor.dim() != 0;
        return host ? tensor.to(lazy_device()) : tensor;
      });
    }
  }
  if (!is_leaf(info.handle)) {
    for (const auto& [argument, number] : followed) {
      same(number);
    }
    info.handle.redispatchBoxed(below, &stack);
    return;
  }
  const torch::jit::Stack arguments(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
  for (const auto& [argument, number] : followed) {
    if (!arguments[argument].isTensor() && info.is_number[argument] == 0 && !info.random) {
      same(number);  // it decides what the op is
    }
  }
  for (const c10::IValue& value : arguments) {
    visit_tensors(value, [&](const at::Tensor& tensor) {
      if (is_lazy(tensor)) {
        see(tensor);
      }
    });
  }
  const bool copies = info.op.name == "aten::copy_" || info.op.name == "aten::_copy_from";
  bool uploads = false;
  if (copies) {
    const at::Tensor& to = arguments[info.op.name == "aten::copy_" ? 0 : 1].toTensor();
    const at::Tensor& from = arguments[info.op.name == "aten::copy_" ? 1 : 0].toTensor();
    uploads = is_lazy(to) && is_host(from);
    if (uploads) {
      pending_.emplace();
      pending_->kind = HostStep::Kind::Upload;
      pending_->a = place_of(from);
      pending_->where = current_location();
    }
  }
  if ((copies && is_host(arguments[info.op.name == "aten::copy_" ? 0 : 1].toTensor())) ||
      info.op.name == "aten::_local_scalar_dense" || info.op.name == "aten::_copy_from_and_resize") {
    refuse(str(
        "it reads a tensor of the device (", info.op.name, ") at ", describe(current_location()),
        ": a replay does not run the code that looks at the value. Return the tensor and read it outside, or in a step closure"));
  }
  if (info.random) {
    check_generator();
    pending_ = host_call(info, arguments, followed);
    pending_->kind = HostStep::Kind::Fill;
    pending_->tensors.clear();
    const auto& schema = info.handle.schema().arguments();
    for (std::size_t i = 0; i < count; ++i) {
      if (schema[i].name() == "generator") {
        pending_->arguments[i] =
            arguments[i].isGenerator() ? c10::IValue(cpu_generator(arguments[i].toGenerator())) : c10::IValue();
        if (arguments[i].isGenerator() && pending_->arguments[i].toGenerator() != at::detail::getDefaultCPUGenerator()) {
          refuse(str(info.op.name, " at ", describe(current_location()), " draws from a generator of its own"));
        }
      }
    }
  }
  Device& device = Device::get();
  const auto on_tape = [&] {
    const auto lock = device.lock();
    return std::pair(device.tape().length(), device.tape().numbers().size());
  };
  const std::size_t cuts = cuts_;
  const auto before = on_tape();
  {
    const c10::impl::ExcludeDispatchKeyGuard plainly(our_key);
    info.handle.redispatchBoxed(below, &stack);
  }
  const auto after = on_tape();
  if (info.random) {
    generator_ = generator_state();
  }
  if (pending_.has_value()) {
    refuse(str("what ", info.op.name, " does at ", describe(current_location()), " can't be done again by a replay"));
    pending_.reset();
  }
  if (cuts_ == cuts) {
    length_ += after.first - before.first;
    if (!uploads && !info.random) {
      note_numbers(info, arguments, before.second, after.second, followed);
    }
  }
  for (std::size_t i = first; i < stack.size(); ++i) {
    visit_tensors(stack[i], [&](const at::Tensor& tensor) {
      if (is_lazy(tensor)) {
        born(tensor, info);
      }
    });
  }
}

void ReplayRecording::note_numbers(const OpInfo& info, const torch::jit::Stack& arguments, std::size_t before, std::size_t after,
                                   const std::vector<std::pair<std::size_t, Followed>>& followed) {
  auto& notes = replay_->notes_;
  if (before == after) {
    return;
  }
  const LocationPtr where = current_location();
  notes.resize(before);
  const auto note = [&](std::size_t argument) {
    const auto number = std::find_if(followed.begin(), followed.end(), [&](const auto& one) { return one.first == argument; });
    notes.push_back({&info.op, where, number != followed.end() ? static_cast<std::int32_t>(number->second.at) : -1});
  };
  // In the order in which the recorder takes numbers from the arguments.
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    const bool scalar = value.isDouble() || value.isInt() || value.isBool();
    if (info.is_number[i] != 0 && (scalar || value.isComplexDouble())) {
      note(i);
    } else if (info.is_number[i] != 0 && value.isList() && !value.isTensorList()) {
      for (std::size_t j = 0; j < value.toListRef().size(); ++j) {
        note(i);
      }
    } else {
      visit_tensors(value, [&](const at::Tensor& tensor) {
        if (is_lazy(tensor)) {
          return;
        }
        const auto at = static_cast<std::uint32_t>(notes.size());
        note(i);
        if (notes.back().from < 0 && !tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
          HostStep made;
          made.kind = HostStep::Kind::Parameter;
          made.a = place_of(tensor);
          made.to = at;
          made.where = where;
          replay_->steps_.push_back(std::move(made));
          notes.back().stepped = true;
        }
      });
    }
  }
  if (notes.size() != after) {
    // It was recorded in another form: which number went where is not known.
    const bool matter = std::any_of(notes.begin() + static_cast<std::ptrdiff_t>(before), notes.end(),
                                    [](const auto& one) { return one.from >= 0 || one.stepped; });
    if (matter) {
      refuse(str("the numbers of ", info.op.name, " at ", describe(where), " can't be followed"));
    }
    notes.resize(before);
    notes.resize(after, {&info.op, where});
  }
}

void ReplayRecording::cut(Cut cause, Tape& tape, const std::shared_ptr<Executable>& executable) {
  ++cuts_;
  if (cause != Cut::CompileExit) {
    refuse(str("it is cut by ", describe(cause)));
  }
  if (tape.length() != length_) {
    refuse("another thread records on the device at the same time");
  }
  if (!tape.generators().empty()) {
    refuse("it draws random numbers while a plan runs");
  }
  executable_ = executable;
  replay_->graph_.numbers = tape.numbers();
  replay_->notes_.resize(tape.numbers().size());
  tape_slots_.clear();
  for (const SlotPtr& slot : tape.slots()) {
    tape_slots_.emplace_back(*slot);
  }
}

void ReplayRecording::filled(Slot& slot, const Geometry& geometry) {
  if (!pending_.has_value()) {
    refuse("the host writes to a tensor in a way that a replay can't follow");
    return;
  }
  pending_->geometry = geometry;
  replay_->draws_ = replay_->draws_ || pending_->kind == HostStep::Kind::Fill;
  filled_.emplace_back(replay_->steps_.size(), SlotPtr(slot));
  replay_->steps_.push_back(std::move(*pending_));
  pending_.reset();
}

void ReplayRecording::ran_at_once(const Op& op) {
  pending_.reset();
  refuse(str(op.name, " at ", describe(current_location()),
             " can't be recorded (its result's shape depends on data, or it draws numbers in a way that depends on it)"));
}

}  // namespace spool::torch_side
