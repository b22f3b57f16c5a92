"""Loads the extension module, or says what is missing."""

import torch

try:
    from . import _C
except ImportError as error:
    raise ImportError(
        "[torch_spool] expected the extension module torch_spool._C, built for "
        f"PyTorch {torch.__version__}, but it could not be loaded ({error}); "
        "build it with `./dev build`, with the PyTorch that is installed here"
    ) from error

__all__ = ["_C"]
