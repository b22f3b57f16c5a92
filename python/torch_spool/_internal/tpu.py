"""PyTorch Lightning calls every XLA device a TPU, and counts them here."""

from .. import _api

num_available_devices = _api.device_count
