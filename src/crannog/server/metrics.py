"""Metrics for Prometheus: events are counted as they happen; tables, cache, tasks and Spark are read at each scrape."""

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
    """The metrics of one server, in a registry of its own."""

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()
        where = {"registry": self.registry}
        self._requests = Counter("crannog_requests", "Requests that ended.", ["method", "route", "status"], **where)
        self._request_seconds = Histogram(
            "crannog_request_seconds", "Duration of requests.", ["route"], buckets=_SECONDS, **where
        )
        self._writes = Counter("crannog_writes", "Appends, upserts and deletes.", ["verb", "outcome"], **where)
        self._written_rows = Counter("crannog_written_rows", "Rows written.", ["verb"], **where)
        self._write_seconds = Histogram(
            "crannog_write_seconds", "Time to the acknowledgement.", ["verb"], buckets=_SECONDS, **where
        )
        self._queries = Counter("crannog_queries", "SQL statements.", ["engine", "outcome"], **where)
        self._query_seconds = Histogram(
            "crannog_query_seconds", "Duration of SQL statements.", ["engine"], buckets=_SECONDS, **where
        )
        self.registry.register(_State(service))
        # Series that were used before: the library takes five times as long to find them by their labels.
        self._request_series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._write_series: dict[tuple[str, str], tuple[Counter, Counter, Histogram]] = {}

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that ended."""
        # A client can make up methods, and each would be a new series.
        key = (method if method in _METHODS else "other", route, status)
        series = self._request_series.get(key)
        if series is None:
            counter = self._requests.labels(key[0], route, str(status))
            series = self._request_series[key] = (counter, self._request_seconds.labels(route))
        series[0].inc()
        series[1].observe(seconds)

    def write(self, verb: str, outcome: str, rows: int, seconds: float) -> None:
        """Count a write that ended, and the rows it added."""
        series = self._write_series.get((verb, outcome))
        if series is None:
            counter, duration = self._writes.labels(verb, outcome), self._write_seconds.labels(verb)
            series = self._write_series[verb, outcome] = (counter, self._written_rows.labels(verb), duration)
        series[0].inc()
        if rows:
            series[1].inc(rows)
        series[2].observe(seconds)

    def query(self, engine: str, outcome: str, seconds: float) -> None:
        """Count an SQL statement that ended."""
        self._queries.labels(engine or "none", outcome).inc()
        self._query_seconds.labels(engine or "none").observe(seconds)

    def page(self) -> bytes:
        """Return the page for Prometheus."""
        return bytes(generate_latest(self.registry))


class _State:
    """Collected at each scrape; what is not available then is left out."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        service = self._service
        yield _gauge("crannog_requests_running", "Requests being served.", service.requests)
        yield _gauge("crannog_connections", "Connections to all ports.", service.connections.count)
        yield _counter("crannog_connections_refused", "Connections beyond a limit.", service.connections.refused)
        yield _gauge("crannog_bodies_held_bytes", "Bytes held for request bodies.", service.bodies.held)
        abandoned = service.lake.operations.queries.running.abandoned + spark_abandoned(service)
        yield _gauge(
            "crannog_queries_abandoned", "Queries that were given up at their timeout and still run.", abandoned
        )
        yield _counter("crannog_audit_dropped", "Audit records that were dropped.", service.audit.dropped)
        threads = GaugeMetricFamily(
            "crannog_threads", "Threads that are busy, and calls that wait for one.", labels=["kind", "state"]
        )
        for kind, (working, waiting) in service.threads.busy().items():
            threads.add_metric([kind, "working"], working)
            threads.add_metric([kind, "waiting"], waiting)
        yield threads
        yield from _tables(service)
        stats = service.lake.cache.stats()
        yield _gauge("crannog_cache_bytes", "Bytes of tables held in memory.", stats["bytes"])
        yield _gauge("crannog_cache_limit_bytes", "Limit of the bytes of tables held in memory.", stats["limit_bytes"])
        yield _counter("crannog_cache_hits", "Reads answered from memory.", stats["hits"])
        yield _counter("crannog_cache_misses", "Reads of tables that are not in memory.", stats["misses"])
        yield from _tasks(service)
        spark = GaugeMetricFamily("crannog_spark_state", "1 for the current state of Spark.", labels=["state"])
        now = spark_state(service)
        for state in SPARK_STATES:
            spark.add_metric([state], float(state == now))
        yield spark


def spark_state(service: Service) -> str:
    """Return the state of this process's Spark."""
    from crannog.spark.session import spark_runtime

    return spark_runtime(service.settings).state()


def spark_abandoned(service: Service) -> int:
    """Return how many statements go on in Spark after they were given up."""
    from crannog.spark.session import spark_runtime

    return spark_runtime(service.settings).abandoned()


def _gauge(name: str, text: str, value: Any) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: Any) -> Metric:
    return CounterMetricFamily(name, text, value=float(value))


def _tables(service: Service) -> Iterator[Metric]:
    texts = {
        "crannog_staged_rows": "Staged rows that are not folded yet.",
        "crannog_staged_bytes": "Staged bytes that are not folded yet.",
        "crannog_staged_files": "Staged files.",
        "crannog_base_bytes": "Bytes of the files of the newest version.",
        "crannog_fold_lag_seconds": "Age of the oldest change that is not folded yet.",
    }
    families = [GaugeMetricFamily(name, text, labels=["table"]) for name, text in texts.items()]
    now_us = time.time_ns() // 1_000
    for table in service.lake.operations.tables.opened():
        try:
            backlog, size = table.log.backlog(), table.log.last_seen_base().bytes
        except CrannogError:
            continue  # dropped, or its storage is not available
        lag = 0.0 if backlog.oldest_us is None else max(0.0, (now_us - backlog.oldest_us) / 1e6)
        for family, value in zip(families, (backlog.rows, backlog.bytes, backlog.files, size, lag), strict=True):
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
