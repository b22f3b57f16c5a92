"""Counters and metrics of the process, under the names of `torch_xla`.

A counter is a number that grows; a metric is a series of samples. Times are in
nanoseconds. Counters named `aten::…` count operations that were run at once
and not kept in the graph. `docs/metrics.md` lists the names.
"""

from collections.abc import Sequence

from .._load import _C

_SHORT_METRICS = (
    "CompileTime",
    "ExecuteTime",
    "TransferToDeviceTime",
    "TransferFromDeviceTime",
)
_SHORT_COUNTERS = ("CachedCompile", "UncachedCompile", "GraphBreak")


def counter_names() -> list[str]:
    """The names of all counters that have counted something."""
    return _C.counter_names()


def counter_value(name: str) -> int | None:
    """The counter's value, or `None` when it has counted nothing yet."""
    return _C.counter_value(name)


def metric_names() -> list[str]:
    """The names of all metrics that have a sample."""
    return _C.metric_names()


def metric_data(name: str) -> tuple[int, float, list[tuple[float, float]]] | None:
    """`(count, total, samples)` of a metric, or `None` when it has no sample.

    COUNT and TOTAL are of all samples since the last clear; SAMPLES are the
    latest ones as `(time in seconds, value)`.
    """
    return _C.metric_data(name)


def executed_fallback_ops() -> list[str]:
    """The names of the operations that were run at once (`aten::…`)."""
    return [name for name in _C.counter_names() if name.startswith("aten::")]


def metrics_report() -> str:
    """All counters and metrics as a table for people."""
    return _C.metrics_report([])


def short_metrics_report(
    counter_names: Sequence[str] | None = None,
    metric_names: Sequence[str] | None = None,
) -> str:
    """The table with these counters and metrics only.

    By default: compiling, running and moving data, graph breaks, and the
    operations that were run at once.
    """
    if counter_names is None:
        counter_names = [*_SHORT_COUNTERS, *executed_fallback_ops()]
    if metric_names is None:
        metric_names = _SHORT_METRICS
    known = {*_C.counter_names(), *_C.metric_names()}
    names = [name for name in (*metric_names, *counter_names) if name in known]
    return _C.metrics_report(names) if names else ""


def clear_counters() -> None:
    """Forget all counters."""
    _C.clear_counters()


def clear_metrics() -> None:
    """Forget all metrics' samples."""
    _C.clear_metrics()


def clear_all() -> None:
    """Forget all counters and all metrics' samples."""
    _C.clear_all()
