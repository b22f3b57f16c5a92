"""The names that programs written for `torch_xla.core` import."""

from . import xla_model

__all__ = ["xla_model"]
