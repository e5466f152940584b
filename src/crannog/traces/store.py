"""The trace store of a warehouse: carries out the operations on traces with the span table and the derived tables."""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import fields
from typing import Any, TypeVar

import pyarrow as pa

from crannog.api.operations import Operation, Q, R
from crannog.api.reports import Cancellation, ErasureReceipt, Progress
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
    Traces,
    TraceSummary,
    TraceView,
    WriteOutcome,
)
from crannog.api.traces import requests as ops
from crannog.api.traces.requests import (
    AttributeKeyQuery,
    ComparisonQuery,
    CompletionQuery,
    DependencyQuery,
    DeriveTables,
    EraseTraces,
    ExpireTraces,
    ExportTraces,
    MetricQuery,
    OperationQuery,
    ServiceQuery,
    SpanQuery,
    SpanSelection,
    TraceById,
    TraceQuery,
    WindowQuery,
    WriteSpans,
)
from crannog.engine.maintenance.fold import fold
from crannog.engine.maintenance.job import progress_range
from crannog.engine.maintenance.key_search import Copies
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.engine.sql.running_queries import RunningQueries
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.errors import CallerError, NotFound, TooLarge, Unavailable
from crannog.protocol.staged_files import BYTES_PER_CHANGE, Change
from crannog.traces import export, lookup, query_scope, retention, span_metadata
from crannog.traces.derived.derive import derive
from crannog.traces.derived.views import DerivedViews
from crannog.traces.ingest.decode import json_of_request, read_request
from crannog.traces.jaeger.requests import with_attributes
from crannog.traces.jaeger.summaries import JaegerSummary, summaries
from crannog.traces.lookup import newest_copies, rows_of_trace
from crannog.traces.metric_query import metric_query
from crannog.traces.metrics import metrics
from crannog.traces.search.completion import complete
from crannog.traces.search.filter_tree import Filter
from crannog.traces.search.request import (
    SPAN_ORDERS,
    SearchRequest,
    checked_limit,
    checked_order,
    search_request,
    span_filter,
)
from crannog.traces.search.span_search import search_spans
from crannog.traces.search.trace_search import search
from crannog.traces.span_table import SCHEMA, SPANS, existing_spans, open_spans, parse_trace_id
from crannog.traces.trace import SPAN_COLUMNS, spans_in_tree_order
from crannog.traces.tree_views import TraceOrSpanMissing, TreeAnalysis, TreeCache, compare_trees, trace_view

_MAX_NAMES = 10_000
_NO_ROWS = SCHEMA.empty_table()
T = TypeVar("T")


