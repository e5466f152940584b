"""The class `Traces`: writes spans; reads, searches and measures traces; in the process or through a server."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from crannog.api.arguments import checked_erasure_id, checked_query_id, checked_timeout
from crannog.api.operations import Transport
from crannog.api.reports import Cancellation, ErasureReceipt, Progress
from crannog.api.traces import requests as ops
from crannog.api.traces.analysis import Differences, Heatmap, SessionPage, UsagePoint
from crannog.api.traces.columns import Skeleton, TraceMatches
from crannog.api.traces.messages import TraceMessages
from crannog.api.traces.requests import PROTOBUF, ZIPKIN, Time, Value
from crannog.api.traces.results import (
    AttributeKey,
    Dependency,
    DeriveReport,
    ErasurePlan,
    MetricPoint,
    SpanPage,
    Suggestion,
    TraceExpiry,
    TracePage,
    WriteOutcome,
)
from crannog.api.traces.spans import SpanPlace, Trace, TraceComparison, TraceView

Attributes = Mapping[str, Value | Sequence[Value]]


class Traces:
    """The traces of a lake. Thread-safe."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def within(self, *, timeout_s: float | None = None, query_id: str | None = None) -> Traces:
        """Return the same traces with a time limit for each call, or with an id by which `cancel` ends it.

        By default every read, search and metric query raises TimedOut after `sql_timeout_s`, as SQL queries do.
        """
        checked_id = None if query_id is None else checked_query_id(query_id)
        return Traces(self._transport.within(checked_timeout(timeout_s), checked_id))

    def cancel(self, query_id: str) -> None:
        """Cancel a running or waiting call, which then raises Cancelled. Raises NotFound if no call has this id."""
        self._transport.cancel(query_id)

    # -- writing -----------------------------------------------------------------------------------------------------

    def write_otlp(self, body: bytes, *, content_type: str = PROTOBUF, encoding: str | None = None) -> WriteOutcome:
        """Store the spans of an OTLP request; they are durable and visible when it returns.

        A request that is sent again is stored once. Invalid spans are rejected, the others are stored. Raises CallerError
        if the body is invalid and TooLarge if it is too large: do not send it again. Raises Overloaded or Unavailable if
        nothing was acknowledged: send it again later.
        """
        return self._transport.call(ops.WRITE, ops.WriteSpans(body, content_type, encoding))

    def write_zipkin(self, body: bytes, *, encoding: str | None = None) -> WriteOutcome:
        """Store the spans of Zipkin v2 JSON, an array; otherwise as `write_otlp`."""
        return self.write_otlp(body, content_type=ZIPKIN, encoding=encoding)

    # -- reading -----------------------------------------------------------------------------------------------------

    def get(self, trace_id: str) -> Trace:
        """Return a trace by its id, of any age, with the newest copy of each span.

        Raises CallerError if the id is malformed, NotFound if no span has it.
        """
        return self._transport.call(ops.GET, ops.TraceById(trace_id))

    def services(self) -> list[str]:
        """Return the names of all services, sorted; at most 10,000."""
        return self._transport.call(ops.SERVICES, ops.ServiceQuery())

    def operations(self, service: str, kind: str | None = None) -> list[str]:
        """Return the operation names of a service, all or those of one span kind, sorted; at most 10,000."""
        pairs = self.operations_by_kind(service)
        return list(dict.fromkeys(name for name, of_kind in pairs if kind is None or of_kind == kind))

    def operations_by_kind(self, service: str) -> list[tuple[str, str | None]]:
        """Return the operations of a service, each with each of its kinds, sorted; at most 10,000."""
        return self._transport.call(ops.OPERATIONS_BY_KIND, ops.OperationQuery(service))

    def export(self, trace_ids: Sequence[str]) -> dict[str, Any]:
        """Return traces as one OTLP request in JSON, as they were received.

        Raises NotFound if a trace does not exist, TooLarge if one has more than `trace_spans_limit` spans: use
        `export_lines` for those.
        """
        return self._transport.call(ops.EXPORT, ops.ExportTraces(trace_ids))

    def export_protobuf(self, trace_ids: Sequence[str]) -> bytes:
        """Return traces as one OTLP request in protobuf, which `write_otlp` accepts."""
        return self._transport.call(ops.EXPORT_PROTOBUF, ops.ExportTraces(trace_ids))

    def export_lines(self, trace_ids: Sequence[str]) -> Generator[str, None, None]:
        """Yield traces of any size as lines of OTLP requests in JSON, each with up to 5,000 spans of one trace.

        The traces keep the order of `trace_ids`, with each span once. Lines are read on demand: read all of them, or close
        the generator. Raises NotFound before the first line if a trace does not exist.
        """
        return self._transport.lines(ops.EXPORT_LINES, ops.ExportTraces(trace_ids))

    def download(self, trace_id: str, format: str = "otlp") -> Generator[str, None, None]:
        """Yield the lines of a JSON document with a trace of any size, for other viewers.

        `format` is "otlp", "jaeger" (a file for Jaeger's UI) or "perfetto" (Chrome trace events, for ui.perfetto.dev). Lines are
        read on demand: read all of them, or close the generator. Raises NotFound if there is no such trace.
        """
        return self._transport.lines(ops.DOWNLOAD, ops.DownloadTrace(trace_id=trace_id, format=format))

    # -- searching ---------------------------------------------------------------------------------------------------

    def search(
        self,
        service: str | None = None,
        operation: str | None = None,
        text: str | None = None,
        attributes: Attributes | None = None,
        where: str | None = None,
        has_errors: bool | None = None,
        min_duration_ms: float | None = None,
        max_duration_ms: float | None = None,
        start: Time | None = None,
        end: Time | None = None,
        limit: int = 50,
        cursor: str | None = None,
        *,
        order: str = "newest",
        count: bool = False,
    ) -> TracePage:
        """Return a page of the traces that have a span which matches `where` and all other span arguments.

        Those are `service`, `operation`, `text` (words in any case), `attributes`, and `start` and `end`, between which the
        span starts, the end excluded (nanoseconds, datetimes or ISO text). `has_errors` and the durations apply to the whole
        trace. `order` is newest, oldest, longest, shortest, most_spans or most_errors. `count` also counts all matches.
        Raises CallerError if an argument is invalid or the cursor belongs to another search.
        """
        query = ops.TraceQuery(
            service=service, operation=operation, text=text, attributes=attributes, where=where, start=start, end=end,
            has_errors=has_errors, min_duration_ms=min_duration_ms, max_duration_ms=max_duration_ms,
            limit=limit, cursor=cursor, order=order, count=count,
        )  # fmt: skip
        return self._transport.call(ops.SEARCH, query)

    def search_spans(
        self,
        service: str | None = None,
        operation: str | None = None,
        text: str | None = None,
        attributes: Attributes | None = None,
        where: str | None = None,
        start: Time | None = None,
        end: Time | None = None,
        limit: int = 50,
        cursor: str | None = None,
        *,
        order: str = "newest",
        count: bool = False,
    ) -> SpanPage:
        """Return a page of the spans that match all arguments; `order` is newest, oldest, longest or shortest."""
        query = ops.SpanQuery(
            service=service, operation=operation, text=text, attributes=attributes, where=where, start=start, end=end,
            limit=limit, cursor=cursor, order=order, count=count,
        )  # fmt: skip
        return self._transport.call(ops.SEARCH_SPANS, query)

    def complete(
        self,
        what: str,
        prefix: str = "",
        *,
        key: str | None = None,
        where: str | None = None,
        limit: int = 20,
        **selection: Any,
    ) -> list[Suggestion]:
        """Suggest names that begin with `prefix` in matching spans: "service", "operation", "key", or "value" of `key`.

        The most frequent come first. The other arguments select spans as in `search_spans`.
        """
        query = ops.CompletionQuery(what=what, prefix=prefix, key=key, where=where, limit=limit, **selection)
        return self._transport.call(ops.COMPLETE, query)

    # -- one trace ---------------------------------------------------------------------------------------------------

    def show(
        self,
        trace_id: str,
        offset: int = 0,
        limit: int = 1_000,
        *,
        depth: int | None = None,
        under: str | None = None,
        around: str | None = None,
    ) -> TraceView:
        """Return a window of a trace's tree: `limit` spans from `offset` on, with self times and the critical path.

        `depth` leaves out deeper spans, `under` all spans outside the subtree of a span. `around` chooses the offset so that
        the window has a span in it, with two fifths of the window before it. Raises CallerError if an argument is invalid,
        NotFound if there is no such trace or span.
        """
        query = ops.WindowQuery(trace_id=trace_id, offset=offset, limit=limit, depth=depth, under=under, around=around)
        return self._transport.call(ops.SHOW, query)

    def place(self, trace_id: str, span_id: str) -> SpanPlace:
        """Return the row number of a span in the order of `show`, and its ancestors.

        Raises CallerError if an id is malformed, NotFound if there is no such trace or span.
        """
        return self._transport.call(ops.PLACE, ops.PlaceQuery(trace_id=trace_id, span_id=span_id))

    def find(
        self,
        trace_id: str,
        text: str | None = None,
        *,
        where: str | None = None,
        limit: int = 100_000,
        **selection: Any,
    ) -> TraceMatches:
        """Return the row numbers of the spans of a trace that match, and of their ancestors.

        The arguments select spans as in `search_spans`, at least one is needed. With more than `limit` matches, the first
        in tree order are returned. Raises CallerError if an argument is invalid, NotFound if there is no such trace.
        """
        query = ops.FindQuery(trace_id=trace_id, text=text, where=where, limit=limit, **selection)
        return self._transport.call(ops.FIND, query)

    def skeleton(self, trace_id: str, *, limit: int = 2_000_000) -> Skeleton:
        """Return a whole trace as columns, in the order of `show`: depth, start, duration, name, service and flags.

        Raises TooLarge if the trace has more than `limit` spans, NotFound if there is no such trace.
        """
        return self._transport.call(ops.SKELETON, ops.SkeletonQuery(trace_id=trace_id, limit=limit))

    def compare(self, before: str, after: str, limit: int = 1_000, *, tolerance: float = 0.0) -> TraceComparison:
        """Compare two traces by their paths of services and operations: added, removed, slower or faster."""
        query = ops.ComparisonQuery(before=before, after=after, limit=limit, tolerance=tolerance)
        return self._transport.call(ops.COMPARE, query)

    # -- metrics -----------------------------------------------------------------------------------------------------

    def metrics(
        self,
        service: str | None = None,
        operation: str | None = None,
        kind: str | None = None,
        start: Time | None = None,
        end: Time | None = None,
        step: str = "1m",
        group_by: Sequence[str] | str | None = None,
        where: str | Attributes | None = None,
        *,
        of: str = "spans",
        quantiles: Sequence[float] = (),
    ) -> list[MetricPoint]:
        """Return the count, rate, errors and latencies of spans, by time and by fields or attributes.

        Spans start at or after `start` and before `end`: nanoseconds, datetimes or ISO text. `step` is from "1s" to "1y",
        `where` is a filter, or attributes that a span must have. `of="traces"` measures whole traces that have a matching
        span, grouped by their root spans. `quantiles` adds quantiles. Raises CallerError if an argument is invalid or the
        result has too many points.
        """
        query = ops.MetricQuery(
            service=service, operation=operation, kind=kind, start=start, end=end, step=step, group_by=group_by,
            where=where, of=of, quantiles=quantiles,
        )  # fmt: skip
        return self._transport.call(ops.METRICS, query)

    def heatmap(
        self,
        *,
        times: int = 60,
        min_duration_ms: float | None = None,
        max_duration_ms: float | None = None,
        **selection: Any,
    ) -> Heatmap:
        """Return counts of spans by start and duration, with examples.

        The other arguments select spans as in `search_spans`; without `start` or `end`, the range is that of the spans. It is
        divided into `times` parts.
        """
        query = ops.HeatmapQuery(
            times=times, min_duration_ms=min_duration_ms, max_duration_ms=max_duration_ms, **selection
        )
        return self._transport.call(ops.HEATMAP, query)

    def differences(
        self,
        selected: str | None = None,
        *,
        selected_start: Time | None = None,
        selected_end: Time | None = None,
        min_duration_ms: float | None = None,
        max_duration_ms: float | None = None,
        limit: int = 50,
        values: int = 10,
        **selection: Any,
    ) -> Differences:
        """Return what distinguishes the selected spans from the others, the most different key first.

        `selected` (a filter) and the bounds on start and duration choose the selected spans; the others are all spans that
        match the other arguments, which are those of `search_spans`. `limit` is the number of keys, `values` that of each key's
        values.
        """
        query = ops.DifferenceQuery(
            selected=selected, selected_start=selected_start, selected_end=selected_end,
            min_duration_ms=min_duration_ms, max_duration_ms=max_duration_ms, limit=limit, values=values, **selection,
        )  # fmt: skip
        return self._transport.call(ops.DIFFERENCES, query)

    def dependencies(self, start: Time | None = None, end: Time | None = None) -> list[Dependency]:
        """Return which services call which, how often and with how many errors, in whole minutes."""
        return self._transport.call(ops.DEPENDENCIES, ops.DependencyQuery(start=start, end=end))

    def attribute_keys(self, first: dt.date | None = None, last: dt.date | None = None) -> list[AttributeKey]:
        """Return the attribute keys of spans from day `first` to `last`, most used first; at most 10,000."""
        return self._transport.call(ops.ATTRIBUTE_KEYS, ops.AttributeKeyQuery(first=first, last=last))

    # -- language models -----------------------------------------------------------------------------------------------

    def sessions(self, where: str | None = None, *, offset: int = 0, limit: int = 50, **selection: Any) -> SessionPage:
        """Return sessions (conversations) that have a matching span, the last active first.

        The arguments select spans as in `search_spans`. The spans of a session are those with its id, and the others of their
        traces that have no session.
        """
        query = ops.SessionQuery(where=where, offset=offset, limit=limit, **selection)
        return self._transport.call(ops.SESSIONS, query)

    def usage(
        self, step: str | None = None, group_by: Sequence[str] | str | None = None, **selection: Any
    ) -> list[UsagePoint]:
        """Return calls to language models with their tokens and cost, by time (`step`, as in `metrics`) and group.

        `group_by` takes fields such as "model", "user", "session" and "service", or attributes; the other arguments select spans
        as in `search_spans`. A call without a user or session has that of its trace.
        """
        return self._transport.call(ops.USAGE, ops.UsageQuery(step=step, group_by=group_by, **selection))

    def messages(
        self, trace_id: str, span_id: str | None = None, *, offset: int = 0, limit: int = 100, max_chars: int = 20_000
    ) -> TraceMessages:
        """Return the messages of the spans of a trace, or of one span, in one form for all conventions.

        Texts of more than `max_chars` characters are cut. Raises CallerError if an argument is invalid, NotFound if there is no
        such trace or span.
        """
        query = ops.MessageQuery(trace_id=trace_id, span_id=span_id, offset=offset, limit=limit, max_chars=max_chars)
        return self._transport.call(ops.MESSAGES, query)

    # -- maintenance -------------------------------------------------------------------------------------------------

    def derive(
        self,
        anew: Sequence[dt.date] = (),
        *,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> DeriveReport:
        """Fold staged spans and update the derived tables with Spark; days in `anew` are recomputed from all their spans."""
        return self._transport.run(ops.DERIVE, ops.DeriveTables(anew=anew), progress, cancellation)

    def expire(
        self,
        before: dt.date,
        service: str | Sequence[str] | None = None,
        *,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> TraceExpiry:
        """Drop the spans, of all or some services, that started before a day in UTC, and everything derived from them."""
        return self._transport.run(ops.EXPIRE, ops.ExpireTraces(before=before, service=service), progress, cancellation)

    def erasure_plan(
        self, trace_ids: Sequence[str] | None = None, where: str | Attributes | None = None
    ) -> ErasurePlan:
        """Return what `erase` would erase, without changes."""
        selection = ops.EraseTraces(trace_ids=trace_ids, where=where, dry_run=True)
        return self._transport.call(ops.ERASURE_PLAN, selection)

    def erase(
        self,
        trace_ids: Sequence[str] | None = None,
        where: str | Attributes | None = None,
        *,
        actor: str = "",
        reason: str = "",
        erasure_id: str | None = None,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> ErasureReceipt:
        """Erase whole traces permanently: those of `trace_ids`, or those with a span that matches `where`.

        Derived data is erased too. Raises NotFound if there are none, VerificationFailed if something can still be read.
        The receipt is kept, together with those of tables that were erased with the same `erasure_id`.
        """
        checked_erasure_id(erasure_id)
        selection = ops.EraseTraces(trace_ids=trace_ids, where=where, actor=actor, reason=reason, erasure_id=erasure_id)
        return self._transport.run(ops.ERASE, selection, progress, cancellation)
