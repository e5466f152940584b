"""The traces of a warehouse: spans in, durable when acknowledged; traces, services and operations out."""

from __future__ import annotations

import copy
import datetime as dt
import hashlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

import pyarrow as pa

from crannog.api.arguments import checked_query_id, checked_timeout
from crannog.api.cancellation import Cancellation
from crannog.api.reports import ErasureReceipt, Progress
from crannog.api.traces import (
    AttributeKey,
    Dependency,
    DeriveReport,
    ErasurePlan,
    MetricPoint,
    SpanPage,
    Suggestion,
    Trace,
    TraceComparison,
    TraceExpiry,
    TracePage,
    TraceSummary,
    TraceView,
    WriteOutcome,
)
from crannog.engine.maintenance.fold import fold
from crannog.engine.maintenance.job import part_of
from crannog.engine.maintenance.key_search import Copies
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.engine.sql.running_queries import RunningQueries
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.errors import CallerError, NotFound, TooLarge, Unavailable
from crannog.protocol.staged_files import BYTES_PER_CHANGE, Change
from crannog.traces import export_stream, many_traces, query_scope, retention, service_names
from crannog.traces.derived.attribute_catalog import attribute_keys
from crannog.traces.derived.derive import derive
from crannog.traces.derived.views import DerivedViews
from crannog.traces.ids import parse_trace_id
from crannog.traces.ingest.receive import PROTOBUF, ZIPKIN, read_request
from crannog.traces.jaeger.summaries import JaegerSummary, summaries
from crannog.traces.lookup import newest_copies, rows_of_trace
from crannog.traces.metrics.dependencies import dependencies
from crannog.traces.metrics.metrics import metric_query, metrics
from crannog.traces.search.completion import complete
from crannog.traces.search.pages import search
from crannog.traces.search.request import (
    SPAN_ORDERS,
    SearchRequest,
    checked_limit,
    checked_order,
    search_request,
    span_filter,
)
from crannog.traces.search.span_search import search_spans
from crannog.traces.span_table import SCHEMA, SPANS, existing_spans, open_spans
from crannog.traces.trace import SPAN_COLUMNS, in_tree_order, span_from_row
from crannog.traces.tree.compare import compare_trees
from crannog.traces.tree.tree_cache import TreeCache
from crannog.traces.tree.window import TraceOrSpanMissing, TreeAnalysis, trace_view

_MOST_NAMES = 10_000
_NO_ROWS = SCHEMA.empty_table()
T = TypeVar("T")


