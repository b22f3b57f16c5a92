"""What the runtime has done so far, in a few numbers, and what it has done since."""

from torch_spool import _C
from torch_spool.debug import metrics

_COUNTERS = {
    "drawn": "RandomFill",
    "breaks": "GraphBreak",
    "compiles": "UncachedCompile",
    "relaunches": "CachedCompile",
    "meta": "DispatcherMeta",
}


def events() -> dict[str, int]:
    """Totals: operations recorded, run at once (each by name), cuts, compiles, reads, calls of Python's Meta."""
    totals = {"recorded": _C.recorder_stats()["ops"]}
    totals |= {short: metrics.counter_value(name) or 0 for short, name in _COUNTERS.items()}
    reads = metrics.metric_data("TransferFromDeviceTime")
    totals["reads"] = reads[0] if reads else 0
    return totals | {name: metrics.counter_value(name) for name in metrics.executed_fallback_ops()}


def since(before: dict[str, int]) -> dict[str, int]:
    """How much each has grown; operations that were run at once are named only if there were any."""
    grown = {name: total - before.get(name, 0) for name, total in events().items()}
    return {name: n for name, n in grown.items() if n or not name.startswith("aten::")}
