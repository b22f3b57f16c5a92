"""Names below `torch_xla._internal` that well-known packages import."""

from . import tpu

__all__ = ["tpu"]
