"""Metrics over spans and traces: rates, errors and latencies by time, and calls between services."""

from crannog.api.traces import Dependency, MetricPoint

__all__ = ["Dependency", "MetricPoint"]
