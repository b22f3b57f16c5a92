"""Fixtures of all Python tests: the device, and a clean state for each test."""

import gc
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PACKAGE_FOLDER = HERE.parents[1] / "python"
if any((PACKAGE_FOLDER / "torch_spool").glob("_C*.so")):  # else: an installed torch_spool
    sys.path.insert(0, str(PACKAGE_FOLDER))
sys.path.insert(0, str(HERE))

import torch  # noqa: E402

import torch_spool  # noqa: E402
from torch_spool import _C  # noqa: E402
from torch_spool.debug import metrics  # noqa: E402


@pytest.fixture
def dev() -> torch.device:
    """The device under test."""
    return torch_spool.device()


@pytest.fixture(autouse=True)
def clean_state():
    """Nothing pending, no metrics, seed 0; afterwards nothing left behind."""
    torch_spool.sync(wait=True)
    metrics.clear_all()
    torch.manual_seed(0)
    capacity = _C.cache_capacity()
    yield
    torch_spool.eager_mode(False)
    _C.set_cache_capacity(capacity)
    gc.collect()
    torch_spool.sync(wait=True)  # raises if a test left a failure unread
    assert _C.current_scope() == ""
