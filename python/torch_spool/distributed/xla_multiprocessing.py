"""`xmp`: starting a program's replicas, of which there is one."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def spawn(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> None:
    """`fn(0, *args)` in this process, as torch_xla runs the only replica.

    Raises `ValueError` unless NPROCS is `None` or 1. JOIN, DAEMON and START_METHOD speak of further processes.
    """
    if nprocs not in (None, 1):
        raise ValueError(f"[spawn] expected nprocs None or 1, got {nprocs}: a process has one replica")
    fn(0, *args)


class MpModelWrapper:
    """Holds MODEL until a replica takes it to its device."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    def to(self, device: torch.device | str) -> torch.nn.Module:
        """The model, on DEVICE."""
        return self._model.to(device)


class MpSerialExecutor:
    """Lets replicas do something one after the other."""

    def run(self, fn: Callable[[], T]) -> T:
        """`fn()`."""
        return fn()
