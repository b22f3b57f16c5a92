"""What programs ask `torch_xla.runtime` (`xr`): which hardware, how many replicas, which one this is.

A process has one replica, as in `torch_spool.core.xla_model`.
"""

from . import _api
from .core import xla_model as _xm

world_size = _xm.get_world_size
global_ordinal = _xm.get_ordinal
local_ordinal = _xm.get_local_ordinal


def device_type() -> str:
    """The kind of hardware that the device computes on: "CPU"."""
    return _xm.xla_device_hw(_api.device())


def using_pjrt() -> bool:
    """True: programs ask this to tell torch_xla's runtime from an older one that Spool does not have either."""
    return True


def is_spmd() -> bool:
    """Whether one program drives several devices with sharded tensors: false."""
    return False


def host_index() -> int:
    """This host's number: 0."""
    return 0


def process_index() -> int:
    """This process's number: 0."""
    return 0


def process_count() -> int:
    """The number of processes: 1."""
    return 1


def local_process_count() -> int:
    """The number of processes on this host: 1."""
    return 1


addressable_device_count = _api.device_count
addressable_runtime_device_count = _api.device_count
local_device_count = _api.device_count
global_device_count = _api.device_count
global_runtime_device_count = _api.device_count
