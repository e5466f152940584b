"""Numbers over spans: rates, errors and latencies in buckets of time, and who calls whom."""

from crannog.traces.metrics.dependencies import Dependency
from crannog.traces.metrics.points import MetricPoint

__all__ = ["Dependency", "MetricPoint"]
