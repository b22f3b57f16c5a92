"""Names for parts of a program: in recorded ops, and in PyTorch's profiler.

A `Trace` is two things. It opens an op-name scope: operations recorded inside
carry its name, which messages and dumped graphs show. And it opens a range of
`torch.profiler`, so that it is seen on a timeline.

`sync(reset_scope=True)`, which is the default, starts scopes again at the
root: operations that are recorded afterwards, still inside the `with`, carry
no outer scope's name. The profiler's range is not touched by that: it stays
open and closes when the `with` ends. `sync(reset_scope=False)` keeps both.
"""

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

import torch

from .._api import sync
from .._load import _C
from .._regions import leave_failed

P = ParamSpec("P")
R = TypeVar("R")


class Trace:
    """A named part of a program: context manager or decorator.

    The scope is the recording thread's own. An object may be entered again
    after it was left; as a decorator any number of threads may call.
    """

    def __init__(self, name: str) -> None:
        """Raises `ValueError` when NAME is empty."""
        if not name:
            raise ValueError("[Trace] expected a name, got an empty string")
        self.name = name
        self._range: torch.profiler.record_function | None = None

    def _title(self) -> str:
        """What the profiler's timeline shows."""
        return self.name

    def __enter__(self) -> "Trace":
        self._range = torch.profiler.record_function(self._title())
        self._range.__enter__()
        _C.scope_push(self.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        opened, self._range = self._range, None
        try:
            _C.scope_pop()
        finally:
            if opened is not None:
                opened.__exit__(kind, error, traceback)

    def _again(self) -> "Trace":
        return type(self)(self.name)

    def __call__(self, f: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(f)
        def traced(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._again():
                return f(*args, **kwargs)

        return traced


class StepTrace(Trace):
    """A named step of a loop: a `Trace` that cuts when it ends.

    What was recorded inside is launched, as `sync()` does, within the range.
    An exception passes through as it does through `step`. With STEP_NUM the
    profiler's range is called `name#step_num`; the op-name scope is NAME.
    """

    def __init__(self, name: str, step_num: int | None = None) -> None:
        super().__init__(name)
        self.step_num = step_num

    def _title(self) -> str:
        return self.name if self.step_num is None else f"{self.name}#{self.step_num}"

    def _again(self) -> "Trace":
        return type(self)(self.name, self.step_num)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                sync(reset_scope=False)
            else:
                leave_failed("StepTrace", error, lambda: sync(reset_scope=False))
        finally:
            super().__exit__(kind, error, traceback)


def trace_me(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: each call of the function is a `Trace` with this name."""
    return Trace(name)


def current_scope() -> str:
    """The name that an operation recorded now on this thread would carry.

    Nested scopes are joined with `/`; the root is the empty string.
    """
    return _C.current_scope()
