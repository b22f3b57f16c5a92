#!/usr/bin/env python3
"""Write the table of PyTorch's C++ meta functions that Spool infers shapes with.

PyTorch's installed headers declare, for every structured op, a function `at::meta::<op>` that computes sizes, strides and dtype and
nothing else. Calling it through the dispatcher is no good on the hot path: for most ops a Python reference is registered over it. This
tool therefore lists those functions, finds the operator that each belongs to by comparing its signature with the operator's
(`ATen/ops/<op>_ops.h`), and writes C++ that takes their addresses:

  meta_table_<i>.cpp   shards of the table op -> meta function, each instantiating its own signatures
  meta_table.cpp       the function that joins the shards, and the table op -> out overload

The output depends on the headers alone; files whose content stays the same are not touched.
"""

import argparse
import re
import sys
from pathlib import Path

# Meta functions that belong to no structured op and still compute just what the op does.
PLAIN_OPS = {
    "aten::arange.start_out",
    "aten::eye.m_out",
    "aten::eye.out",
    "aten::linspace.out",
    "aten::logspace.out",
    "aten::normal.Tensor_Tensor",
    "aten::normal.Tensor_Tensor_out",
    "aten::normal.Tensor_float",
    "aten::normal.Tensor_float_out",
    "aten::normal.float_Tensor",
    "aten::normal.float_Tensor_out",
    "aten::range.out",
}

DECLARATION = re.compile(r"^TORCH_API (?P<ret>.+?) (?P<name>\w+)\((?P<args>.*)\);$", re.M)
STRUCTURED = re.compile(r"struct TORCH_API structured_(\w+) ")
OPERATOR = re.compile(
    r"using schema = (?P<ret>[^;]+?) \((?P<args>[^;]*)\);.*?"
    r'name = "(?P<name>[^"]*)";.*?overload_name = "(?P<overload>[^"]*)";.*?schema_str = "(?P<schema>.*?)";',
    re.S,
)


def split_arguments(text):
    """Splits a C++ parameter list at its top-level commas."""
    parts, depth, current = [], 0, ""
    for char in text:
        if char in "<({[":
            depth += 1
        elif char in ">)}]":
            depth -= 1
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    if current.strip():
        parts.append(current)
    return [part.strip() for part in parts]


def parameter_type(parameter):
    """The type in a declared parameter: default value and name taken off."""
    depth = 0
    for i, char in enumerate(parameter):
        depth += (char == "<") - (char == ">")
        if char == "=" and depth == 0:
            parameter = parameter[:i]
            break
    return re.sub(r"\s*\b\w+$", "", parameter.strip()).strip()


def plain(type_):
    """The type with concrete integers in place of symbolic ones, as at::meta's functions take them."""
    type_ = type_.replace("c10::SymIntArrayRef", "at::IntArrayRef").replace(
        "at::OptionalSymIntArrayRef", "at::OptionalIntArrayRef"
    )
    return re.sub(r"\s+", " ", type_.replace("c10::SymInt", "int64_t"))


def meta_functions(path):
    """(name, return type, parameter types) of each function in a *_meta_dispatch.h that takes plain C++ arguments in schema order."""
    found = []
    for match in DECLARATION.finditer(path.read_text()):
        types = tuple(parameter_type(p) for p in split_arguments(match["args"]))
        if "SymInt" in match["args"] or "at::TensorOptions" in types:
            continue
        found.append((match["name"], match["ret"], types))
    return found


def operators(path):
    """(full name, base name, parameter types, number of out arguments) of each operator in a *_ops.h."""
    found = []
    for match in OPERATOR.finditer(path.read_text()):
        name, overload = match["name"], match["overload"]
        types = tuple(plain(t) for t in split_arguments(match["args"]))
        arguments = match["schema"].split(" -> ")[0]
        # Out arguments are mutable tensors after the star that makes them keyword-only.
        keyword_only = arguments.split("*, ", 1)[1] if "*, " in arguments else ""
        outs = len(re.findall(r"Tensor\(\w!\)", keyword_only))
        found.append((f"{name}.{overload}" if overload else name, name.removeprefix("aten::"), types, outs))
    return found


def structured_names(path):
    """Names `op_overload` of the structured ops in a *_meta.h, which is not there for headers of other ops."""
    return set(STRUCTURED.findall(path.read_text())) if path.exists() else set()


def functional_form(types):
    """Parameter types of the functional form of an in-place op: there self cannot be written to."""
    return tuple(re.sub(r"^at::Tensor &$", "const at::Tensor &", t) for t in types)


