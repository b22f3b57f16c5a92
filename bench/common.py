"""What all benchmarks share: command line, alternating rounds, processes of their own, figures.

Timings are honest only if the work is finished when the clock stops, so every variant has a `finish` that
waits for the device. Variants take turns round by round, in an order that rotates, and a ratio is the median
of the rounds' own ratios: a machine that slows down for a while then slows all variants of a round alike. The
table shows each variant's own median beside it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
MARK = "@@result "  # begins the line in which a child process hands back its result


# --- figures ---


@dataclass
class Figure:
    """One measured number and the bound it is held to.

    SENSE is "<", "<=" or ">="; UNIT is "x" for a ratio, else a unit's name.
    """

    name: str
    measured: float
    unit: str
    sense: str
    bound: float

    @property
    def met(self) -> bool:
        if self.sense == "<":
            return self.measured < self.bound
        return self.measured <= self.bound if self.sense == "<=" else self.measured >= self.bound

    @property
    def target(self) -> str:
        return f"{self.sense.replace('<=', '≤').replace('>=', '≥')} {quantity(self.bound, self.unit)}"

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "met": self.met}


def quantity(value: float, unit: str) -> str:
    """VALUE for people: ratios as 0.987 ×, counts whole, anything else with three digits that count."""
    if unit == "x":
        return f"{value:.3f} ×"
    digits = f"{value:.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"
    return f"{digits} {unit}"


# --- command line ---


def parser(doc: str) -> argparse.ArgumentParser:
    """A parser described by the module's docstring DOC, with the options that every benchmark has."""
    out = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the figures and all samples to FILE"
    )
    out.add_argument(
        "--quick",
        action="store_true",
        help="a small, short run: shows that it works, its figures mean little",
    )
    out.add_argument("--strict", action="store_true", help="exit with status 1 if a target is missed")
    out.add_argument("--child", metavar="CASE", help=argparse.SUPPRESS)
    return out


def machine_facts() -> dict[str, Any]:
    """The machine and the versions under which a result was measured."""
    import torch

    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def conclude(args: argparse.Namespace, figures: Sequence[Figure], details: Mapping[str, Any]) -> int:
    """Print the figures beside their targets, write --json, and return the exit status."""
    rows = [(f.name, f.target, quantity(f.measured, f.unit), "met" if f.met else "MISSED") for f in figures]
    print()
    print_table(("figure", "target", "measured", ""), rows)
    if args.quick:
        print("(--quick: sizes and counts are too small for these figures to mean much)")
    if args.json:
        name = Path(sys.argv[0]).stem
        record = {
            "bench": name,
            "command": command(),
            "quick": args.quick,
            "figures": [f.as_json() for f in figures],
            "details": details,
            "machine": machine_facts(),
        }
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(record, indent=1) + "\n")
        print(f"written to {args.json}")
    return 1 if args.strict and not all(f.met for f in figures) else 0


def command() -> str:
    """How to repeat this run: the command line without what only says where results go."""
    words, skip = [], False
    for word in sys.argv[1:]:
        if skip or word == "--strict" or word.startswith("--json="):
            skip = False
        elif word == "--json":
            skip = True
        else:
            words.append(word)
    script = Path(sys.argv[0])
    if not words:
        return f"./dev bench {script.stem}"
    return " ".join(["./dev shell python", f"bench/{script.name}", *words])


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns padded to their widest cell; the first is left-aligned, the others right-aligned."""
    widths = [max(len(str(line[i])) for line in (head, *rows)) for i in range(len(head))]
    for line in (head, ["-" * w for w in widths], *rows):
        cells = [str(c).rjust(w) if i else str(c).ljust(w) for i, (c, w) in enumerate(zip(line, widths))]
        print("  ".join(cells).rstrip())


# --- alternating rounds ---


@dataclass
class Variant:
    """One of the things compared: STEP does the work once, FINISH returns when all of it is done."""

    step: Callable[[], Any]
    finish: Callable[[], Any] = lambda: None


def alternate(
    variants: Mapping[str, Variant], rounds: int, steps: int, warm_up: int
) -> dict[str, list[float]]:
    """Seconds a step, by variant and round: each round runs every variant for STEPS steps, in rotating order.

    WARM_UP steps of every variant come first and are not measured (they compile). The collector of Python's
    garbage runs between the measurements, never in them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    names = list(variants)
    with tqdm(total=len(names) * (rounds + 1), unit="turn", leave=False) as bar:

        def turn(name: str, count: int) -> float:
            bar.set_description(name)
            start = time.perf_counter()
            for _ in range(count):
                variants[name].step()
            variants[name].finish()
            spent = time.perf_counter() - start
            bar.update()
            return spent / count

        for name in names:
            turn(name, max(warm_up, 1))
        for index in range(rounds):
            shift = index % len(names)
            for name in names[shift:] + names[:shift]:
                gc.collect()
                gc.disable()
                try:
                    seconds[name].append(turn(name, steps))
                finally:
                    gc.enable()
    return seconds


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """The median of the rounds' own ratios OVER[i] / UNDER[i]."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def time_rows(seconds: Mapping[str, Sequence[float]], base: str) -> list[tuple[str, str, str, str]]:
    """Rows of name, median, quickest..slowest round, and time as a multiple of BASE's."""
    rows = []
    for name, values in seconds.items():
        low, high = min(values), max(values)
        span = f"{duration(low)} .. {duration(high)}"
        rows.append(
            (name, duration(statistics.median(values)), span, f"{ratio(values, seconds[base]):.3f} ×")
        )
    return rows


def duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


# --- processes of their own ---


def run_child(case: str, *options: str) -> Any:
    """Run the calling benchmark as `--child CASE OPTIONS…` in a fresh process.

    Returns what it passed to child_result(); raises RuntimeError if it failed or passed nothing.
    """
    line = [sys.executable, sys.argv[0], "--child", case, *options]
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False)
    results = [text[len(MARK) :] for text in done.stdout.splitlines() if text.startswith(MARK)]
    if done.returncode != 0 or len(results) != 1:
        raise RuntimeError(
            f"[bench] expected one result from {' '.join(line)}, got {len(results)} "
            f"and exit status {done.returncode}; its own message stands above"
        )
    return json.loads(results[0])


def child_result(result: Any) -> None:
    """Hand RESULT (JSON) back to the process that called run_child()."""
    print(MARK + json.dumps(result), flush=True)


def peak_bytes() -> int:
    """The most memory this process has held resident.

    Linux's VmHWM where there is one: getrusage's ru_maxrss survives exec, so that a child would report its
    parent's peak if that is higher.
    """
    value = status_bytes("VmHWM")
    if value is None:
        import resource

        value = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return value


def resident_bytes() -> int:
    """The memory this process holds resident now."""
    value = status_bytes("VmRSS")
    if value is None:
        import psutil

        value = psutil.Process().memory_info().rss
    return value


def status_bytes(field: str) -> int | None:
    """FIELD of /proc/self/status in bytes, or None where the system has no such file."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    for line in status.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return None


# --- what is trained ---


class Trainer:
    """A model with its batch and SGD with momentum on DEVICE; body() is one step with nothing around it."""

    def __init__(self, model, x, y, loss_fn, device, lr: float = 0.01) -> None:
        import torch

        self.model = model.to(device).train()
        self.x, self.y, self.loss_fn = x.to(device), y.to(device), loss_fn
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)

    def body(self):
        self.optimiser.zero_grad()
        loss = self.loss_fn(self.model(self.x), self.y)
        loss.backward()
        self.optimiser.step()
        return loss.detach()


def mlp_trainer(device, layers: int = 20, width: int = 64, batch: int = 32) -> Trainer:
    """The MLP of the targets: LAYERS linear layers of WIDTH, ReLU between them, mean squared error."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    modules: list[nn.Module] = []
    for _ in range(layers - 1):
        modules += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*modules, nn.Linear(width, width))
    return Trainer(
        model, torch.randn(batch, width), torch.randn(batch, width), nn.functional.mse_loss, device
    )


def resnet_trainer(device, batch: int, image: int) -> Trainer:
    """The examples' ResNet-50 on a batch of noise."""
    import torch
    from torch import nn

    examples = str(ROOT / "examples")
    if examples not in sys.path:
        sys.path.insert(0, examples)
    from models.resnet import resnet50

    torch.manual_seed(0)
    model = resnet50()
    x, y = torch.randn(batch, 3, image, image), torch.randint(1000, (batch,))
    return Trainer(model, x, y, nn.functional.cross_entropy, device)


def in_step(body: Callable[[], Any]) -> Callable[[], Any]:
    """BODY as one `with torch_spool.step():` region."""
    import torch_spool

    def run():
        with torch_spool.step():
            return body()

    return run


def then_sync(body: Callable[[], Any]) -> Callable[[], Any]:
    """BODY followed by a bare torch_spool.sync()."""
    import torch_spool

    def run():
        out = body()
        torch_spool.sync()
        return out

    return run
