// Checks a graph's invariants. Each rule below has a test in tests/unit/verify_test.cpp.
#include "src/base/error.h"
#include "src/graph/graph.h"

namespace spool {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), state_(graph.values.size(), State::Undefined) {}

  void run() {
    check_values();
    where_ = "inputs";
    for (const GraphInput& input : graph_.inputs) {
      define(input.value);
    }
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      check(node.op != nullptr, str("node ", i), "a node needs an op");
      where_ = str("node ", i, " (", node.op->name, ")");
      check_node(node);
    }
    where_ = "outputs";
    check_outputs();
  }

 private:
  enum class State : std::uint8_t { Undefined, Live, Mutated };

  template <class... Parts>
  void check(bool condition, const std::string& where, const Parts&... parts) const {
    SPOOL_CHECK(condition, Internal, "[verify] ", where, ": expected ", parts..., ". Please report this. The graph:\n", graph_);
  }

  State& state(ValueId value) {
    check(value >= 0 && static_cast<std::size_t>(value) < state_.size(), where_, "a value id below ", state_.size(), ", got ",
          value);
    return state_[static_cast<std::size_t>(value)];
  }

  const Value& at(ValueId value) const { return graph_.values[static_cast<std::size_t>(value)]; }

  void check_values() const {
    for (std::size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& value = graph_.values[i];
      check(value.geometry.sizes.size() == value.geometry.strides.size(), str("%", i), "as many strides as sizes");
      check(value.geometry.offset == 0, str("%", i), "a value to start at offset 0, got ", value.geometry);
      check(value.geometry.storage_bytes() <= value.nbytes, str("%", i), "a geometry inside ", value.nbytes, " bytes, got ",
            value.geometry);
    }
  }

  void define(ValueId value) {
    State& defined = state(value);
    check(defined == State::Undefined, where_, "%", value, " to be defined once");
    defined = State::Live;
  }

  void use(ValueId value) {
    const State used = state(value);
    check(used != State::Undefined, where_, "%", value, " to be defined before its use");
    check(used != State::Mutated, where_, "no use of %", value, " after it was mutated");
  }

  void check_node(const Node& node) {
    for_each_tensor(node.args, [&](const Arg& arg) {
      use(arg.value);
      const Geometry& geometry = arg.geometry;
      check(geometry.sizes.size() == geometry.strides.size(), where_, "as many strides as sizes of %", arg.value);
      check(geometry.offset >= 0 && geometry.storage_bytes() <= at(arg.value).nbytes, where_, "an operand inside the ",
            at(arg.value).nbytes, " bytes of %", arg.value, ", got ", geometry);
    });
    for (const Arg& arg : node.args) {
      check_parameters(arg);
    }
    const std::vector<ValueId> old = mutated(node);
    check(node.fresh >= 0 && node.results.size() == static_cast<std::size_t>(node.fresh) + old.size(), where_, node.fresh,
          " fresh results and ", old.size(), " new values of mutated ones, got ", node.results.size(), " results");
    if (node.kernel != nullptr) {
      verify_kernel(graph_, node);
    }
    for (const ValueId value : old) {
      state(value) = State::Mutated;
    }
    for (std::size_t i = 0; i < node.results.size(); ++i) {
      const bool fresh = i < static_cast<std::size_t>(node.fresh);
      if (fresh && node.results[i] == no_value) {
        continue;
      }
      define(node.results[i]);
      if (!fresh) {
        const ValueId before = old[i - static_cast<std::size_t>(node.fresh)];
        check(at(before).nbytes == at(node.results[i]).nbytes, where_, "%", node.results[i], " to be as large as %", before,
              ", whose next value it is");
      }
    }
  }

  void check_parameters(const Arg& arg) const {
    if (is_constant(arg)) {
      check(arg.parameter == -1 && arg.number.kind != NumberKind::Complex, where_,
            "a number to be a parameter or a constant that isn't complex, got parameter ", arg.parameter);
    } else if (arg.tag == Tag::Number) {
      check(arg.parameter >= 0 && arg.parameter < graph_.numbers, where_, "a number below ", graph_.numbers, ", got ",
            arg.parameter);
    } else if (arg.tag == Tag::Generator) {
      check(arg.parameter >= 0 && arg.parameter < graph_.generators, where_, "a generator below ", graph_.generators, ", got ",
            arg.parameter);
    }
    for (const Arg& element : arg.elements) {
      check_parameters(element);
    }
  }

  void check_outputs() {
    std::vector<bool> replaced(graph_.inputs.size(), false);
    for (const GraphOutput& output : graph_.outputs) {
      use(output.value);
      const Value& value = at(output.value);
      check(value.geometry.covers(value.nbytes), where_, "%", output.value, " to cover its ", value.nbytes, " bytes, got ",
            value.geometry);
      if (output.input == -1) {
        continue;
      }
      const auto input = static_cast<std::size_t>(output.input);
      check(output.input >= 0 && input < replaced.size(), where_, "an input below ", replaced.size(), " to replace, got ",
            output.input);
      check(!replaced[input], where_, "one output to replace input ", input);
      check(at(graph_.inputs[input].value).nbytes == value.nbytes, where_, "%", output.value, " to be as large as input ", input,
            ", which it replaces");
      replaced[input] = true;
    }
  }

  const Graph& graph_;
  std::vector<State> state_;
  std::string where_;
};

}  // namespace

void verify(const Graph& graph) { Verifier(graph).run(); }

}  // namespace spool
