"""tools/check_layers.py finds what crosses a layer, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"


def check(root: Path, files: dict[str, str]) -> subprocess.CompletedProcess:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    command = [sys.executable, str(CHECK), "--root", str(root)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    "path, line",
    [
        ("src/tape/a.h", "#include <ATen/core/Tensor.h>"),
        ("src/graph/a.cpp", "#  include <torch/library.h>"),
        ("src/passes/a.cpp", '#include "c10/util/Exception.h"'),
        ("src/cache/a.h", "#include <llvm/IR/Module.h>"),
        ("src/runtime/a.h", '#include "xla/pjrt/c/pjrt_c_api.h"'),
        ("src/base/a.h", "#include <Python.h>"),
        ("src/engine/engine.h", "#include <ATen/Tensor.h>"),
        ("src/ops/a.cpp", '#include "src/engine/native/loops.h"'),
        ("src/tape/a.cpp", '#include "src/torch/recorder.h"'),
        ("src/base/a.h", "#if __has_include(<ATen/ATen.h>)"),
        ("src/base/a.h", "#include SOME_HEADER"),
        ("src/torch/a.cpp", "#include <llvm/IR/Module.h>"),
        ("src/engine/reference/a.cpp", "#include <llvm/IR/Module.h>"),
        ("src/engine/native/a.cpp", '#include "pjrt_c_api.h"'),
        ("include/spool/a.h", "#include <pybind11/pybind11.h>"),
        ("python/a.cpp", "#include <llvm/IR/Module.h>"),
        ("src/runtime/a.cpp", 'auto* v = std::getenv("SPOOL_DUMP_GRAPHS");'),
    ],
)
def test_a_crossed_layer_is_found_with_file_and_line(tmp_path, path, line):
    done = check(tmp_path, {path: f"#pragma once\n{line}\n"})
    assert done.returncode == 1, done.stdout
    assert f"{path}:2: " in done.stdout


def test_what_a_layer_may_include_passes(tmp_path):
    done = check(
        tmp_path,
        {
            "src/tape/a.h": "#include <vector>\n// #include <ATen/Tensor.h>\n",
            "src/cache/a.h": '#include "src/engine/engine.h"\n/*\n#include <llvm/IR/Module.h>\n*/\n',
            "src/base/settings.cpp": 'auto* v = std::getenv("SPOOL_ENGINE");\n',
            "src/torch/a.cpp": "#include <ATen/Tensor.h>\n",
            "src/engine/aten/a.cpp": "#include <ATen/Tensor.h>\n",
            "src/engine/native/a.cpp": "#include <llvm/IR/Module.h>\n#include <ATen/Tensor.h>\n",
            "src/engine/pjrt/a.cpp": '#include "xla/pjrt/c/pjrt_c_api.h"\n',
            "python/a.cpp": "#include <pybind11/pybind11.h>\n",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 files, 0 findings" in done.stdout


def test_a_tree_without_sources_is_an_error(tmp_path):
    done = check(tmp_path, {"README.md": ""})
    assert done.returncode == 1
    assert "found none" in done.stderr
