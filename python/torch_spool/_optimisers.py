"""Makes `torch.optim` know that the device has the fused optimisers' kernels: it runs PyTorch's own for the CPU.

PyTorch keeps the devices in a list that only a "privateuseone" device can enter by itself.
"""

import functools
import importlib
from collections.abc import Callable

_NAME = "_get_fused_kernels_supported_devices"
_MODULES = ("torch.utils._foreach_utils", "torch.optim.optimizer")  # the second has its own reference


def _with_xla(devices: Callable[[], list[str]]) -> Callable[[], list[str]]:
    @functools.wraps(devices)
    def known() -> list[str]:
        names = devices()
        return names if "xla" in names else [*names, "xla"]

    return known


def register() -> None:
    """Add the device to the list."""
    modules = [importlib.import_module(name) for name in _MODULES]  # torch.optim hides its module `optimizer`
    known = _with_xla(getattr(modules[0], _NAME))
    for module in modules:
        setattr(module, _NAME, known)
