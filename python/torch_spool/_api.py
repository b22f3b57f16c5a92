"""The public functions that are not regions (those are in `_regions`)."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from ._load import _C

DeviceLike = torch.device | str | int | None


def check_device(call: str, device: DeviceLike) -> torch.device:
    """DEVICE as a `torch.device` of type `xla` with an index.

    `None` is the first device. Raises `ValueError`, naming CALL, for another
    device type or an index out of range, `TypeError` for another Python type.
    """
    count = _C.device_count()
    if device is None:
        return torch.device("xla", 0)
    if isinstance(device, bool) or not isinstance(device, (torch.device, str, int)):
        raise TypeError(
            f"[{call}] expected a device (None, an index, a string or a "
            f"torch.device), got {type(device).__name__}"
        )
    if isinstance(device, int):
        index = device
    else:
        parsed = torch.device(device)
        if parsed.type != "xla":
            raise ValueError(
                f"[{call}] expected a device of type 'xla', got '{parsed}'; use torch_spool.device()"
            )
        index = parsed.index or 0
    if not 0 <= index < count:
        raise ValueError(
            f"[{call}] expected a device index from 0 to {count - 1}, got "
            f"{index}; torch_spool.devices() lists the devices"
        )
    return torch.device("xla", index)


def device(index: int | None = None) -> torch.device:
    """The lazy device with this INDEX (by default the first).

    Raises `ValueError` where there is no such device.
    """
    return check_device("device", index)


def devices() -> list[torch.device]:
    """All lazy devices of this process, in the order of their indices."""
    return [torch.device("xla", i) for i in range(_C.device_count())]


def device_count() -> int:
    """How many lazy devices this process has."""
    return _C.device_count()


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Cut: launch all that is pending as one graph, then run step closures.

    Args:
        wait: also wait for the results of all that has been launched.
        reset_scope: op-name scopes that `debug.profiler.Trace` has open start
            again at the root. Ranges open in the profiler close normally.

    Raises the failure of an earlier launched graph, if one is pending, and
    with `wait` also that of this one.
    """
    _C.sync(wait, reset_scope)


def synchronize(device: DeviceLike = None) -> None:
    """Wait for all that has been launched on DEVICE; launch nothing.

    This is what `torch.cuda.synchronize` does. Operations that are recorded
    but not cut stay pending. Inside a `compile(full_graph=True)` region it
    raises `RuntimeError`; in any other region it waits and does not cut.
    Raises the failure of a launched graph, if one is pending.
    """
    check_device("synchronize", device)
    _C.synchronize()


def _barrier() -> None:
    """Cut without waiting and without resetting scopes.

    For programs that must break a graph by hand; not recommended. Step
    closures stay queued.
    """
    _C.barrier()


def wait_device_ops(devices: Sequence[DeviceLike] = ()) -> None:
    """Wait for all launched work of DEVICES (all of them by default).

    Launches nothing. Raises the failure of a launched graph, if one is
    pending.
    """
    for one in devices:
        check_device("wait_device_ops", one)
    _C.wait_device_ops()


def add_step_closure(closure: Callable[..., Any], args: Iterable[Any] = (), run_async: bool = False) -> None:
    """Call `closure(*args)` after the next cut made by `sync` or a step's end.

    The closure may read tensors of the step without breaking its graph. ARGS
    are kept alive until it has run; its result is dropped.

    Args:
        run_async: run it on a background thread, in the order of the calls.
            An exception it raises is raised by the next call of
            `add_step_closure`, `sync` or `step`. Without `run_async` it runs
            on the thread that cuts, which then raises its exception.

    Raises `TypeError` when CLOSURE cannot be called.
    """
    if not callable(closure):
        raise TypeError(
            f"[add_step_closure] expected a function to call after the step, got {type(closure).__name__}"
        )
    _C.add_step_closure(functools.partial(closure, *args), run_async)


