// Replay: a recorded call of a function as a program that runs without the function: what the host did (random draws, ops on CPU
// tensors, arithmetic on numbers), then one launch of the plan on the buffers of today's tensors.
//
// Threading: a Replay may be run from any thread, by one at a time (the binding sees to it).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/runtime/extract.h"
#include "src/tape/geometry.h"
#include "src/tape/location.h"

namespace spool::torch_side {

/// One thing that the host does. Numbers that are followed live in registers, CPU tensors in places.
struct HostStep {
  enum class Kind : std::uint8_t {
    Call,      ///< an op of CPU tensors
    Fill,      ///< a random fill of storage `to`
    Upload,    ///< the CPU tensor in place `a` is copied into storage `to`
    Parameter, ///< the plan's number `to` is the value of the 0-dim tensor in place `a`
    Read,      ///< register `to` is the value of the 0-dim tensor in place `a`
    Source,    ///< register `to` is the caller's number `a`
    Constant,  ///< register `to` is `value`
    Negate,
    Absolute,
    Add,
    Subtract,
    Multiply,
    Divide,
    Power,      ///< register `to` of registers `a`, `b`
    Less,
    LessEqual,
    Equal,  ///< the comparison of registers `a`, `b` must come out as `value` (0 or 1) says
    Same,      ///< register `a` must be `value`, bit for bit: it was used in a way that can't be followed
  };
  Kind kind = Kind::Call;
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t to = 0;
  double value = 0;
  Geometry geometry;                        ///< Fill, Upload: of the tensor that was written
  const c10::OperatorHandle* op = nullptr;  ///< Call, Fill
  torch::jit::Stack arguments;              ///< Call, Fill: what does not change; tensors are undefined here
  std::vector<std::uint32_t> tensors;       ///< Call: places of its defined tensors, in order
  struct Given {
    std::size_t argument = 0;
    std::uint32_t number = 0;  ///< its register
    bool wrapped = false;      ///< as a tensor
    bool operator==(const Given&) const = default;
  };
  std::vector<Given> numbers;               ///< Call, Fill: arguments that are registers
  torch::jit::Stack results;                ///< Call: results that are no tensors must be these
  std::vector<std::uint32_t> places;        ///< Call: where its tensors go
  bool increments = false;  ///< Call: adds `value` to the 0-dim float32 tensor in place `a`, and is nothing else
  LocationPtr where;
};

/// A CPU tensor that the program uses.
struct HostPlace {
  enum class Kind : std::uint8_t { Result, Argument, Kept };
  Kind kind = Kind::Result;
  std::size_t argument = 0;
  at::Tensor kept;  ///< Kept: the tensor itself
  at::Tensor content;  ///< Kept: a copy, as it was found; undefined for large ones
  bool written = false;  ///< Kept: the program writes to it
};

class Replay {
 public:
  /// Why `later`, a recording of another call, is not the same program; empty if it is.
  std::string differs(const Replay& later) const;

  /// What the host does in a run, a line for each step: for debugging.
  std::string text() const;

  /// Whether the tensors are those that the program was recorded for: geometry, sharing, gradients, storages.
  bool matches(const std::vector<at::Tensor>& args) const;

  /// Runs it on matching `args`. `sources` are the caller's numbers. nullopt, and nothing has changed, where a number now goes
  /// another way than when it was recorded. Throws as a cut does. `unlocked` is called around the launch.
  struct Results {
    std::vector<at::Tensor> tensors;
    std::vector<double> numbers;
  };
  template <class Unlocked>
  std::optional<Results> run(const std::vector<at::Tensor>& args, const std::vector<double>& sources, const Unlocked& unlocked) {
    if (!run_host(args, sources)) {
      return std::nullopt;
    }
    unlocked([&] { launch(); });
    return finish(args);
  }

 private:
  friend class ReplayRecording;

  struct Argument {
    Geometry geometry;
    bool host = false;
    bool requires_grad = false;
    std::uint32_t first = 0;  ///< the first argument on the same storage
    bool written = false;  ///< through this tensor: its version counts
    bool operator==(const Argument&) const = default;
  };
  struct External {
    enum class Kind : std::uint8_t { Argument, Gradient, Kept };
    Kind kind = Kind::Kept;
    std::size_t index = 0;  ///< of the argument, of the leaf
    c10::Storage storage;  ///< Kept
    std::size_t nbytes = 0;
    bool operator==(const External& other) const {
      return kind == other.kind && index == other.index && nbytes == other.nbytes && storage.is_alias_of(other.storage);
    }
  };
  struct Made {
    std::uint32_t storage = 0;
    Geometry geometry;
    bool operator==(const Made&) const = default;
  };
  struct Leaf {
    at::Tensor tensor;
    const c10::StorageImpl* storage = nullptr;
    bool requires_grad = false;
    bool had_gradient = false;
    Geometry gradient;  ///< as it was
    bool written = false;  ///< its storage gets a new content
    enum class After : std::uint8_t { Keep, None, New } after = After::Keep;
    Made made;  ///< New
  };
  struct Output {
    enum class Kind : std::uint8_t { Argument, Kept, On, Host, Earlier, Number };
    Kind kind = Kind::On;
    std::size_t index = 0;  ///< of the argument, the place, the earlier output, the register
    at::Tensor kept;
    Made made;  ///< On
  };
  struct NumberNote {
    const Op* op = nullptr;
    LocationPtr where;
    std::int32_t from = -1;  ///< register, or -1
    bool stepped = false;  ///< a Parameter step gives it
  };

  bool run_host(const std::vector<at::Tensor>& args, const std::vector<double>& sources);
  bool run_steps(const std::vector<at::Tensor>& args, const std::vector<double>& sources);
  bool call(HostStep& step);
  void give_numbers(const HostStep& step, torch::jit::Stack& stack) const;
  void fill(HostStep& step);
  void bind(const std::vector<at::Tensor>& args);
  void launch();
  Results finish(const std::vector<at::Tensor>& args);
  Slot& external(const External& one, const std::vector<at::Tensor>& args) const;
  bool shares_as_recorded(const std::vector<at::Tensor>& args) const;

  std::vector<Argument> args_;
  std::vector<External> externals_;
  std::vector<Leaf> leaves_;
  std::vector<HostPlace> places_;
  std::vector<HostStep> steps_;
  std::size_t registers_ = 0;
  std::vector<NumberNote> notes_;  ///< per number of the plan
  std::vector<Output> outputs_;
  Extracted graph_;
  bool guarded_ = false;
  bool draws_ = false;
  bool fills_external_ = false;

  // Of the run that goes on.
  std::vector<at::Tensor> tensors_;
  std::vector<double> values_;
  std::vector<Number> numbers_;
  std::vector<Slot*> slots_;
  std::vector<c10::Storage> storages_;  ///< those made
};

}  // namespace spool::torch_side
