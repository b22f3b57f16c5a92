"""The names that programs written for `torch_xla.distributed` import, for one replica."""

from . import parallel_loader, xla_multiprocessing

__all__ = ["parallel_loader", "xla_multiprocessing"]
