"""Spool: lazy tensors for PyTorch on the device `xla`.

Importing this package registers the device. Operations on its tensors are
recorded, not run; a cut (`sync`, `step`, `compile`, or a read such as
`item()`) makes one graph of them, which is compiled once and launched on a
queue of its own while the program goes on.

    import torch, torch_spool

    x = torch.ones(2, device=torch_spool.device())
    with torch_spool.step():
        y = x * 2
    print(y)                     # a read waits for the launched graph

Every function may be called from any thread. Recording is in program order
across threads, as PyTorch's own locks let them through.
"""

from typing import Any

from . import _backends, _device_module, _optimisers, _serialization
from ._api import (
    _barrier as _barrier,
)
from ._api import (
    add_step_closure,
    device,
    device_count,
    devices,
    eager_mode,
    eager_mode_context,
    get_rng_state,
    graph_text,
    initialize_cache,
    is_eager_mode,
    manual_seed,
    options,
    set_rng_state,
    sync,
    synchronize,
    wait_device_ops,
)
from ._explain import explain
from ._load import _C as _C
from ._regions import compile, step

_device_module.register()
_serialization.register()
_backends.register()
_optimisers.register()

from . import core, debug, distributed, experimental, runtime  # noqa: E402  (they need the device)

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The bridge to torch.compile is loaded when it is asked for: it needs more of PyTorch than the rest.
    if name == "dynamo":
        import importlib

        return importlib.import_module(".dynamo", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "add_step_closure",
    "compile",
    "core",
    "debug",
    "device",
    "device_count",
    "devices",
    "distributed",
    "eager_mode",
    "eager_mode_context",
    "experimental",
    "explain",
    "get_rng_state",
    "graph_text",
    "initialize_cache",
    "is_eager_mode",
    "manual_seed",
    "options",
    "runtime",
    "set_rng_state",
    "step",
    "sync",
    "synchronize",
    "wait_device_ops",
]
