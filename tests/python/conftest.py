"""Fixtures of all Python tests: the device, and a clean state for each test."""

import gc
import os
import sys
from collections import Counter
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


@pytest.fixture
def exact():
    """Plans that compute what eager does to the last bit: nothing is fused."""
    with torch_spool.options(exact=True):
        yield


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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full-ops",
        action="store_true",
        default=os.environ.get("SPOOL_FULL_OPS") == "1",
        help="test_ops.py: all dtypes of all ops instead of a sample of each op (also: SPOOL_FULL_OPS=1)",
    )
    parser.addoption(
        "--full-fuzz",
        action="store_true",
        default=os.environ.get("SPOOL_FULL_FUZZ") == "1",
        help="test_fuzz_views.py: 20 000 programs instead of 300 (also: SPOOL_FULL_FUZZ=1)",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What share of the pairs of op and dtype did what eager does (test_ops.py), by dtype and by aspect."""
    total, passed = Counter[str](), Counter[str]()
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        pairs: dict[str, bool] = {}
        for dtype, aspect, good in dict(report.user_properties).get("ops", []):
            total[aspect] += 1
            passed[aspect] += good
            if dtype != "-":
                pairs[dtype] = pairs.get(dtype, True) and good
        for dtype, good in pairs.items():
            for key in (dtype, "pairs of op and dtype"):
                total[key] += 1
                passed[key] += good
    if total:
        terminalreporter.section("ops equal to eager")
        for key in sorted(total, key=lambda k: (k != "pairs of op and dtype", k)):
            terminalreporter.line(f"{key}: {passed[key]} of {total[key]} ({passed[key] / total[key]:.2%})")
