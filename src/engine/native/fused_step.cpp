#include "src/engine/native/fused_step.h"

#include <algorithm>
#include <bit>

#include "src/base/error.h"

namespace spool::native {
namespace {

std::size_t align_up(std::size_t nbytes) { return (nbytes + 63) / 64 * 64; }

}  // namespace

FusedStep::FusedStep(const Node& node, const MemoryPlan& memory) : Step(node) {
  const Kernel& kernel = *node.kernel;
  const std::vector<ValueId> old = mutated(node);
  const auto buffer_of = [&](const KernelPlace& place) {
    ValueId value = no_value;
    if (place.operand >= 0) {
      value = node.args[static_cast<std::size_t>(place.operand)].value;
      const auto at = std::find(old.begin(), old.end(), value);
      if (at != old.end()) {
        value = node.results[static_cast<std::size_t>(node.fresh) + static_cast<std::size_t>(at - old.begin())];
      }
    } else {
      value = node.results[static_cast<std::size_t>(place.result)];
    }
    return static_cast<std::size_t>(memory.buffer_of[static_cast<std::size_t>(value)]);
  };
  // Whether two buffers share memory: values of the arena may, if one ends where the other begins.
  const auto overlap = [&](std::size_t a, std::size_t b) {
    const PlannedBuffer& x = memory.buffers[a];
    const PlannedBuffer& y = memory.buffers[b];
    const bool arena = x.kind == PlannedBuffer::Kind::Arena && y.kind == PlannedBuffer::Kind::Arena;
    return a == b || (arena && x.offset < y.offset + y.nbytes && y.offset < x.offset + x.nbytes);
  };
  for (const KernelSegment& segment : kernel.segments) {
    std::vector<std::size_t> buffers;
    for (const KernelPlace& place : segment.places) {
      buffers.push_back(buffer_of(place));
    }
    bool in_place = false;
    for (std::size_t a = 0; a < buffers.size(); ++a) {
      for (std::size_t b = 0; b < buffers.size(); ++b) {
        in_place = in_place || (kernel.accesses[a].store && !kernel.accesses[b].store && overlap(buffers[a], buffers[b]));
      }
    }
    Extent extent;
    Form form = make_form(kernel, segment, in_place, vector_bytes(), extent);
    launches_.emplace_back(std::move(form), std::move(extent), segment);
    scratch_bytes_ += align_up(launches_.back().scratch_bytes());
    buffers_.push_back(std::move(buffers));
    std::vector<NumberSource> numbers;
    for (const std::int32_t index : segment.numbers) {
      const Arg& arg = node.args[static_cast<std::size_t>(index)];
      const bool real = arg.number.kind == NumberKind::Double;
      const std::int64_t constant = real ? std::bit_cast<std::int64_t>(arg.real) : arg.integer;
      numbers.push_back({is_constant(arg) ? -1 : arg.parameter, real, constant});
    }
    arguments_.push_back({std::vector<char*>(segment.places.size()), std::vector<std::int64_t>(numbers.size()), nullptr});
    numbers_.push_back(std::move(numbers));
  }
}

void FusedStep::run(RunState& state) {
  const NativePlan& plan = state.plan;
  Memory scratch;
  if (scratch_bytes_ != 0) {
    scratch = state.engine.allocate(scratch_bytes_);
  }
  auto* next = static_cast<char*>(scratch_bytes_ != 0 ? scratch.data() : nullptr);
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    LaunchArguments& arguments = arguments_[i];
    for (std::size_t a = 0; a < arguments.pointers.size(); ++a) {
      const std::size_t buffer = buffers_[i][a];
      auto* base = static_cast<char*>(plan.storages[buffer].unsafeGetStorageImpl()->data_ptr().get());
      arguments.pointers[a] = base + plan.memory.buffers[buffer].offset;
    }
    for (std::size_t n = 0; n < arguments.numbers.size(); ++n) {
      const NumberSource& source = numbers_[i][n];
      if (source.parameter < 0) {
        arguments.numbers[n] = source.constant;
        continue;
      }
      const Number& number = state.args.numbers[static_cast<std::size_t>(source.parameter)];
      arguments.numbers[n] = source.real ? std::bit_cast<std::int64_t>(number.real) : number.integer;
    }
    arguments.scratch = next;
    next += align_up(launches_[i].scratch_bytes());
  }
  run_launches(launches_, arguments_);
}

void compile_steps(const std::vector<FusedStep*>& steps) {
  std::vector<Form> forms;
  for (const FusedStep* step : steps) {
    for (const KernelLaunch& launch : step->launches()) {
      forms.push_back(launch.form());
    }
  }
  std::vector<KernelCodePtr> code = compile_kernels(forms);
  std::size_t next = 0;
  for (FusedStep* step : steps) {
    for (KernelLaunch& launch : step->launches()) {
      launch.set_code(std::move(code[next++]));
    }
  }
}

}  // namespace spool::native