class TraceStore:
    """Writes and reads the span table, which is created when the first span arrives. Safe for threads.

    The transport of `api.traces.Traces` inside the process.
    """

    def __init__(
        self, warehouse: Warehouse, tables: Tables, copies: Callable[[], Copies | None] = lambda: None
    ) -> None:
        """`copies` returns the in-memory copies of tables, which an erasure has to search."""
        self._copies = copies
        self._warehouse = warehouse
        self._tables = tables
        self._views = DerivedViews(tables)
        self._trees = TreeCache()
        # Separate from SQL queries, so that neither waits for the other.
        self._running = RunningQueries(warehouse.settings)
        self._query_id: str | None = None
        self._timeout_s: float | None = None

    # -- the transport ------------------------------------------------------------------------------------------------

    def call(self, operation: Operation[Q, R], request: Q) -> R:
        """Carry out an operation."""
        result: R = _CALLS[operation](self, request)
        return result

    def run(
        self, operation: Operation[Q, R], request: Q, progress: Progress | None, cancellation: Cancellation | None
    ) -> R:
        """Carry out a long job."""
        result: R = _JOBS[operation](self, request, progress, cancellation)
        return result

    def lines(self, operation: Operation[Q, str], request: Q) -> Generator[str, None, None]:
        """Yield the lines of an export."""
        assert isinstance(request, ExportTraces)
        return self.export_lines(request)

    def within(self, timeout_s: float | None, query_id: str | None) -> TraceStore:
        """Return the same store with a time limit for each call, and an id by which `cancel` ends it."""
        limited = copy.copy(self)
        limited._timeout_s, limited._query_id = timeout_s, query_id
        return limited

    def cancel(self, query_id: str) -> None:
        """Cancel a running or waiting call. Raises NotFound if no call has this id."""
        self._running.cancel(query_id)

    def query_scope(self) -> AbstractContextManager[None]:
        """Treat all reads in a block as one call, with one time limit and one id."""
        return query_scope.scope(self._running, self._query_id, self._timeout_s)

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, request: WriteSpans) -> WriteOutcome:
        limit = self._warehouse.settings.otlp_request_bytes
        received = read_request(
            bytes(request.body), content_type=request.content_type, encoding=request.encoding, limit=limit
        )
        batch_id = "otlp-" + hashlib.sha256(received.body).hexdigest()
        duplicate = (
            self._on(lambda table: self._stage_in_parts(table, received.rows, batch_id))
            if received.rows.num_rows
            else False
        )
        return WriteOutcome(received.rows.num_rows, received.rejected.count, received.rejected.message, duplicate)

    def _stage_in_parts(self, table: OpenTable, rows: pa.Table, batch_id: str) -> bool:
        """Stage rows, in several changes if one would be too large. Returns True if all of them were stored before."""
        limit = self._warehouse.settings.group_commit_rows
        if rows.num_rows <= limit:
            return self._stage(table, rows, batch_id)
        # Each part has its own id, so that a retry finds the parts that were stored before.
        duplicates = [
            self._stage(table, rows.slice(start, limit), f"{batch_id}-{start}")
            for start in range(0, rows.num_rows, limit)
        ]
        return all(duplicates)

    def _stage(self, table: OpenTable, rows: pa.Table, batch_id: str) -> bool:
        # The rows have exactly the table's schema: checking each value again would cost a third of the time.
        size = int(rows.nbytes) + rows.num_rows * 64 + BYTES_PER_CHANGE
        return table.writer.write(Change(batch_id, "append", rows, size, at_us=time.time_ns() // 1000)).duplicate

    @property
    def spans(self) -> OpenTable:
        """The span table, created if it does not exist."""
        return open_spans(self._tables)

    def _spans_to_erase(self) -> OpenTable:
        """Return the span table. Raises NotFound if it does not exist."""
        try:
            return existing_spans(self._tables)
        except NotFound:
            raise NotFound("nothing to erase: this warehouse has no spans yet") from None

    def _on(self, act: Callable[[OpenTable], T]) -> T:
        """Write to the span table, which is created if needed; again if another process dropped it meanwhile."""
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
        """Read from the span table; returns `nothing` if it does not exist, because reads do not create it."""
        with self.query_scope():
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

    def get(self, request: TraceById) -> Trace:
        wanted = parse_trace_id(request.trace_id)
        limit = self._warehouse.settings.trace_spans_limit
        rows = self._rows_of(wanted, limit + 1, SPAN_COLUMNS, exact=False)
        if not rows.num_rows:
            raise _no_trace(wanted)
        truncated = rows.num_rows > limit
        return Trace(wanted.hex(), tuple(spans_in_tree_order(newest_copies(rows.slice(0, limit)))), truncated)

    def get_many(self, trace_ids: Sequence[str]) -> Iterator[Trace]:
        """Yield the traces that exist, in order and as `get` returns them; reads many at once."""
        for trace_id, rows, truncated in self._many(trace_ids, SPAN_COLUMNS):
            yield Trace(trace_id.hex(), tuple(spans_in_tree_order(rows)), truncated)

    def span_counts(self, trace_ids: Sequence[str]) -> dict[str, int]:
        """Return the number of span rows, duplicates included, of each trace that exists."""
        found = lookup.row_counts(self._read, [parse_trace_id(text) for text in trace_ids])
        return {trace_id.hex(): count for trace_id, count in found.items()}

    def jaeger_summaries(self, found: Sequence[TraceSummary]) -> list[JaegerSummary]:
        """Return the summaries for Jaeger's trace list of the traces on a search page, in order."""
        return summaries(self._read, found)

    def _many(self, trace_ids: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[bytes, pa.Table, bool]]:
        """Yield the rows of each trace, each span once, and whether the trace was truncated."""
        limit = self._warehouse.settings.trace_spans_limit
        ids = list(dict.fromkeys(map(parse_trace_id, trace_ids)))
        if len(ids) == 1:  # one alone is found faster
            rows = self._rows_of(ids[0], limit + 1, columns)
            if rows.num_rows:
                yield ids[0], newest_copies(rows.slice(0, limit)), rows.num_rows > limit
            return
        for trace_id, found in lookup.trace_rows(self._read, ids, columns, limit):
            if found is not None:
                yield trace_id, found, False
            else:
                yield trace_id, newest_copies(self._rows_of(trace_id, limit, columns)), True

    def rows_of(self, trace_id: str) -> pa.Table:
        """Return the rows of a trace, each span once, with all columns; for exports."""
        rows = self._rows_of(parse_trace_id(trace_id), self._warehouse.settings.trace_spans_limit, SCHEMA.names)
        return newest_copies(rows).select(SCHEMA.names) if rows.num_rows else rows

    def _rows_of(self, trace_id: bytes, limit: int, columns: Sequence[str], *, exact: bool = True) -> pa.Table:
        def found(table: OpenTable) -> pa.Table:
            return table.newest(
                lambda snapshot: rows_of_trace(table, snapshot, trace_id, columns=columns, limit=limit, exact=exact)
            )

        return self._read(found, _NO_ROWS)

    def services(self, request: ServiceQuery) -> list[str]:
        return self._read(lambda table: span_metadata.services(table, limit=_MAX_NAMES), [])

    def operations_by_kind(self, request: OperationQuery) -> list[tuple[str, str | None]]:
        return self._read(lambda table: span_metadata.operations(table, request.service, limit=_MAX_NAMES), [])

    def export(self, request: ExportTraces) -> dict[str, Any]:
        return json_of_request(self._request_of(request.trace_ids))

    def export_protobuf(self, request: ExportTraces) -> bytes:
        return bytes(self._request_of(request.trace_ids).SerializeToString())

    def export_lines(self, request: ExportTraces) -> Generator[str, None, None]:
        """Yield OTLP requests in JSON. A trace's spans are sorted by start, or in stored order if there are over 50,000."""
        ids = list(dict.fromkeys(map(parse_trace_id, request.trace_ids)))
        lines = query_scope.stream_in_scope(self._running, self._query_id, self._timeout_s, self._lines(ids))
        next(lines)  # raises errors of the request here
        return lines

    def _lines(self, ids: Sequence[bytes]) -> Generator[str, None, None]:
        """Yield an empty line once all traces are found, then the lines."""
        with ExitStack() as stack:
            found = self._read_now(
                lambda table: table.newest(lambda snapshot: export.open_export(table, snapshot, ids, stack)),
                None,
            )
            for trace_id in ids:
                if found is None or trace_id not in found.counts:
                    raise _no_trace(trace_id)
            yield ""
            if found is not None:
                yield from found.lines()

    def _request_of(self, trace_ids: Sequence[str]) -> Any:
        found: dict[bytes, pa.Table] = {}
        with self.query_scope():
            for trace_id, rows, truncated in self._many(trace_ids, SCHEMA.names):
                if truncated:
                    raise TooLarge(
                        f"trace {trace_id.hex()} has more than {self._warehouse.settings.trace_spans_limit:,} spans, the"
                        " limit of one request: export it as lines (NDJSON), or raise `trace_spans_limit`"
                    )
                found[trace_id] = rows.select(SCHEMA.names)
        for trace_id in map(parse_trace_id, trace_ids):
            if trace_id not in found:
                raise _no_trace(trace_id)
        return export.request_of_rows(pa.concat_tables(found.values()) if found else SCHEMA.empty_table())

    # -- search ------------------------------------------------------------------------------------------------------

    def search(self, query: TraceQuery) -> TracePage:
        search_for = search_request(
            _filter_of(query),
            order=query.order,
            has_errors=query.has_errors,
            min_duration_ms=query.min_duration_ms,
            max_duration_ms=query.max_duration_ms,
        )
        size = checked_limit(query.limit)
        nothing = TracePage((), total=0 if query.count else None)
        return self._read(
            lambda table: search(table, search_for, limit=size, cursor=query.cursor, count=query.count), nothing
        )

    def search_spans(self, query: SpanQuery) -> SpanPage:
        search_for = SearchRequest(_filter_of(query), checked_order(query.order, SPAN_ORDERS))
        size = checked_limit(query.limit)
        nothing = SpanPage((), total=0 if query.count else None)
        return self._read(
            lambda table: search_spans(table, search_for, limit=size, cursor=query.cursor, count=query.count), nothing
        )

    def complete(self, query: CompletionQuery) -> list[Suggestion]:
        filter, size = _filter_of(query), checked_limit(query.limit)
        return self._read(
            lambda table: complete(table, query.what, query.prefix, key=query.key, filter=filter, limit=size), []
        )

    # -- trees -------------------------------------------------------------------------------------------------------

    def show(self, query: WindowQuery) -> TraceView:
        wanted, size = parse_trace_id(query.trace_id), checked_limit(query.limit)
        for name, value in (("offset", query.offset), ("depth", query.depth)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise CallerError(f"{name} must be an integer of 0 or more, got {value!r}")

        def window(table: OpenTable) -> TraceView:
            return table.newest(
                lambda snapshot: trace_view(
                    table,
                    snapshot,
                    self._tree(table, snapshot, wanted),
                    offset=query.offset,
                    limit=size,
                    depth=query.depth,
                    under=query.under,
                )
            )

        return self._found_or_raise(window, wanted)

    def compare(self, query: ComparisonQuery) -> TraceComparison:
        ids = (parse_trace_id(query.before), parse_trace_id(query.after))
        size, tolerance = checked_limit(query.limit), query.tolerance
        if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance < 1e9:
            raise CallerError(f"tolerance must be a fraction of 0 or more, got {tolerance!r}")

        def both(table: OpenTable) -> TraceComparison:
            def trees(snapshot: Snapshot) -> TraceComparison:
                old, new = (self._tree(table, snapshot, trace_id).tree for trace_id in ids)
                return compare_trees(old, new, limit=size, tolerance=tolerance)

            return table.newest(trees)

        return self._found_or_raise(both, ids[0])

    def _found_or_raise(self, act: Callable[[OpenTable], T], trace_id: bytes) -> T:
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

    # -- metrics -----------------------------------------------------------------------------------------------------

    def metrics(self, query: MetricQuery) -> list[MetricPoint]:
        checked = metric_query(**{field.name: getattr(query, field.name) for field in fields(query)})
        return self._read(lambda table: metrics(self._views, table, checked), [])

    def dependencies(self, query: DependencyQuery) -> list[Dependency]:
        return self._read(lambda table: span_metadata.dependencies(self._views, table, query.start, query.end), [])

    def attribute_keys(self, query: AttributeKeyQuery) -> list[AttributeKey]:
        return self._read(
            lambda table: span_metadata.attribute_keys(self._views, table, query.first, query.last, limit=_MAX_NAMES),
            [],
        )

    # -- retention ---------------------------------------------------------------------------------------------------

    def derive(
        self, request: DeriveTables, progress: Progress | None, cancellation: Cancellation | None
    ) -> DeriveReport:
        table = self.spans
        fold(table, progress=progress_range(progress, 0, 0.4), cancellation=cancellation)
        return derive(
            self._tables, table, anew=request.anew, progress=progress_range(progress, 0.4, 1), cancellation=cancellation
        )

    def expire(
        self, request: ExpireTraces, progress: Progress | None, cancellation: Cancellation | None
    ) -> TraceExpiry:
        return retention.expire(
            self._tables,
            self.spans,
            request.before,
            service=request.service,
            progress=progress,
            cancellation=cancellation,
        )

    def erasure_plan(self, request: EraseTraces) -> ErasurePlan:
        table = self._spans_to_erase()
        with self.query_scope():
            return retention.plan_erasure(
                table, retention.select_traces(table, trace_ids=request.trace_ids, where=request.where)
            )

    def erase(
        self, request: EraseTraces, progress: Progress | None, cancellation: Cancellation | None
    ) -> ErasureReceipt:
        table = self._spans_to_erase()
        with query_scope.cancelled_by(cancellation):
            traces = retention.select_traces(table, trace_ids=request.trace_ids, where=request.where)
        return retention.erase(
            self._tables,
            table,
            traces,
            actor=request.actor,
            reason=request.reason,
            copies=self._copies(),
            progress=progress,
            cancellation=cancellation,
        )


class EmbeddedTraces(Traces):
    """The traces of a warehouse in this process; the server also uses `store` directly."""

    def __init__(self, store: TraceStore) -> None:
        super().__init__(store)
        self.store = store


_CALLS: dict[Operation[Any, Any], Callable[[TraceStore, Any], Any]] = {
    ops.WRITE: TraceStore.write,
    ops.GET: TraceStore.get,
    ops.SERVICES: TraceStore.services,
    ops.OPERATIONS_BY_KIND: TraceStore.operations_by_kind,
    ops.EXPORT: TraceStore.export,
    ops.EXPORT_PROTOBUF: TraceStore.export_protobuf,
    ops.SEARCH: TraceStore.search,
    ops.SEARCH_SPANS: TraceStore.search_spans,
    ops.COMPLETE: TraceStore.complete,
    ops.SHOW: TraceStore.show,
    ops.COMPARE: TraceStore.compare,
    ops.METRICS: TraceStore.metrics,
    ops.DEPENDENCIES: TraceStore.dependencies,
    ops.ATTRIBUTE_KEYS: TraceStore.attribute_keys,
    ops.ERASURE_PLAN: TraceStore.erasure_plan,
}
_JOBS: dict[Operation[Any, Any], Callable[[TraceStore, Any, Progress | None, Cancellation | None], Any]] = {
    ops.DERIVE: TraceStore.derive,
    ops.EXPIRE: TraceStore.expire,
    ops.ERASE: TraceStore.erase,
}


def _filter_of(selection: SpanSelection) -> Filter:
    """Combine the arguments of a search into one filter."""
    return span_filter(
        service=selection.service,
        operation=selection.operation,
        text=selection.text,
        attributes=selection.attributes,
        where=with_attributes(selection.where, selection.attribute_pairs),
        start=selection.start,
        end=selection.end,
    )


def _no_trace(trace_id: bytes) -> NotFound:
    return NotFound(f"trace {trace_id.hex()} not found: no span with this id was received, or it has expired")
