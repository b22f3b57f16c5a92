// Ops over lists of tensors, one result or one write for each: recorded as the one op that they are. Lists of unlike geometries or dtypes,
// and numbers that would change a dtype, are left to the op itself (on stand-ins).
#include "src/torch/rules.h"

#include <ATen/TensorIterator.h>

#include <string>

namespace spool::torch_side {
namespace {

bool keeps_dtype(const c10::IValue& number) { return !number.toScalar().isComplex(); }

// Checks that all lists go together, element by element, with the first one, and returns it. Numbers are one for all, or one for each.
std::vector<at::Tensor> matched(const Arguments& arguments) {
  std::vector<at::Tensor> self = arguments.tensors(0);
  for (const at::Tensor& tensor : self) {
    expect(at::isFloatingType(tensor.scalar_type()));
  }
  for (size_t i = 1; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    if (argument.isTensorList()) {
      const auto other = argument.toTensorVector();
      expect(other.size() == self.size());
      for (size_t k = 0; k < self.size(); ++k) {
        expect(other[k].sizes() == self[k].sizes() && other[k].scalar_type() == self[k].scalar_type());
      }
    } else if (argument.isTensor()) {
      expect(arguments.tensor(i).dim() == 0 && !arguments.tensor(i).is_complex());
    } else if (argument.isList()) {
      expect(argument.toListRef().size() == self.size());
      for (const c10::IValue& number : argument.toListRef()) {
        expect(keeps_dtype(number));
      }
    } else if (argument.isScalar()) {
      expect(keeps_dtype(argument));
    }
  }
  return self;
}

std::optional<Results> in_place(const Arguments& arguments) {
  matched(arguments);
  return Results{};
}

std::optional<Results> each(const Arguments& arguments) {
  const auto self = matched(arguments);
  c10::List<at::Tensor> results;
  for (size_t k = 0; k < self.size(); ++k) {
    at::TensorIteratorConfig config;
    config.check_all_same_dtype(false).declare_static_dtype(self[k].scalar_type()).add_owned_output(at::Tensor());
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].isTensorList()) {
        config.add_owned_const_input(arguments[i].toListRef()[k].toTensor());
      }
    }
    results.push_back(config.build().output());
  }
  return Results{results};
}

// _foreach_norm.Scalar(self, ord, dtype): a number for each
std::optional<Results> norm(const Arguments& arguments) {
  c10::List<at::Tensor> results;
  for (const at::Tensor& tensor : arguments.tensors(0)) {
    expect(at::isFloatingType(tensor.scalar_type()) && tensor.numel() != 0 && keeps_dtype(arguments[1]) && arguments.is_none(2));
    results.push_back(make_meta({}, tensor.scalar_type()));
  }
  return Results{results};
}

}  // namespace

void add_foreach_rules(RuleTable& table) {
  static const auto* names = [] {
    auto* made = new std::vector<std::pair<std::string, Rule>>;
    const auto both = [&](std::string_view op, std::string_view overload) {
      const std::string start = std::string("aten::_foreach_").append(op);
      const std::string end = overload.empty() ? std::string() : std::string(".").append(overload);
      made->emplace_back(start + end, each);
      made->emplace_back(start + "_" + end, in_place);
    };
    for (const char* op : {"abs",   "acos",  "asin",    "atan",   "ceil", "cos",   "cosh",  "erf",  "erfc", "exp",
                           "expm1", "floor", "frac",    "lgamma", "log",  "log10", "log1p", "log2", "neg",  "reciprocal",
                           "round", "rsqrt", "sigmoid", "sign",   "sin",  "sinh",  "sqrt",  "tan",  "tanh", "trunc"}) {
      both(op, "");
    }
    for (const char* op : {"add", "sub", "mul", "div", "clamp_max", "clamp_min", "maximum", "minimum", "pow"}) {
      both(op, "List");
      both(op, "Scalar");
      both(op, "ScalarList");
    }
    for (const char* op : {"add", "mul", "div"}) {
      both(op, "Tensor");
    }
    for (const char* op : {"addcdiv", "addcmul"}) {
      both(op, "Scalar");
      both(op, "ScalarList");
    }
    for (const char* overload : {"List", "Scalar", "ScalarList"}) {
      both("lerp", overload);
    }
    made->emplace_back("aten::_foreach_zero_", in_place);
    made->emplace_back("aten::_foreach_copy_", in_place);
    made->emplace_back("aten::_foreach_norm.Scalar", norm);
    return made;
  }();
  for (const auto& [name, rule] : *names) {
    table[name] = rule;
  }
}

}  // namespace spool::torch_side
