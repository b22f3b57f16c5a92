"""`compile(fn, replay=True)`: a function that is recorded, and from then on launched without being run.

A call is recorded by running it as always, while all that the host does is
noted (`_C.ReplayRecording`): ops of CPU tensors, random draws, uploads, and
arithmetic on the numbers of `_followed`. Two recordings that come to the same
program make a replay (`_C.ReplayCall`).
"""

import functools
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree

from ._followed import FollowedNumber
from ._load import _C
from ._reach import Reach

# Calls of one signature that may fail to make a program before the caller is told.
_MAX_FAILURES = 3
# Programs and recordings that are kept for a function; the oldest go first.
_MAX_REPLAYS = 16
_MAX_RECORDED = 16

ALLOWED = ("print", "python_random", "python_state")

# One recording at a time in the process: it looks at all that its thread records on the device.
_lock = threading.RLock()
_DISTURBED = (
    "another thread records on the device at the same time"  # as src/torch/replay_recording.cpp says it
)
_active: "_Recorded | None" = None


class Replayer:
    """A function with the programs recorded of it, one for each signature."""

    def __init__(self, f: Callable[..., Any], region: Any, name: str, allow: Sequence[str]) -> None:
        """REGION is a context manager in which calls are recorded."""
        self._f = f
        self._region = region
        self._name = name
        self._allow = frozenset(allow)
        self._calls: list[_C.ReplayCall] = []
        self._recorded: list[_Recorded] = []

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._calls and _active is None:
            for call in self._calls:
                result = call.run(args, kwargs)
                if result is not NotImplemented:
                    if call is not self._calls[0]:
                        self._calls = [call, *(one for one in self._calls if one is not call)]
                    return result
        if _C.in_full_graph() or _C.is_eager_mode():
            return self._f(*args, **kwargs)
        with _lock:
            if _active is not None:  # inside another one that is being recorded: a part of it
                return self._f(*args, **kwargs)
            return self._record(args, kwargs)

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recorded = _Recorded(self._f, args, kwargs, self._allow)
        like = [one for one in self._recorded if one.signature.matches_call(args, kwargs)]
        comparable = [one for one in like if one.replay is not None and one.signature.changed() < 0]
        try:
            with self._region:
                with recorded:
                    result = self._f(*recorded.args, **recorded.kwargs)
                recorded.take(result)
        finally:
            recorded.stop()
        del result
        result = recorded.finish()
        if recorded.replay is not None:
            for earlier in reversed(comparable):
                recorded.problem = earlier.differs(recorded)
                if not recorded.problem:
                    self._calls = [recorded.call(), *self._calls][:_MAX_REPLAYS]
                    self._recorded = [one for one in self._recorded if one not in like]
                    return result
        if recorded.problem == _DISTURBED:
            return result  # says nothing about the function: a later call is recorded instead
        failures = sum(bool(one.problem) for one in (*like, recorded))
        if failures < _MAX_FAILURES:
            self._recorded = [*self._recorded, recorded][-_MAX_RECORDED:]
            return result
        self._recorded = [one for one in self._recorded if one not in like]
        raise RuntimeError(
            f"[compile] '{self._name}' can't be replayed: {recorded.problem}. It was run {failures} times to find out, "
            "each with its effects; without replay=True it runs as it is"
        )