def eager_mode(enable: bool) -> None:
    """Switch eager mode on or off, for the whole process.

    While it is on, each operation on a lazy tensor is cut and launched by
    itself, as soon as it is recorded.
    """
    _C.set_eager_mode(bool(enable))


def is_eager_mode() -> bool:
    """Whether eager mode is on."""
    return _C.is_eager_mode()


@contextlib.contextmanager
def eager_mode_context(enable: bool) -> Iterator[None]:
    """Eager mode on or off (ENABLE) inside the `with`, then as it was."""
    before = _C.is_eager_mode()
    _C.set_eager_mode(bool(enable))
    try:
        yield
    finally:
        _C.set_eager_mode(before)


class options:
    """Set options of the compiler for the calling thread: at once, or as a `with` block that restores them.

    `exact=True` computes as eager does, op by op and bit for bit: nothing is
    fused or decomposed. `fuse` is "auto", "always" (kernels of our own also
    for single ops: for tests) or "never". Options count when a graph is
    launched; graphs that were compiled under others are compiled again.
    """

    def __init__(self, *, exact: bool | None = None, fuse: str | None = None) -> None:
        self._before = _C.compile_options()
        asked = {"exact": exact, "fuse": fuse}
        _C.set_compile_options(**self._before | {k: v for k, v in asked.items() if v is not None})

    def __enter__(self) -> "options":
        return self

    def __exit__(self, *exception: object) -> None:
        _C.set_compile_options(**self._before)


def initialize_cache(path: str | os.PathLike[str], readonly: bool = False) -> None:
    """Keep compiled graphs in the folder PATH, for other processes and later runs.

    A graph that a process of the same build of Spool, PyTorch and LLVM, on a
    processor with the same features, compiled before is loaded instead of
    compiled (`PersistentCacheHit` counts these). Processes may share the folder;
    files that are torn or foreign are ignored with a warning. It is bounded by
    SPOOL_DISK_CACHE_BYTES (1 GiB): what was used least recently goes first. With
    READONLY nothing is written. Raises `ValueError` for a folder that can't be used.
    """
    _C.initialize_cache(os.fspath(path), bool(readonly))


def manual_seed(seed: int, device: DeviceLike = None) -> None:
    """Seed the device's random numbers, in order with the recorded ops.

    The device draws from PyTorch's default CPU generator, so this seeds that
    one too, and the numbers are those of eager PyTorch.
    """
    check_device("manual_seed", device)
    _C.manual_seed(int(seed))


def get_rng_state(device: DeviceLike = None) -> torch.Tensor:
    """The state of the device's generator: a one-dimensional uint8 CPU tensor."""
    check_device("get_rng_state", device)
    return _C.get_rng_state()


def set_rng_state(state: torch.Tensor, device: DeviceLike = None) -> None:
    """Restore a STATE that `get_rng_state` gave.

    Raises `TypeError` for anything but a uint8 tensor.
    """
    check_device("set_rng_state", device)
    if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8:
        got = state.dtype if isinstance(state, torch.Tensor) else type(state).__name__
        raise TypeError(
            "[set_rng_state] expected the uint8 tensor that get_rng_state "
            f"gives, got {got}; to seed, call manual_seed"
        )
    _C.set_rng_state(state.cpu())


def graph_text(tensors: torch.Tensor | Sequence[torch.Tensor]) -> str:
    """The graph that would compute TENSORS, as text, in its functional form.

    Cuts and launches nothing. A tensor that is not pending is an input.
    Raises `TypeError` when something else than lazy tensors is given.
    """
    if isinstance(tensors, torch.Tensor):
        tensors = [tensors]
    for one in tensors:
        if not isinstance(one, torch.Tensor) or one.device.type != "xla":
            got = one.device if isinstance(one, torch.Tensor) else type(one).__name__
            raise TypeError(f"[graph_text] expected tensors on device xla, got {got}")
    return _C.graph_text(list(tensors))
