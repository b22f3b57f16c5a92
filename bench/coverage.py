#!/usr/bin/env python
"""What of real programs stays in the graph: operations recorded, run at once, and cuts, in their training steps.

The programs are those of tests/python/clients: models of transformers, peft, einops and torchmetrics in the plain loop, each
step in `with torch_spool.step():`, and whole programs for transformers' Trainer, accelerate and PyTorch Lightning, which
know nothing of Spool; of these, a step is what lies between two steps of the optimiser. The first two steps are warm-up.

Columns: operations recorded a step; random draws that fill a tensor a step (made while recording, without a cut); operations
run at once; cuts inside steps, and the reads (`item()`, printing, …) and `mark_step()` of the program that ask for them; calls
of PyTorch's Meta kernels in Python, in the warm-up and after it; compiles after the warm-up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import common

CLIENTS = common.ROOT / "tests" / "python" / "clients"
PROGRAMS = {"Trainer": "hf_trainer", "accelerate": "accelerate_loop", "Lightning": "lightning_fit"}
NO_META_AT_ALL = ("ResNet-50", "BERT", "GPT-2", "Llama")
WARM_UP = 2

Events = dict[str, int]


def run(script: str, *args: str) -> str:
    """A script of tests/python/clients in a process of its own; what it prints."""
    package = str(common.ROOT / "python")
    known = os.environ.get("PYTHONPATH")
    env = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "PYTHONPATH": os.pathsep.join([package] + ([known] if known else [])),
    }
    line = [sys.executable, "-m", "torch_spool", str(CLIENTS / script), *args]
    done = subprocess.run(line, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(
            f"[bench/coverage] expected {' '.join(line)} to end with status 0, got {done.returncode}\n{done.stderr}"
        )
    return done.stdout


def total(events: Iterable[Events]) -> Events:
    """The sum of each number over steps; all operations run at once come together as `at_once`."""
    out: Events = {"at_once": 0}
    for step in events:
        for name, count in step.items():
            key = "at_once" if name.startswith("aten::") else name
            out[key] = out.get(key, 0) + count
    return out


def models(names: list[str]) -> dict[str, dict[str, Any]]:
    """The plain loops: a step is a region, so its cuts are counted as breaks."""
    found = {}
    for name, report in json.loads(run("train_models.py", *names)).items():
        warm_up, after = total([report["warm_up"]]), total([report["after"]])
        found[name] = {"steps": report["steps"], "warm_up": warm_up, "after": after, "cuts": after["breaks"]}
    return found


def program(script: str) -> dict[str, Any]:
    """A whole program: of the launches of a step one is its own, the others are cuts inside it."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "steps.json"
        run("watch_steps.py", str(report), str(CLIENTS / f"{script}.py"), folder)
        steps = json.loads(report.read_text())
    warm_up, after = total(steps[:WARM_UP]), total(steps[WARM_UP:])
    count = len(steps) - WARM_UP
    launches = after["compiles"] + after["relaunches"]
    return {"steps": count, "warm_up": warm_up, "after": after, "cuts": launches - count}


def row(name: str, found: dict[str, Any]) -> tuple[str, ...]:
    steps, after = found["steps"], found["after"]
    return (
        name,
        str(steps),
        f"{after['recorded'] / steps:.0f}",
        f"{after['drawn'] / steps:.0f}",
        str(after["at_once"]),
        str(found["cuts"]),
        str(after["reads"]),
        str(found["warm_up"]["meta"]),
        str(after["meta"]),
        str(after["compiles"]),
    )


def main() -> int:
    cli = common.parser(__doc__)
    args = cli.parse_args()
    found = models(["BERT", "GPT-2"] if args.quick else [])
    if not args.quick:
        found |= {name: program(script) for name, script in PROGRAMS.items()}
    head = (
        "program",
        "steps",
        "recorded",
        "drawn",
        "at once",
        "cuts",
        "reads",
        "Meta, warm-up",
        "Meta",
        "compiles",
    )
    common.print_table(head, [row(name, one) for name, one in found.items()])

    plain = [one for name, one in found.items() if name not in PROGRAMS]
    at_once = sum(one["after"]["at_once"] + one["warm_up"]["at_once"] for one in found.values())
    unasked = sum(max(0, one["cuts"] - one["after"]["reads"]) for one in plain)
    meta = sum(one["after"]["meta"] for one in found.values())
    never = sum(one["warm_up"]["meta"] for name, one in found.items() if name in NO_META_AT_ALL)
    figures = [
        common.Figure("real programs, operations run at once", at_once, "ops", "<=", 0),
        common.Figure("real programs, cuts inside steps that no read asks for", unasked, "cuts", "<=", 0),
        common.Figure("real programs, Python Meta calls after warm-up", meta, "calls", "<=", 0),
        common.Figure(f"{', '.join(NO_META_AT_ALL)}, Python Meta calls at all", never, "calls", "<=", 0),
    ]
    return common.conclude(args, figures, found)


if __name__ == "__main__":
    sys.exit(main())
