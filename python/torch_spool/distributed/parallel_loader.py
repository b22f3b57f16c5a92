"""Loaders that bring batches to the device and cut after each."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from .. import _api
from ..core import xla_model as xm


class ParallelLoader:
    """LOADER's batches for DEVICES, of which there is one.

    Batches are loaded in the caller's thread, so that random numbers are drawn in program order: two runs from
    one seed are equal. A `DataLoader` with `num_workers` loads ahead; the copy to the device is one of memory.

    Args:
        batches_per_execution: how many batches make one graph.
        loader_prefetch_size, device_prefetch_size, host_to_device_transfer_threads: taken and not used.

    Raises `ValueError` for another number of devices, and for `input_sharding`.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        devices: Sequence[torch.device | str],
        batchdim: int = 0,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 16,
        device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1,
        input_sharding: Any = None,
    ) -> None:
        if len(devices) != 1:
            raise ValueError(f"[ParallelLoader] expected one device, got {len(devices)}")
        if input_sharding is not None:
            raise ValueError("[ParallelLoader] expected input_sharding None: there is one device to feed")
        if batches_per_execution < 1:
            raise ValueError(
                f"[ParallelLoader] expected batches_per_execution of at least 1, got {batches_per_execution}"
            )
        self._loader = loader
        self._device = _api.check_device("ParallelLoader", devices[0])
        self._batches_per_execution = batches_per_execution

    def per_device_loader(self, device: torch.device | str) -> Iterator[Any]:
        """The batches, on DEVICE. What was recorded for one is cut when the next is asked for."""
        where = _api.check_device("per_device_loader", device)
        if where != self._device:
            raise ValueError(f"[per_device_loader] expected {self._device}, got {where}")
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        pending = 0
        for batch in self._loader:
            yield xm.send_cpu_data_to_device([batch], self._device)[0]
            pending += 1
            if pending == self._batches_per_execution:
                xm.mark_step()
                pending = 0
        if pending:
            xm.mark_step()

    def close(self) -> None:
        """Nothing to do: there is no thread to stop."""


class MpDeviceLoader:
    """LOADER's batches on DEVICE; it can be iterated many times. The options are `ParallelLoader`'s.

    Its other public attributes are LOADER's: programs read `dataset` and `batch_size`.
    """

    def __init__(self, loader: Iterable[Any], device: torch.device | str, **options: Any) -> None:
        self._loader = loader
        self._device = device
        self._options = options

    def __iter__(self) -> Iterator[Any]:
        return ParallelLoader(self._loader, [self._device], **self._options).per_device_loader(self._device)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # as the loader has it: TypeError if it has none

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
            )
        return getattr(self._loader, name)
