"""Regions: code between the entry and the exit of `step()` or `compile()`."""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from . import _replay
from ._load import _C

P = ParamSpec("P")
R = TypeVar("R")


def leave_failed(call: str, error: BaseException, leave: Callable[[], None]) -> None:
    """Run LEAVE while ERROR is on its way out of a region.

    ERROR has precedence: should leaving fail too, that failure becomes a note
    of ERROR, which the caller lets pass.
    """
    try:
        leave()
    except Exception as failure:
        error.add_note(
            f"[{call}] launching what was recorded before this exception failed "
            f"too: {type(failure).__name__}: {failure}"
        )


class step(contextlib.ContextDecorator):
    """One step of a program: a context manager (or decorator) that cuts twice.

    On entry all that is pending is cut and launched, so that it is not mixed
    into the step; on exit the step is cut and launched, open op-name scopes
    start again at the root, and step closures run. Nothing waits. Steps nest: each entry and each exit cuts.

    An exception inside passes through unchanged, the same object. What was
    recorded before it is cut and launched, as eager would have run it; should
    that fail too, the failure is attached to the exception as a note.

    Entering raises the failure of an earlier launched graph, if one is
    pending; then no step is open.
    """

    def __enter__(self) -> "step":
        _C.step_begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            _C.step_end(False)
        else:
            leave_failed("step", error, lambda: _C.step_end(True))


class Region:
    """What `compile()` gives without a function: a context manager or decorator.

    As a context manager an object may be entered again, also while it is open
    (regions nest), but not by two threads at once; as a decorator any number of
    threads may call what it made.
    """

    def __init__(
        self,
        name: str | None,
        place: str,
        full_graph: bool,
        limit: int,
        replay: bool = False,
        allow: tuple[str, ...] = (),
    ) -> None:
        """NAME as the user gave it; PLACE is the file and line of the call."""
        self._given = name
        self._place = place
        self._name = name or place
        self._full_graph = full_graph
        self._limit = limit
        self._replay = replay
        self._allow = allow
        self._open: list[int] = []

    def _begin(self) -> int:
        return _C.region_begin(self._name, self._full_graph, self._limit)

    def __enter__(self) -> "Region":
        if self._replay:
            raise TypeError(
                "[compile] replay=True is for functions: a `with` block runs each time; use compile(f, replay=True)"
            )
        self._open.append(self._begin())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        region = self._open.pop()
        if error is None:
            _C.region_end(region, False)
        else:
            leave_failed("compile", error, lambda: _C.region_end(region, True))

    def __call__(self, f: Callable[P, R]) -> Callable[P, R]:
        """F in a region of its own, with the options of this one."""
        _check_function(f)
        name = self._given or _describe(f, self._place)
        region = Region(name, self._place, self._full_graph, self._limit)
        if self._replay:
            replayer = _replay.Replayer(f, region, name, self._allow)

            @functools.wraps(f)
            def replayed(*args: P.args, **kwargs: P.kwargs) -> R:
                return replayer(args, kwargs)

            return replayed

        @functools.wraps(f)
        def compiled(*args: P.args, **kwargs: P.kwargs) -> R:
            opened = region._begin()
            try:
                result = f(*args, **kwargs)
            except BaseException as error:
                leave_failed("compile", error, lambda: _C.region_end(opened, True))
                raise
            _C.region_end(opened, False)
            return result

        return compiled


@overload
def compile(
    f: Callable[P, R],
    full_graph: bool = ...,
    name: str | None = ...,
    num_different_graphs_allowed: int | None = ...,
    replay: bool = ...,
    allow: Sequence[str] = ...,
) -> Callable[P, R]: ...
@overload
def compile(
    f: None = ...,
    full_graph: bool = ...,
    name: str | None = ...,
    num_different_graphs_allowed: int | None = ...,
    replay: bool = ...,
    allow: Sequence[str] = ...,
) -> Region: ...
def compile(
    f: Callable[..., Any] | None = None,
    full_graph: bool = False,
    name: str | None = None,
    num_different_graphs_allowed: int | None = None,
    replay: bool = False,
    allow: Sequence[str] = (),
) -> Any:
    """Make one graph of a function or of a block, with a cut at its end.

        @torch_spool.compile                      # decorator
        def forward(x): ...

        fast = torch_spool.compile(forward, full_graph=True)    # wrapper

        with torch_spool.compile(name="update"):                # context manager
            ...

    What is pending at entry is cut and launched by itself, so a tensor made
    before the region is an input of its graph, and what follows the region is
    in another graph. Nothing waits.

    Args:
        f: a function, a module or any other callable.
        full_graph: a graph break inside (a read, `sync`, `synchronize`, an op
            whose result's shape depends on data) raises `RuntimeError` with
            its source line.
        name: of the region in messages. Regions with one name count their
            graphs together. By default a function's qualified name with file
            and line, or the place of the `with` statement.
        num_different_graphs_allowed: at most so many different graphs (1 or
            more) over all passes through the region; one more raises
            `RuntimeError` that says what differs. By default any number.
        replay: record the function, and from then on launch its plan without
            running it; see docs/replay.md. The first calls run as always.
            What a replay would lose raises `RuntimeError`.
        allow: with `replay`, what may be lost: "print", "python_random",
            "python_state".

    An exception inside passes through unchanged, as with `step`.

    Raises `TypeError` when F is no plain callable, `ValueError` when the
    number of graphs is below 1 or `allow` names something unknown.
    """
    if f is not None and not callable(f):
        raise TypeError(
            f"[compile] expected a function or None, got {type(f).__name__}; "
            "options are given by name, as in compile(full_graph=True)"
        )
    limit = -1
    if num_different_graphs_allowed is not None:
        limit = num_different_graphs_allowed
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ValueError(
                "[compile] expected num_different_graphs_allowed to be None or "
                f"an integer of at least 1, got {limit!r}"
            )
    allowed = (allow,) if isinstance(allow, str) else tuple(allow)
    if not set(allowed) <= set(_replay.ALLOWED) or (allowed and not replay):
        raise ValueError(
            f"[compile] expected allow to name what a replay may lose, of {_replay.ALLOWED}, with replay=True; got {allow!r}"
        )
    caller = sys._getframe(1)
    place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    region = Region(name, place, full_graph, limit, replay, allowed)
    return region if f is None else region(f)


def _describe(f: Callable[..., Any], place: str) -> str:
    """A name for F that stays the same each time its definition is run.

    PLACE stands in where F, such as a module, has no place of its own.
    """
    title = getattr(f, "__qualname__", None) or type(f).__qualname__
    code = getattr(f, "__code__", None)
    return f"{title} ({code.co_filename}:{code.co_firstlineno})" if code else f"{title} ({place})"


def _check_function(f: Callable[..., Any]) -> None:
    if not callable(f):
        raise TypeError(f"[compile] expected a function, got {type(f).__name__}")
    if inspect.isgeneratorfunction(f) or inspect.iscoroutinefunction(f):
        raise TypeError(
            f"[compile] expected a plain function, got the generator or coroutine "
            f"function {f.__name__}, whose body runs after the call has returned; "
            "use `with torch_spool.compile():` inside it"
        )