class _Recorded:
    """One recorded call."""

    def __init__(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], allow: frozenset[str]
    ) -> None:
        self._allow = allow
        self._reach = Reach(f, args, kwargs)
        self.signature = _C.ReplaySignature(args, kwargs)
        self._reach.watch(self.signature)
        self.problem = ""
        self.replay: _C.Replay | None = None
        self.recording = False
        self._sources: list[tuple[dict[str, Any], str]] = []
        self._restore: list[tuple[dict[str, Any], str, FollowedNumber, float]] = []
        self._next_source = 0
        tensors = self._tensors(args, kwargs)
        self._recording = _C.ReplayRecording(tensors, self._reach.leaves())
        if self.problem:
            self._recording.refuse(self.problem)
        self.args, self.kwargs = pytree.tree_map(self._follow_argument, (args, kwargs))

    def _tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        tensors = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        for one in tensors:
            if not _C.bridge_can_take(one):
                self.problem = "an argument is no plain tensor of the device or the CPU"
                return []
            if one.requires_grad and not one.is_leaf and torch.is_grad_enabled():
                self.problem = "an argument has an autograd graph of its own; pass argument.detach()"
        return tensors

    def _follow_argument(self, value: Any) -> Any:
        if type(value) is not float:
            return value
        return FollowedNumber(self, self._source(), value)

    def _source(self) -> int:
        self._next_source += 1
        return self._recording.step("source", self._next_source - 1)

    # --- what followed numbers call ----------------------------------------------------------------------------------
    def step(self, kind: str, a: int = 0, b: int = 0, value: float = 0.0) -> int:
        return self._recording.step(kind, a, b, value)

    def same(self, at: int, value: float) -> None:
        self._recording.same(at, value)

    def compared(self, kind: str, a: int, b: int, value: bool) -> None:
        self._recording.compared(kind, a, b, value)

    # --- the call ----------------------------------------------------------------------------------------------------
    def __enter__(self) -> None:
        global _active
        self._random = _random_states()
        self._looking = _looking(self)
        self._looking.__enter__()
        for group, key in self._reach.numbers():
            self._sources.append((group, key))
            number = FollowedNumber(self, self._source(), group[key])
            self._restore.append((group, key, number, group[key]))
            group[key] = number
        # Numbers in lists can't be followed: one tensor after another the optimiser computes the same.
        self._one_by_one = list(self._reach.list_choices())
        for group in self._one_by_one:
            group["foreach"] = False
        torch.clear_autocast_cache()  # casts that are kept from earlier would be of no call
        _active = self
        self.recording = True
        self._recording.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        global _active
        torch.clear_autocast_cache()
        self._recording.end_body()
        self.recording = False
        _active = None
        self._looking.__exit__(None, None, None)
        for group in self._one_by_one:
            group["foreach"] = None
        for group, key, number, value in self._restore:
            if group.get(key) is number:
                group[key] = value
            else:
                self.refuse("python_state", f"it sets {key!r} in an optimiser's param_groups")
                if type(group.get(key)) is FollowedNumber:
                    group[key] = group[key].plain()
        for whose, before, after in zip(("Python", "NumPy"), self._random, _random_states()):
            if before != after:
                self.refuse("python_random", f"it draws from {whose}'s random generator")
        while (at := self.signature.changed()) >= 0:
            self.refuse("python_state", f"it changes {self._reach.name(at)}")
            self.signature.forget(at)

    def refuse(self, name: str, why: str) -> None:
        """This call can't be replayed, because of WHY, unless NAME is allowed."""
        if name not in self._allow:
            self._recording.refuse(
                f"{why}, and a replay would not. Do it outside of the function, or say that it may be lost: "
                f"compile(..., replay=True, allow=({name!r},))"
            )

    def check_optimiser(self, optimiser: torch.optim.Optimizer) -> None:
        """Refuse an OPTIMISER that was not found beforehand."""
        if not all(self._reach.has(one) for group in optimiser.param_groups for one in group["params"]):
            self._recording.refuse(
                f"its {type(optimiser).__name__} is found neither in its closure and globals nor in its object; "
                "pass it as an argument"
            )

    def item(self, tensor: Tensor) -> FollowedNumber | None:
        """The content of a 0-dim CPU TENSOR, if it is a number that can be followed."""
        found = self._recording.item(tensor)
        return None if found is None else FollowedNumber(self, *found)

    def looked_at(self, tensor: Tensor, how: str) -> None:
        """Python has taken TENSOR's content in a way that can't be followed."""
        if tensor.device.type == "cpu":
            self._recording.refuse(
                f"it takes a CPU tensor's content by {how}(): a replay does not run the code that uses it"
            )

    def take(self, result: Any) -> None:
        """The RESULT of the call, before its region is cut."""
        self._leaves, self._spec = pytree.tree_flatten(result)

    def stop(self) -> None:
        self._recording.stop()

    def finish(self) -> Any:
        """Make a program of it; give the result as the caller gets it."""
        tensors: list[Tensor | None] = []
        numbers: list[int] = []
        plain: list[Any] = []
        self._described: list[Any] = []
        for one in self._leaves:
            if isinstance(one, Tensor):
                tensors.append(one)
                self._described.append(None)
            elif type(one) is FollowedNumber:
                tensors.append(None)
                numbers.append(one.node.followed[0])
                self._described.append(True)
                one = one.plain()
            else:
                self._described.append((one,))
                if not isinstance(one, (int, float, complex, str, bytes, type(None))):
                    self._recording.refuse(f"it returns an object of type {type(one).__name__}")
            plain.append(one)
        self.replay = self._recording.finish(tensors, numbers)
        self.problem = self._recording.problem()
        del self._leaves, self._recording, self.args, self.kwargs, self._restore
        return pytree.tree_unflatten(plain, self._spec)

    def differs(self, later: "_Recorded") -> str:
        """Why LATER, another call of this signature, is not the same program; empty if it is."""
        if self._spec != later._spec or not _same(self._described, later._described):
            return "its result differs from call to call in form, or in a Python value that nothing explains"
        if len(self._sources) != len(later._sources):
            return "the optimisers it uses differ from call to call"
        return self.replay.differs(later.replay)

    def call(self) -> "_C.ReplayCall":
        """What makes later calls of this signature."""
        build = None if self._spec.is_leaf() else _builder(self._spec)
        return _C.ReplayCall(self.signature, self.replay, self._sources, self._described, build)


