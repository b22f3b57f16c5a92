// A graph as text: for dumps, `torch_spool.graph_text`, golden tests and error messages.
#include <algorithm>
#include <array>
#include <charconv>
#include <ostream>
#include <sstream>
#include <string_view>

#include "src/graph/graph.h"

namespace spool {
namespace {

class Printer {
 public:
  Printer(const Graph& graph, std::ostream& out) : graph_(graph), out_(out) {}

  void print(bool locations) {
    out_ << "graph(";
    list(graph_.inputs, [&](const GraphInput& input) { definition(input.value); });
    out_ << ')';
    count(graph_.numbers, "number");
    count(graph_.generators, "generator");
    out_ << '\n';
    for (const Node& node : graph_.nodes) {
      line(node);
      if (locations) {
        out_ << "  # " << describe(node.location);
      }
      out_ << '\n';
      if (node.kernel != nullptr) {
        kernel(*node.kernel);
      }
    }
    out_ << (graph_.outputs.empty() ? "  return" : "  return ");
    list(graph_.outputs, [&](const GraphOutput& output) {
      id(output.value);
      if (output.input >= 0) {
        const auto input = static_cast<std::size_t>(output.input);
        out_ << " in place of ";
        id(input < graph_.inputs.size() ? graph_.inputs[input].value : no_value);
      }
    });
    out_ << '\n';
  }

 private:
  template <class Items, class Print>
  void list(const Items& items, Print&& print) {
    const char* separator = "";
    for (const auto& item : items) {
      out_ << separator;
      print(item);
      separator = ", ";
    }
  }

  void count(std::int32_t number, const char* noun) {
    if (number != 0) {
      out_ << ", " << number << ' ' << noun << (number == 1 ? "" : "s");
    }
  }

  void id(ValueId value) {
    if (value == no_value) {
      out_ << '_';
    } else {
      out_ << '%' << value;
    }
  }

  bool known(ValueId value) const { return value >= 0 && static_cast<std::size_t>(value) < graph_.values.size(); }

  void definition(ValueId value) {
    id(value);
    if (known(value)) {
      const Value& defined = graph_.values[static_cast<std::size_t>(value)];
      out_ << ": " << defined.geometry;
      if (!defined.geometry.covers(defined.nbytes)) {
        out_ << " in " << defined.nbytes << " bytes";
      }
    }
  }

  void line(const Node& node) {
    out_ << "  ";
    list(node.results, [&](ValueId result) { definition(result); });
    out_ << (node.results.empty() ? "" : " = ") << (node.op != nullptr ? node.op->name : "<no op>") << '(';
    list(node.args, [&](const Arg& arg) { argument(arg); });
    out_ << ')';
  }

  void kernel(const Kernel& kernel) {
    std::istringstream lines(text(kernel));
    for (std::string line; std::getline(lines, line);) {
      out_ << "    " << line << '\n';
    }
    for (const KernelSegment& segment : kernel.segments) {
      out_ << "    over ";
      brackets(segment.sizes, [&](std::int64_t size) { out_ << size; });
      out_ << ": ";
      list(segment.places, [&](const KernelPlace& place) {
        out_ << (place.operand >= 0 ? "arg " : "result ") << (place.operand >= 0 ? place.operand : place.result) << " strides ";
        brackets(place.strides, [&](std::int64_t stride) { out_ << stride; });
        if (place.offset != 0) {
          out_ << " offset " << place.offset;
        }
      });
      out_ << '\n';
    }
  }

  void argument(const Arg& arg) {
    switch (arg.tag) {
      case Tag::None: out_ << "none"; break;
      case Tag::Tensor: tensor(arg); break;
      case Tag::Number:
        if (is_constant(arg)) {
          constant(arg);
        } else {
          out_ << 'n' << arg.parameter;
        }
        if (arg.number.tensor && !arg.number.wrapped) {
          out_ << '[' << name(arg.number.dtype) << ']';
        }
        break;
      case Tag::Int: out_ << arg.integer; break;
      case Tag::Bool: out_ << (arg.integer != 0 ? "true" : "false"); break;
      case Tag::Double: out_ << arg.real; break;
      case Tag::IntList: brackets(arg.list, [&](std::int64_t value) { out_ << value; }); break;
      case Tag::BoolList: brackets(arg.list, [&](std::int64_t value) { out_ << (value != 0 ? "true" : "false"); }); break;
      case Tag::DoubleList: brackets(arg.reals, [&](double value) { out_ << value; }); break;
      case Tag::TensorList:
      case Tag::NumberList: brackets(arg.elements, [&](const Arg& element) { argument(element); }); break;
      case Tag::String: out_ << '"' << arg.text << '"'; break;
      case Tag::Device: out_ << "device"; break;
      case Tag::Generator: out_ << 'g' << arg.parameter; break;
    }
  }

  /// #2 for integers, #true, #2.0 or #0.1 for floating point: the shortest text that is that number and no other.
  void constant(const Arg& arg) {
    out_ << '#';
    if (arg.number.kind == NumberKind::Bool) {
      out_ << (arg.integer != 0 ? "true" : "false");
    } else if (arg.number.kind == NumberKind::Int) {
      out_ << arg.integer;
    } else {
      std::array<char, 32> digits{};
      const std::string_view shortest(digits.data(), std::to_chars(digits.begin(), digits.end(), arg.real).ptr);
      out_ << shortest << (shortest.find_first_of(".enf") == std::string_view::npos ? ".0" : "");
    }
  }

  void tensor(const Arg& arg) {
    id(arg.value);
    if (!known(arg.value) || graph_.values[static_cast<std::size_t>(arg.value)].geometry != arg.geometry) {
      out_ << '[' << arg.geometry << ']';
    }
    out_ << (arg.writes ? "!" : "");
  }

  template <class Items, class Print>
  void brackets(const Items& items, Print&& print) {
    out_ << '[';
    list(items, print);
    out_ << ']';
  }

  const Graph& graph_;
  std::ostream& out_;
};

}  // namespace

std::vector<ValueId> mutated(const Node& node) {
  std::vector<ValueId> values;
  for_each_tensor(node.args, [&](const Arg& arg) {
    if (arg.writes && std::find(values.begin(), values.end(), arg.value) == values.end()) {
      values.push_back(arg.value);
    }
  });
  return values;
}

std::string text(const Graph& graph, bool locations) {
  std::ostringstream out;
  Printer(graph, out).print(locations);
  return out.str();
}

std::ostream& operator<<(std::ostream& out, const Graph& graph) {
  Printer(graph, out).print(false);
  return out;
}

}  // namespace spool
