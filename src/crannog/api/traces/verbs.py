"""The verbs of traces. An embedded connection and one to a server both have all of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Protocol, Self

from crannog.api.cancellation import Cancellation
from crannog.api.reports import ErasureReceipt, Progress
from crannog.api.traces.metrics import AttributeKey, Dependency, MetricPoint
from crannog.api.traces.retention import DeriveReport, ErasurePlan, TraceExpiry, WriteOutcome
from crannog.api.traces.search import SpanPage, Suggestion, TracePage
from crannog.api.traces.spans import Trace
from crannog.api.traces.views import TraceComparison, TraceView


class TraceVerbs(Protocol):
    """Spans in, traces out. Safe for threads."""

    def within(self, *, timeout_s: float | None = None, query_id: str | None = None) -> Self:
        """Return the same traces for questions that may take so long, or that `cancel` can end by an id of the caller's."""

    def cancel(self, query_id: str) -> None:
        """End a question that runs or waits, which raises Cancelled; NotFound if there is none by this id."""

    def write_otlp(self, body: bytes, *, content_type: str = ..., encoding: str | None = None) -> WriteOutcome:
        """Keep the spans of an OTLP request; durable and visible when it returns. The same request again is kept once."""

    def write_zipkin(self, body: bytes, *, encoding: str | None = None) -> WriteOutcome:
        """Keep the spans of Zipkin's v2 JSON, an array."""

    def get(self, trace_id: str) -> Trace:
        """Return a trace by its id, at any age; NotFound if no span has it."""

    def services(self) -> list[str]:
        """Return the names of all services."""

    def operations(self, service: str, kind: str | None = None) -> list[str]:
        """Return the names of a service's operations."""

    def operations_by_kind(self, service: str) -> list[tuple[str, str | None]]:
        """Return each operation of a service with each kind it has."""

    def search(
        self,
        service: str | None = None,
        operation: str | None = None,
        text: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        where: str | None = None,
        has_errors: bool | None = None,
        min_duration_ms: float | None = None,
        max_duration_ms: float | None = None,
        start: Any = None,
        end: Any = None,
        limit: int = 50,
        cursor: str | None = None,
        *,
        order: str = "newest",
        count: bool = False,
    ) -> TracePage:
        """Return a page of the traces of which one span meets `where` and all the arguments about a span."""

    def search_spans(
        self,
        service: str | None = None,
        operation: str | None = None,
        text: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        where: str | None = None,
        start: Any = None,
        end: Any = None,
        limit: int = 50,
        cursor: str | None = None,
        *,
        order: str = "newest",
        count: bool = False,
    ) -> SpanPage:
        """Return a page of the spans that meet all arguments."""

    def complete(
        self,
        what: str,
        prefix: str = "",
        *,
        key: str | None = None,
        where: str | None = None,
        limit: int = 20,
        **filter_arguments: Any,
    ) -> list[Suggestion]:
        """Suggest what begins with `prefix` in the spans of a filter: "service", "operation", "key", or "value" of `key`."""

    def show(
        self, trace_id: str, offset: int = 0, limit: int = 1_000, *, depth: int | None = None, under: str | None = None
    ) -> TraceView:
        """Return a window of a trace's tree, with own times and the critical path."""

    def compare(self, before: str, after: str, limit: int = 1_000, *, tolerance: float = 0.0) -> TraceComparison:
        """Compare two traces by the paths of services and operations in them."""

    def metrics(
        self,
        service: str | None = None,
        operation: str | None = None,
        kind: str | None = None,
        start: Any = None,
        end: Any = None,
        step: str = "1m",
        group_by: Sequence[str] | str | None = None,
        where: str | Mapping[str, Any] | None = None,
        *,
        of: str = "spans",
        quantiles: Sequence[float] = (),
    ) -> list[MetricPoint]:
        """Return count, rate, errors and latencies of spans, or of whole traces, by time and by fields or attributes."""

    def dependencies(self, start: Any = None, end: Any = None) -> list[Dependency]:
        """Return which services call which, how often and with how many errors."""

    def attribute_keys(self, first: dt.date | None = None, last: dt.date | None = None) -> list[AttributeKey]:
        """Return the attribute keys that spans of some days have, those used most first."""

    def export(self, trace_ids: Sequence[str]) -> dict[str, Any]:
        """Return traces as one OTLP request in JSON, as they came in."""

    def export_protobuf(self, trace_ids: Sequence[str]) -> bytes:
        """Return traces as one OTLP request in protobuf, which `write_otlp` takes back."""

    def export_lines(self, trace_ids: Sequence[str]) -> Generator[str, None, None]:
        """Yield traces of any size as OTLP requests in JSON, one a line, each with up to 5,000 spans; close it, or read all."""

    def derive(
        self,
        anew: Sequence[dt.date] = (),
        *,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> DeriveReport:
        """Fold what is staged and bring the derived tables up to it, with Spark."""

    def expire(
        self,
        before: dt.date,
        service: str | Sequence[str] | None = None,
        *,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> TraceExpiry:
        """Drop the spans that started before a day, UTC, and what is derived from them; with `service`, only theirs."""

    def erasure_plan(
        self, trace_ids: Sequence[str] | None = None, where: str | Mapping[str, Any] | None = None
    ) -> ErasurePlan:
        """Tell what `erase` would erase; changes nothing."""

    def erase(
        self,
        trace_ids: Sequence[str] | None = None,
        where: str | Mapping[str, Any] | None = None,
        *,
        actor: str = "",
        reason: str = "",
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> ErasureReceipt:
        """Erase whole traces for good: those named, or those with a span that meets a filter; derived tables too."""


class TracedLake(Protocol):
    """A connection that has traces."""

    @property
    def traces(self) -> TraceVerbs:
        """The traces: OTLP in, traces, metrics and dependencies out."""
