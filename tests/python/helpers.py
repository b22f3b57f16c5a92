"""What several tests share: comparing, counting, running programs of their own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

import torch_spool
from torch_spool.debug import metrics

REPOSITORY = Path(__file__).resolve().parents[2]


def same(got: torch.Tensor, want: torch.Tensor, what: str = "result") -> None:
    """GOT (any device) equals WANT (CPU) to the last bit; NaNs count as equal."""
    got, want = got.detach().cpu(), want.detach()
    assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, expected {want.dtype}"
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    equal = (got == want) | ((got != got) & (want != want))
    if not bool(equal.all()):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True, msg=lambda m: f"{what}: {m}")


def same_all(got: Iterable[torch.Tensor], want: Iterable[torch.Tensor]) -> None:
    """The same for two sequences of equal length."""
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        same(g, w, f"result {i}")


def close_all(got: Iterable[torch.Tensor], want: Iterable[torch.Tensor]) -> None:
    """Equal but for rounding in float32: kernels that add up in another order than eager's."""
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        scale = float(w.detach().abs().max()) if w.numel() else 0.0
        torch.testing.assert_close(
            g.detach().cpu(), w.detach(), rtol=1e-4, atol=1e-5 * scale, msg=lambda m, i=i: f"result {i}: {m}"
        )


def as_eager(
    program: Callable[..., Iterable[torch.Tensor]],
    dev: torch.device,
    compare: Callable[[Iterable[torch.Tensor], Iterable[torch.Tensor]], None] = same_all,
    **options: Any,
) -> None:
    """PROGRAM(device) gives the same on the lazy device as on the CPU, from one seed."""
    torch.manual_seed(0)
    got = list(program(dev, **options))
    for i, tensor in enumerate(got):
        assert tensor.device.type == "xla", f"result {i} is on {tensor.device}"
    torch.manual_seed(0)
    compare(got, program(torch.device("cpu"), **options))


def executions() -> int:
    """Graphs run since the last clear, with all launched work finished."""
    torch_spool.wait_device_ops()
    data = metrics.metric_data("ExecuteTime")
    return data[0] if data else 0


def compiles() -> int:
    """Graphs compiled since the last clear."""
    data = metrics.metric_data("CompileTime")
    return data[0] if data else 0


def count(name: str) -> int:
    """A counter's value, 0 where it has counted nothing."""
    return metrics.counter_value(name) or 0


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, in which `torch_spool` and the tests' helpers are found."""
    paths = [str(Path(torch_spool.__file__).parents[1]), str(Path(__file__).parent)]
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths + ([known] if known else [])), **(extra or {})}


def run_python(
    *args: str, env: Mapping[str, str] | None = None, timeout: float = 120, cwd: Path | str | None = None
) -> subprocess.CompletedProcess[str]:
    """`python ARGS` in a process of its own; its output as text. A hang fails after TIMEOUT seconds."""
    return subprocess.run(
        [sys.executable, *args],
        env=environment(env),
        timeout=timeout,
        cwd=cwd,
        capture_output=True,
        text=True,
    )


def run_program(source: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """SOURCE as a program of its own, which must end with status 0."""
    done = run_python("-c", source, **options)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
