"""Numbers over spans: rates, errors and latencies in buckets of time, and who calls whom."""

from crannog.api.traces import Dependency, MetricPoint

__all__ = ["Dependency", "MetricPoint"]
