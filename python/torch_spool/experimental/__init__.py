"""The names that programs written for `torch_xla.experimental` import."""

from .._api import eager_mode, eager_mode_context, is_eager_mode
from .._regions import compile

__all__ = ["compile", "eager_mode", "eager_mode_context", "is_eager_mode"]
