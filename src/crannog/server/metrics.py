"""What Prometheus is told: counted as it happens, the state of tables, cache, tasks and Spark when it asks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from crannog.errors import CrannogError

if TYPE_CHECKING:
    from crannog.server.service import Service

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SPARK_STATES = ("absent", "starting", "ready", "failed", "stopped")


class Metrics:
    """The figures of one server, in a registry of its own."""

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()
        where = {"registry": self.registry}
        self._requests = Counter("crannog_requests", "Requests answered.", ["method", "route", "status"], **where)
        self._request_seconds = Histogram(
            "crannog_request_seconds", "Time to answer.", ["route"], buckets=_SECONDS, **where
        )
        self._writes = Counter("crannog_writes", "Appends, upserts and deletes.", ["verb", "outcome"], **where)
        self._written_rows = Counter("crannog_written_rows", "Rows kept.", ["verb"], **where)
        self._write_seconds = Histogram(
            "crannog_write_seconds", "Time to the acknowledgement.", ["verb"], buckets=_SECONDS, **where
        )
        self._queries = Counter("crannog_queries", "SQL statements.", ["engine", "outcome"], **where)
        self._query_seconds = Histogram(
            "crannog_query_seconds", "Time to answer SQL.", ["engine"], buckets=_SECONDS, **where
        )
        self.registry.register(_State(service))
        self._lines: dict[tuple[Any, ...], Any] = {}

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        # An unknown method is made up by somebody: each would be a line for ever.
        self._of(self._requests, method if method in _METHODS else "other", route, str(status)).inc()
        self._of(self._request_seconds, route).observe(seconds)

    def write(self, verb: str, outcome: str, rows: int, seconds: float) -> None:
        self._of(self._writes, verb, outcome).inc()
        if rows:
            self._of(self._written_rows, verb).inc(rows)
        self._of(self._write_seconds, verb).observe(seconds)

    def _of(self, metric: Any, *labels: str) -> Any:
        """Return the line of a metric; looked up by ourselves, which takes a fifth of the time."""
        key = (id(metric), *labels)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = metric.labels(*labels)
        return line

    def query(self, engine: str, outcome: str, seconds: float) -> None:
        self._queries.labels(engine or "none", outcome).inc()
        self._query_seconds.labels(engine or "none").observe(seconds)

    def page(self) -> bytes:
        """Return the page that Prometheus reads."""
        return bytes(generate_latest(self.registry))


class _State:
    """Asked at each scrape; what cannot be told just now is left out."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        service = self._service
        yield _gauge("crannog_requests_running", "Requests being served.", service.requests)
        yield _gauge("crannog_bodies_held_bytes", "Bytes of request bodies being worked on.", service.bodies.held)
        yield _counter("crannog_audit_dropped", "Notes of the audit that could not be kept.", service.audit.dropped)
        threads = GaugeMetricFamily(
            "crannog_threads", "Threads at work, and calls that wait for one.", labels=["kind", "state"]
        )
        for kind, (working, waiting) in service.threads.busy().items():
            threads.add_metric([kind, "working"], working)
            threads.add_metric([kind, "waiting"], waiting)
        yield threads
        yield from _tables(service)
        stats = service.lake.cache.stats()
        yield _gauge("crannog_cache_bytes", "Bytes of tables held in memory.", stats["bytes"])
        yield _gauge("crannog_cache_limit_bytes", "Most bytes of tables held in memory.", stats["limit_bytes"])
        yield _counter("crannog_cache_hits", "Reads answered from memory.", stats["hits"])
        yield _counter("crannog_cache_misses", "Reads of tables that were not in memory.", stats["misses"])
        yield from _tasks(service)
        spark = GaugeMetricFamily("crannog_spark_state", "1 for the state that Spark is in.", labels=["state"])
        now = spark_state(service)
        for state in SPARK_STATES:
            spark.add_metric([state], float(state == now))
        yield spark


def spark_state(service: Service) -> str:
    """Return the state of this process's Spark."""
    from crannog.spark.session import spark_runtime

    return spark_runtime(service.settings).state()


def _gauge(name: str, text: str, value: Any) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: Any) -> Metric:
    return CounterMetricFamily(name, text, value=float(value))


def _tables(service: Service) -> Iterator[Metric]:
    texts = {
        "crannog_staged_rows": "Rows that no fold has taken yet.",
        "crannog_staged_bytes": "Bytes that no fold has taken yet.",
        "crannog_staged_files": "Staged files.",
        "crannog_fold_lag_seconds": "Age of the oldest change that no fold has taken yet.",
    }
    families = [GaugeMetricFamily(name, text, labels=["table"]) for name, text in texts.items()]
    now_us = time.time_ns() // 1_000
    for table in service.lake.engine.opened():
        try:
            backlog = table.log.backlog()
        except CrannogError:
            continue  # dropped, or its storage is away
        lag = 0.0 if backlog.oldest_us is None else max(0.0, (now_us - backlog.oldest_us) / 1e6)
        for family, value in zip(families, (backlog.rows, backlog.bytes, backlog.files, lag), strict=True):
            family.add_metric([str(table.name)], float(value))
    yield from families


def _tasks(service: Service) -> Iterator[Metric]:
    family = GaugeMetricFamily("crannog_tasks", "Maintenance tasks by state.", labels=["kind", "state"])
    counted: dict[tuple[str, str], int] = {}
    try:
        for task in service.lake.tasks():
            state = "failing" if task["failures"] else str(task["status"])
            key = (task["task_name"].partition(":")[0], state)
            counted[key] = counted.get(key, 0) + 1
    except CrannogError:
        return
    for key, count in counted.items():
        family.add_metric(list(key), count)
    yield family
