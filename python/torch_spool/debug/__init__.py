"""Looking into a running program: metrics and the profiler's ranges."""

from . import metrics, profiler

__all__ = ["metrics", "profiler"]