def _same(these: list[Any], those: list[Any]) -> bool:
    return len(these) == len(those) and all(
        type(a) is type(b) and (not isinstance(a, tuple) or (type(a[0]) is type(b[0]) and a == b))
        for a, b in zip(these, those)
    )


def _builder(spec: pytree.TreeSpec) -> Callable[[list[Any]], Any]:
    if spec.type in (tuple, list) and all(child.is_leaf() for child in spec.children()):
        return spec.type
    return functools.partial(_unflatten, spec)


def _unflatten(spec: pytree.TreeSpec, leaves: list[Any]) -> Any:
    return pytree.tree_unflatten(leaves, spec)


def _random_states() -> tuple[Any, Any]:
    """States of the random generators of Python and, where it is loaded, NumPy."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return random.getstate(), None
    kind, keys, *rest = numpy.random.get_state()
    return random.getstate(), (kind, keys.tobytes(), *rest)


@contextmanager
def _looking(recorded: _Recorded) -> Iterator[None]:
    """Notice what the calling thread does past PyTorch's operators, for RECORDED."""
    thread = threading.get_ident()

    def here() -> bool:
        return recorded.recording and threading.get_ident() == thread

    undo: list[Callable[[], None]] = []

    def replace(holder: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(holder, name)
        own = name in vars(holder)
        try:
            setattr(holder, name, make(original))
        except AttributeError:
            return  # a stream that lets nobody look
        undo.append(lambda: setattr(holder, name, original) if own else delattr(holder, name))

    def item(original: Any) -> Any:
        def followed(tensor: Tensor) -> Any:
            number = recorded.item(tensor) if here() else None
            return original(tensor) if number is None else number

        return followed

    def noticed(how: str) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            @functools.wraps(original)
            def method(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
                if here():
                    recorded.looked_at(tensor, how)
                return original(tensor, *args, **kwargs)

            return method

        return make

    def write(original: Any) -> Any:
        def noted(text: str) -> Any:
            if here():
                recorded.refuse("print", "it prints or logs")
            return original(text)

        return noted

    def step(optimiser: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if here():
            recorded.check_optimiser(optimiser)

    hook = register_optimizer_step_pre_hook(step)
    replace(Tensor, "item", item)
    for how in ("tolist", "numpy", "__array__"):
        replace(Tensor, how, noticed(how))
    for stream in {id(one): one for one in (sys.stdout, sys.stderr) if one is not None}.values():
        replace(stream, "write", write)
    try:
        yield
    finally:
        hook.remove()
        for one in reversed(undo):
            one()
