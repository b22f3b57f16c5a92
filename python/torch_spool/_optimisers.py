"""Makes `torch.optim` and the gradient utilities take lists of tensors on this device, as they do on CUDA, and allow fused optimisers.

`foreach` is the default: an update of all parameters is then a few operations on
the tape instead of a few for each parameter. The fused optimisers' kernels are
PyTorch's own for the CPU. PyTorch keeps the devices that have either in lists
that only a "privateuseone" device can enter by itself.
"""

import functools
import importlib
from collections.abc import Callable

_NAMES = ("_get_foreach_kernels_supported_devices", "_get_fused_kernels_supported_devices")
_MODULES = ("torch.utils._foreach_utils", "torch.optim.optimizer")  # the second has its own references


def _with_xla(devices: Callable[[], list[str]]) -> Callable[[], list[str]]:
    @functools.wraps(devices)
    def known() -> list[str]:
        names = devices()
        return names if "xla" in names else [*names, "xla"]

    return known


def register() -> None:
    """Add the device to both lists."""
    modules = [importlib.import_module(name) for name in _MODULES]  # torch.optim hides its module `optimizer`
    for name in _NAMES:
        known = _with_xla(getattr(modules[0], name))
        for module in modules:
            setattr(module, name, known)