class Traces:
    """Writes and reads the span table, which is made when the first span comes. Safe for threads."""

    def __init__(
        self, warehouse: Warehouse, tables: Tables, copies: Callable[[], Copies | None] = lambda: None
    ) -> None:
        """`copies` gives the copies of tables in memory, for an erasure to look into."""
        self._copies = copies
        self._warehouse = warehouse
        self._tables = tables
        self._views = DerivedViews(tables)
        self._trees = TreeCache()
        # Apart from those of SQL: neither waits for its turn behind the other.
        self._running = RunningQueries(warehouse.settings)
        self._query_id: str | None = None
        self._timeout_s: float | None = None

    # -- limits ------------------------------------------------------------------------------------------------------

    def within(self, *, timeout_s: float | None = None, query_id: str | None = None) -> Traces:
        """Return the same traces for questions that may take so long, or that `cancel` can end by an id of the caller's.

        Every read, search and metric has `sql_timeout_s`, as a query of SQL has; beyond, it raises TimedOut.
        """
        limited = copy.copy(self)
        limited._timeout_s = checked_timeout(timeout_s)
        limited._query_id = None if query_id is None else checked_query_id(query_id)
        return limited

    def cancel(self, query_id: str) -> None:
        """End a question that runs or waits, which raises Cancelled; NotFound if there is none by this id."""
        self._running.cancel(query_id)

    def question(self) -> AbstractContextManager[None]:
        """Take all that is asked in a block for one question, with one time and one id."""
        return query_scope.scope(self._running, self._query_id, self._timeout_s)

    # -- writing -----------------------------------------------------------------------------------------------------

    def write_otlp(self, body: bytes, *, content_type: str = PROTOBUF, encoding: str | None = None) -> WriteOutcome:
        """Keep the spans of an OTLP request; durable and visible when it returns.

        The same request again is kept once. Spans that cannot be kept are rejected one by one, the others are kept.
        Raises CallerError if the body cannot be read and TooLarge if it is too large (do not send it again),
        Overloaded and Unavailable if it may be sent again later; then nothing of it is acknowledged.
        """
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise CallerError(f"the body of a request is bytes, got {type(body).__name__}")
        limit = self._warehouse.settings.otlp_request_bytes
        got = read_request(bytes(body), content_type=content_type, encoding=encoding, limit=limit)
        batch_id = "otlp-" + hashlib.sha256(got.body).hexdigest()
        duplicate = self._on(lambda table: self._keep(table, got.rows, batch_id)) if got.rows.num_rows else False
        return WriteOutcome(got.rows.num_rows, got.rejected.count, got.rejected.message, duplicate)

    def write_zipkin(self, body: bytes, *, encoding: str | None = None) -> WriteOutcome:
        """Keep the spans of Zipkin's v2 JSON, an array; as `write_otlp` otherwise."""
        return self.write_otlp(body, content_type=ZIPKIN, encoding=encoding)

    def _keep(self, table: OpenTable, rows: pa.Table, batch_id: str) -> bool:
        """Stage rows, in as many changes as the limit of one asks for; True if all of them were there already."""
        most = self._warehouse.settings.group_commit_rows
        if rows.num_rows <= most:
            return self._stage(table, rows, batch_id)
        # Each part has an id of its own: a retry after half of them finds that half.
        kept = [
            self._stage(table, rows.slice(start, most), f"{batch_id}-{start}")
            for start in range(0, rows.num_rows, most)
        ]
        return all(kept)

    def _stage(self, table: OpenTable, rows: pa.Table, batch_id: str) -> bool:
        # The rows were made in exactly the table's form: to check each value again would cost a third of the time.
        size = int(rows.nbytes) + rows.num_rows * 64 + BYTES_PER_CHANGE
        return table.writer.write(Change(batch_id, "append", rows, size, at_us=time.time_ns() // 1000)).duplicate

    @property
    def spans(self) -> OpenTable:
        """The span table, made if there is none yet."""
        return open_spans(self._tables)

    def _kept_spans(self) -> OpenTable:
        """Return the span table for what makes none; NotFound while there is none."""
        try:
            return existing_spans(self._tables)
        except NotFound:
            raise NotFound("nothing to erase: no spans were kept here yet") from None

    def _on(self, act: Callable[[OpenTable], T]) -> T:
        """Do something with the span table, made if need be; again if another process dropped it meanwhile."""
        try:
            return act(self.spans)
        except (NotFound, FileNotFoundError):
            self._tables.forget(SPANS)
        try:
            return act(self.spans)
        except FileNotFoundError as error:
            raise Unavailable(f"a file of {SPANS} is gone: {error.filename}; try again", retry_after_s=1.0) from error

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, act: Callable[[OpenTable], T], nothing: T) -> T:
        """Read from the span table; `nothing` while there is none, since reading makes none."""
        with self.question():
            return self._read_now(act, nothing)

    def _read_now(self, act: Callable[[OpenTable], T], nothing: T) -> T:
        try:
            table = existing_spans(self._tables)
        except NotFound:
            return nothing
        try:
            return act(table)
        except (NotFound, FileNotFoundError):
            self._tables.forget(SPANS)
        try:
            return act(existing_spans(self._tables))
        except (NotFound, FileNotFoundError):
            return nothing

    def get(self, trace_id: str) -> Trace:
        """Return a trace by its id, at any age; each span once, the newest if it was sent again in another form.

        Raises CallerError if the id is none, NotFound if no span has it.
        """
        wanted = parse_trace_id(trace_id)
        limit = self._warehouse.settings.trace_spans_limit
        rows = self._rows_of(wanted, limit + 1, SPAN_COLUMNS, exact=False)
        if not rows.num_rows:
            raise _no_trace(wanted)
        truncated = rows.num_rows > limit
        spans = in_tree_order(span_from_row(row) for row in newest_copies(rows.slice(0, limit)).to_pylist())
        return Trace(wanted.hex(), tuple(spans), truncated)

    def get_many(self, trace_ids: Sequence[str]) -> Iterator[Trace]:
        """Yield those of these traces that there are, in order and each as `get` gives it; read many at once."""
        for trace_id, rows, truncated in self._many(trace_ids, SPAN_COLUMNS):
            yield Trace(trace_id.hex(), tuple(in_tree_order(map(span_from_row, rows.to_pylist()))), truncated)

    def span_counts(self, trace_ids: Sequence[str]) -> dict[str, int]:
        """Return how many spans each of these traces has, those that were sent again counted again; without those that are not there."""
        found = many_traces.row_counts(self._read, [parse_trace_id(text) for text in trace_ids])
        return {trace_id.hex(): count for trace_id, count in found.items()}

    def jaeger_summaries(self, found: Sequence[TraceSummary]) -> list[JaegerSummary]:
        """Return what Jaeger's pages list of the traces of a page of `search`, in order; traces of any size are counted whole."""
        return summaries(self._read, found)

    def _many(self, trace_ids: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[bytes, pa.Table, bool]]:
        """Yield the rows of traces, each span once, and whether there are more than were read."""
        limit = self._warehouse.settings.trace_spans_limit
        ids = list(dict.fromkeys(map(parse_trace_id, trace_ids)))
        if len(ids) == 1:  # one alone is found faster
            rows = self._rows_of(ids[0], limit + 1, columns)
            if rows.num_rows:
                yield ids[0], newest_copies(rows.slice(0, limit)), rows.num_rows > limit
            return
        for each, found in many_traces.trace_rows(self._read, ids, columns, limit):
            yield (
                (each, found, False)
                if found is not None
                else (each, newest_copies(self._rows_of(each, limit, columns)), True)
            )

    def rows_of(self, trace_id: str) -> pa.Table:
        """Return the rows of a trace, each span once, in the columns of the span table; for exports."""
        rows = self._rows_of(parse_trace_id(trace_id), self._warehouse.settings.trace_spans_limit, SCHEMA.names)
        return newest_copies(rows).select(SCHEMA.names) if rows.num_rows else rows

    def _rows_of(self, trace_id: bytes, limit: int, columns: Sequence[str], *, exact: bool = True) -> pa.Table:
        def found(table: OpenTable) -> pa.Table:
            return table.newest(
                lambda of: rows_of_trace(table, of, trace_id, columns=columns, limit=limit, exact=exact)
            )

        return self._read(found, _NO_ROWS)

    def services(self) -> list[str]:
        """Return the names of all services, in order; the first 10,000."""
        return self._read(lambda table: service_names.services(table, limit=_MOST_NAMES), [])

    def operations(self, service: str, kind: str | None = None) -> list[str]:
        """Return the names of a service's operations, in order; the first 10,000. `kind` asks for one kind only."""
        found = self.operations_by_kind(service)
        return list(dict.fromkeys(name for name, of in found if kind is None or of == kind))

    def operations_by_kind(self, service: str) -> list[tuple[str, str | None]]:
        """Return each operation of a service with each kind it has, in order; the first 10,000."""
        return self._read(lambda table: service_names.operations(table, service, limit=_MOST_NAMES), [])

    def export(self, trace_ids: Sequence[str]) -> dict[str, Any]:
        """Return traces as one OTLP request in JSON, as they came in.

        NotFound names one that there is none of, TooLarge one of more than `trace_spans_limit` spans: see `export_lines`.
        """
        from crannog.traces.ingest.otlp_json import json_of_request

        return json_of_request(self._request_of(trace_ids))

    def export_protobuf(self, trace_ids: Sequence[str]) -> bytes:
        """Return traces as one OTLP request in protobuf, which `write_otlp` takes back."""
        return bytes(self._request_of(trace_ids).SerializeToString())

    def export_lines(self, trace_ids: Sequence[str]) -> Generator[str, None, None]:
        """Yield traces of any size as OTLP requests in JSON, one a line: of one trace each, with up to 5,000 spans.

        The traces come in the order asked for, each span once; up to 50,000 spans by their start, more as they are stored.
        They are read while the lines are taken: it is one question until the last line, or until it is closed. NotFound
        names a trace there is none of, before the first line.
        """
        ids = list(dict.fromkeys(map(parse_trace_id, trace_ids)))
        lines = query_scope.stream_in_scope(self._running, self._query_id, self._timeout_s, self._lines(ids))
        next(lines)  # so that what is wrong with the question is told here
        return lines

    def _lines(self, ids: Sequence[bytes]) -> Generator[str, None, None]:
        """Yield an empty line once all is there, then the lines."""
        with ExitStack() as held:
            found = self._read_now(
                lambda table: table.newest(lambda of: export_stream.open_export(table, of, ids, held)), None
            )
            for trace_id in ids:
                if found is None or trace_id not in found.counts:
                    raise _no_trace(trace_id)
            yield ""
            if found is not None:
                yield from found.lines()

    def _request_of(self, trace_ids: Sequence[str]) -> Any:
        from crannog.traces.export import request_of_rows

        found: dict[bytes, pa.Table] = {}
        with self.question():
            for trace_id, rows, truncated in self._many(trace_ids, SCHEMA.names):
                if truncated:
                    raise TooLarge(
                        f"trace {trace_id.hex()} has more spans than one request takes, which would leave some out:"
                        " export it as lines (NDJSON), which take traces of any size,"
                        f" or raise `trace_spans_limit`, now {self._warehouse.settings.trace_spans_limit:,}"
                    )
                found[trace_id] = rows.select(SCHEMA.names)
        for trace_id in map(parse_trace_id, trace_ids):
            if trace_id not in found:
                raise _no_trace(trace_id)
        return request_of_rows(pa.concat_tables(found.values()) if found else SCHEMA.empty_table())

    # -- finding -----------------------------------------------------------------------------------------------------

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
        """Return a page of the traces of which one span meets `where` and all the arguments about a span.

        Those are `service`, `operation`, `text` (words in any case), `attributes`, and `start` and `end` of its start, the
        end excluded (nanoseconds, datetimes or ISO text). `has_errors` and the durations are of the whole trace. `order` is
        newest, oldest, longest, shortest, most_spans or most_errors; `count` also counts all that match. Raises
        CallerError if the question is wrong, or the cursor is of another one.
        """
        filter = span_filter(
            service=service, operation=operation, text=text, attributes=attributes, where=where, start=start, end=end
        )
        question = search_request(
            filter, order=order, has_errors=has_errors, min_duration_ms=min_duration_ms, max_duration_ms=max_duration_ms
        )
        size = checked_limit(limit)
        nothing = TracePage((), total=0 if count else None)
        return self._read(lambda table: search(table, question, limit=size, cursor=cursor, count=count), nothing)

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
        """Return a page of the spans that meet all arguments, as `search`; `order` is newest, oldest, longest or shortest."""
        filter = span_filter(
            service=service, operation=operation, text=text, attributes=attributes, where=where, start=start, end=end
        )
        question, size = SearchRequest(filter, checked_order(order, SPAN_ORDERS)), checked_limit(limit)
        nothing = SpanPage((), total=0 if count else None)
        return self._read(lambda table: search_spans(table, question, limit=size, cursor=cursor, count=count), nothing)

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
        """Suggest what begins with `prefix` in the spans of a filter: "service", "operation", "key", or "value" of `key`.

        The most frequent first. The other arguments are those of `search_spans` that choose spans.
        """
        filter, size = span_filter(where=where, **filter_arguments), checked_limit(limit)
        return self._read(lambda table: complete(table, what, prefix, key=key, filter=filter, limit=size), [])

    # -- showing -----------------------------------------------------------------------------------------------------

    def show(
        self, trace_id: str, offset: int = 0, limit: int = 1_000, *, depth: int | None = None, under: str | None = None
    ) -> TraceView:
        """Return a window of a trace's tree: `limit` spans from `offset` on, with their own time and the critical path.

        `depth` leaves out what is deeper, `under` all but the subtree of a span. Raises CallerError if an argument is
        wrong, NotFound if there is no such trace or span.
        """
        wanted, size = parse_trace_id(trace_id), checked_limit(limit)
        for name, value in (("offset", offset), ("depth", depth)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise CallerError(f"{name} is a whole number, 0 or more, got {value!r}")

        def window(table: OpenTable) -> TraceView:
            return table.newest(
                lambda of: trace_view(
                    table, of, self._tree(table, of, wanted), offset=offset, limit=size, depth=depth, under=under
                )
            )

        return self._shown(window, wanted)

    def compare(self, before: str, after: str, limit: int = 1_000, *, tolerance: float = 0.0) -> TraceComparison:
        """Compare two traces by the paths of services and operations in them: what was added, removed, slower, faster."""
        ids, size = (parse_trace_id(before), parse_trace_id(after)), checked_limit(limit)
        if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance < 1e9:
            raise CallerError(f"tolerance is a share, 0 or more, got {tolerance!r}")

        def both(table: OpenTable) -> TraceComparison:
            def trees(of: Snapshot) -> TraceComparison:
                old, new = (self._tree(table, of, each).tree for each in ids)
                return compare_trees(old, new, limit=size, tolerance=tolerance)

            return table.newest(trees)

        return self._shown(both, ids[0])

    def _shown(self, act: Callable[[OpenTable], T], trace_id: bytes) -> T:
        try:
            found = self._read(act, None)
        except TraceOrSpanMissing as error:
            raise NotFound(str(error)) from None
        if found is None:
            raise _no_trace(trace_id)
        return found

    def _tree(self, table: OpenTable, snapshot: Snapshot, trace_id: bytes) -> TreeAnalysis:
        found = self._trees.get(table, snapshot, trace_id, limit=self._warehouse.settings.trace_tree_spans_limit)
        if found is None:
            raise TraceOrSpanMissing(_no_trace(trace_id).message)
        return found

    # -- numbers -----------------------------------------------------------------------------------------------------

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
        """Return count, rate, errors and latencies of spans, by time and by fields or attributes; staged spans count.

        `start` and `end` bound the start of a span, the end excluded: nanoseconds, datetimes or ISO text. `step` goes
        from "1s" to "1y", `where` is a filter, or attributes that a span must have. With `of="traces"` those of whole
        traces, of which one span meets what is asked; their groups are those of the root. `quantiles` are further
        ones. Raises CallerError if the question is wrong or has too many answers.
        """
        question = metric_query(
            service=service, operation=operation, kind=kind, start=start, end=end, step=step, group_by=group_by, where=where,
            of=of, quantiles=quantiles,
        )  # fmt: skip
        return self._read(lambda table: metrics(self._views, table, question), [])

    def dependencies(self, start: Any = None, end: Any = None) -> list[Dependency]:
        """Return which services call which, how often and with how many errors, in the whole minutes of a time."""
        return self._read(lambda table: dependencies(self._views, table, start, end), [])

    def attribute_keys(self, first: dt.date | None = None, last: dt.date | None = None) -> list[AttributeKey]:
        """Return the attribute keys that spans of some days have, those used most first; the first 10,000."""
        return self._read(lambda table: attribute_keys(self._views, table, first, last, limit=_MOST_NAMES), [])

    # -- keeping -----------------------------------------------------------------------------------------------------

    def derive(
        self,
        anew: Sequence[dt.date] = (),
        *,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> DeriveReport:
        """Fold what is staged and bring the derived tables up to it, with Spark; days in `anew` from all their spans."""
        table = self.spans
        fold(table, progress=part_of(progress, 0, 0.4), cancellation=cancellation)
        return derive(self._tables, table, anew=anew, progress=part_of(progress, 0.4, 1), cancellation=cancellation)

    def expire(
        self,
        before: dt.date,
        service: str | Sequence[str] | None = None,
        *,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> TraceExpiry:
        """Drop the spans that started before a day, UTC, and what is derived from them; with `service`, only theirs."""
        return retention.expire(
            self._tables, self.spans, before, service=service, progress=progress, cancellation=cancellation
        )

    def erasure_plan(
        self, trace_ids: Sequence[str] | None = None, where: str | Mapping[str, Any] | None = None
    ) -> ErasurePlan:
        """Tell what `erase` would erase; changes nothing."""
        table = self._kept_spans()
        with self.question():
            return retention.plan_erasure(table, retention.select_traces(table, trace_ids=trace_ids, where=where))

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
        """Erase whole traces for good: those named, or those with a span that meets a filter; derived tables too.

        Raises NotFound if there are none, VerificationFailed if something is still readable afterwards.
        """
        table = self._kept_spans()
        with query_scope.cancelled_by(cancellation):
            traces = retention.select_traces(table, trace_ids=trace_ids, where=where)
        return retention.erase(
            self._tables,
            table,
            traces,
            actor=actor,
            reason=reason,
            copies=self._copies(),
            progress=progress,
            cancellation=cancellation,
        )


def _no_trace(trace_id: bytes) -> NotFound:
    return NotFound(f"there is no trace {trace_id.hex()}: no span with this id was kept, or it has expired")
