"""The module `torch.xla`, where PyTorch looks for a device's functions.

`torch.random.fork_rng`, `torch.utils.checkpoint` and `torch.amp` find it
through `torch.get_device_module("xla")`.
"""

import atexit
import os
import sys
import types

import torch

from . import _api
from ._load import _C

_bad_fork = False


def _after_fork_in_child() -> None:
    global _bad_fork
    _bad_fork = True


def _is_in_bad_fork() -> bool:
    """Whether this process is the child of a fork made after the import.

    The runtime's threads do not exist there.
    """
    return _bad_fork


def is_available() -> bool:
    """Whether there is at least one lazy device."""
    return _C.device_count() > 0


def is_initialized() -> bool:
    """Always true: importing `torch_spool` initialises the device."""
    return True


def device_count() -> int:
    """How many lazy devices this process has."""
    return _C.device_count()


def current_device() -> int:
    """The index of the current device: 0."""
    return 0


def set_device(device: _api.DeviceLike) -> None:
    """Make DEVICE current. There is one; another raises `ValueError`."""
    _api.check_device("set_device", device)


class device:
    """Context manager that makes a device current (there is one)."""

    def __init__(self, device: _api.DeviceLike) -> None:
        self.idx = _api.check_device("device", device).index

    def __enter__(self) -> "device":
        return self

    def __exit__(self, *error: object) -> None:
        return None


def manual_seed_all(seed: int) -> None:
    """Seed all lazy devices.

    Called by `torch.manual_seed` for a device of its own; see
    `torch_spool.manual_seed`.
    """
    _C.manual_seed(int(seed))


def seed() -> int:
    """Seed the device with a number from the system; gives that number."""
    return torch.default_generator.seed()


def initial_seed() -> int:
    """The number that the device was seeded with last."""
    return torch.default_generator.initial_seed()


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that `torch.autocast("xla")` can compute in."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported() -> bool:
    """Always true."""
    return True


def memory_allocated(device: _api.DeviceLike = None) -> int:
    """Bytes that lazy tensors and plans hold now."""
    _api.check_device("memory_allocated", device)
    return _C.memory_info()[0]


def max_memory_allocated(device: _api.DeviceLike = None) -> int:
    """The most bytes that lazy tensors and plans have held."""
    _api.check_device("max_memory_allocated", device)
    return _C.memory_info()[1]


def _drain() -> None:
    """Let launched work finish before the interpreter takes itself apart.

    What is pending and not cut is not run. A failure that nobody has read
    goes to stderr, as any exception of an exit handler does.
    """
    if _bad_fork:
        return
    try:
        _C.wait_device_ops()
    finally:
        _C.shut_down()  # asynchronous step closures end here too: they need the interpreter


def register() -> None:
    """Make this module `torch.xla`, once; set up what happens at fork and exit."""
    module = types.ModuleType("torch.xla", __doc__)
    public = sys.modules[__name__]
    for name in (
        "_drain",
        "_is_in_bad_fork",
        "current_device",
        "device",
        "device_count",
        "get_amp_supported_dtype",
        "initial_seed",
        "is_available",
        "is_bf16_supported",
        "is_initialized",
        "manual_seed_all",
        "max_memory_allocated",
        "memory_allocated",
        "seed",
        "set_device",
    ):
        setattr(module, name, getattr(public, name))
    for name in ("get_rng_state", "manual_seed", "set_rng_state", "synchronize"):
        setattr(module, name, getattr(_api, name))
    module._initialized = True  # type: ignore[attr-defined]
    torch._register_device_module("xla", module)
    os.register_at_fork(after_in_child=_after_fork_in_child)
    atexit.register(_drain)