def collect(ops_dir):
    """Entries (operator, C++ pointer type, function, base name of its header) and pairs (operator, its out overload).

    Headers declare more meta functions than PyTorch's library defines, so only the forms of structured ops and PLAIN_OPS are taken.
    """
    entries, outs_of = [], []
    for path in sorted(ops_dir.glob("*_meta_dispatch.h")):
        base = path.name.removesuffix("_meta_dispatch.h")
        structured = structured_names(ops_dir / f"{base}_meta.h")
        known = operators(ops_dir / f"{base}_ops.h")
        declared = []
        for function, ret, types in meta_functions(path):
            is_out = function.endswith("_outf")
            op_base = function.removesuffix("_outf") if is_out else function
            for op, name, op_types, outs in known:
                if name == op_base and op_types == types and (outs > 0) == is_out:
                    declared.append(
                        (op, name, types, outs, f"{ret} (*)({', '.join(types)})", f"at::meta::{function}")
                    )
                    break

        functionals = {
            (name, types)
            for op, name, types, outs, _, _ in declared
            if not outs and op.removeprefix("aten::").replace(".", "_") in structured
        }
        outs_by_form = {}
        for op, name, types, outs, pointer, function in declared:
            form = (
                name.removesuffix("_") if types[:1] == ("at::Tensor &",) else name,
                functional_form(types[: len(types) - outs]),
            )
            if form in functionals or op in PLAIN_OPS:
                entries.append((op, pointer, function, base))
            if form in functionals and outs:
                outs_by_form[form] = op
        for op, name, types, outs, _, _ in declared:
            form = (
                name.removesuffix("_") if types[:1] == ("at::Tensor &",) else name,
                functional_form(types),
            )
            if not outs and form in functionals and form in outs_by_form:
                outs_of.append((op, outs_by_form[form]))
    return sorted(entries), sorted(outs_of)


HEAD = "// Written by tools/gen_meta_table.py from PyTorch's headers; do not edit.\n"


def shard_text(index, entries):
    text = [HEAD, '#include "src/torch/meta_table.h"\n\n']
    text += [
        f"#include <ATen/ops/{base}_meta_dispatch.h>\n" for base in sorted({entry[3] for entry in entries})
    ]
    text.append(f"\nnamespace spool::torch_side {{\n\nvoid add_meta_functions_{index}(MetaTable& table) {{\n")
    text += [
        f'  add_meta_function(table, "{op}", static_cast<{type_}>(&{function}));\n'
        for op, type_, function, _ in entries
    ]
    text.append("}\n\n}  // namespace spool::torch_side\n")
    return "".join(text)


def joint_text(shards, outs_of):
    text = [HEAD, '#include "src/torch/meta_table.h"\n\nnamespace spool::torch_side {\n\n']
    text += [f"void add_meta_functions_{i}(MetaTable& table);\n" for i in range(shards)]
    text.append("\nvoid fill_meta_table(MetaTable& table) {\n")
    text += [f"  add_meta_functions_{i}(table);\n" for i in range(shards)]
    text.append("}\n\nconst OutOverload kOutOverloads[] = {\n")
    text += [f'    {{"{op}", "{out}"}},\n' for op, out in outs_of]
    text.append(
        "};\nconst size_t kOutOverloadCount = sizeof(kOutOverloads) / sizeof(kOutOverloads[0]);\n\n}  // namespace spool::torch_side\n"
    )
    return "".join(text)


def deal(entries, shards):
    """Splits the entries so that each signature lies in one shard only, and the shards have about as many signatures each."""
    by_type = {}
    for entry in entries:
        by_type.setdefault(entry[1], []).append(entry)
    parts = [[] for _ in range(shards)]
    for i, type_ in enumerate(sorted(by_type)):
        parts[i % shards].extend(by_type[type_])
    return [sorted(part) for part in parts]


def write(path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--torch-include",
        type=Path,
        required=True,
        metavar="DIR",
        help="PyTorch's include folder, the one that holds ATen/",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder to write to; made if it is not there"
    )
    parser.add_argument(
        "--shards",
        type=int,
        default=4,
        metavar="N",
        help="number of files to deal the table out to (default: 4)",
    )
    args = parser.parse_args()

    ops_dir = args.torch_include / "ATen" / "ops"
    if not ops_dir.is_dir():
        parser.error(
            f"expected PyTorch's headers in {ops_dir}, but there is no such folder; pass the folder that holds ATen/ as --torch-include"
        )
    if args.shards < 1:
        parser.error(f"expected at least one shard, got {args.shards}")

    entries, outs_of = collect(ops_dir)
    if not entries:
        sys.exit(
            f"[gen_meta_table] no meta function in {ops_dir} matched an operator; is this PyTorch 2.13 or later?"
        )
    args.out.mkdir(parents=True, exist_ok=True)
    for i, part in enumerate(deal(entries, args.shards)):
        write(args.out / f"meta_table_{i}.cpp", shard_text(i, part))
    write(args.out / "meta_table.cpp", joint_text(args.shards, outs_of))


if __name__ == "__main__":
    main()
