"""`torch.load` straight onto the device: `map_location="xla"`."""

from typing import Any

import torch

from . import _api


def _location(storage: Any) -> str | None:
    """The location to note for a saved storage, if it is one of this device."""
    return str(storage.device) if storage.device.type == "xla" else None


def _restore(storage: Any, location: str) -> torch.UntypedStorage | None:
    """A loaded CPU storage, moved to LOCATION if that names this device."""
    if location != "xla" and not location.startswith("xla:"):
        return None
    device = _api.check_device("torch.load", location)
    on_cpu = torch.empty(0, dtype=torch.uint8).set_(storage)
    return on_cpu.to(device).untyped_storage()


def register() -> None:
    """Tell `torch.save` and `torch.load` of the device. Called once."""
    priority = 40  # one that nobody has: equal priorities cannot be sorted
    torch.serialization.register_package(priority, _location, _restore)
