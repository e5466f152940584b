"""The trace store of a warehouse: carries out the operations on traces with the span table and the derived tables."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

from crannog.api.arguments import checked_erasure_id
from crannog.api.operations import AnyOperation, Operation, Q, R
from crannog.api.reports import Cancellation, ErasureReceipt, Progress
from crannog.api.traces import DeriveReport, ErasurePlan, Trace, TraceExpiry, Traces, TraceSummary, WriteOutcome
from crannog.api.traces import requests as ops
from crannog.api.traces.requests import (
    DeriveTables,
    EraseTraces,
    ExpireTraces,
    TraceById,
    WriteSpans,
)
from crannog.engine.maintenance import receipts
from crannog.engine.maintenance.fold import fold
from crannog.engine.maintenance.job import progress_range
from crannog.engine.maintenance.key_search import Copies
from crannog.engine.open_table import OpenTable
from crannog.engine.sql.running_queries import cancelled_by
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.errors import NotFound, Unavailable
from crannog.traces import retention
from crannog.traces.derived.derive import derive
from crannog.traces.downloads import download
from crannog.traces.export import export, export_lines, export_protobuf
from crannog.traces.ingest.span_writer import SpanWriter
from crannog.traces.jaeger.summaries import JaegerSummary, summaries
from crannog.traces.llm.conversations import messages, sessions, usage
from crannog.traces.lookup import row_counts, rows_of_trace, rows_of_traces
from crannog.traces.metrics.differences import differences
from crannog.traces.metrics.heatmaps import heatmap
from crannog.traces.metrics.metrics import metrics
from crannog.traces.search.span_search import search_spans
from crannog.traces.search.trace_search import search
from crannog.traces.span_metadata import attribute_keys, complete, dependencies, operations, services
from crannog.traces.span_store import SpanStore
from crannog.traces.span_table import SCHEMA, SPANS, existing_spans, no_trace, open_spans, parse_trace_id
from crannog.traces.trace import SPAN_COLUMNS, spans_in_tree_order
from crannog.traces.tree.skeleton import skeleton
from crannog.traces.tree.tree_find import find
from crannog.traces.tree.tree_views import compare, place, show, trace_version

_NO_ROWS = SCHEMA.empty_table()
T = TypeVar("T")


class TraceStore(SpanStore):
    """Writes and reads the span table, which is created when the first span arrives. Safe for threads.

    The transport of `api.traces.Traces` inside the process.
    """

    def __init__(
        self, warehouse: Warehouse, tables: Tables, copies: Callable[[], Copies | None] = lambda: None
    ) -> None:
        """`copies` returns the in-memory copies of tables, which an erasure has to search."""
        super().__init__(warehouse, tables)
        self._copies = copies
        self._warehouse = warehouse
        self._writer = SpanWriter(warehouse.settings, self._on, self._pause_s)

    @property
    def traces(self) -> EmbeddedTraces:
        """The public interface to this store, with its limits."""
        return EmbeddedTraces(self)

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
        return _LINES[operation](self, request)

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, request: WriteSpans) -> WriteOutcome:
        return self._writer.write(request)

    def _pause_s(self) -> float:
        return self.spans.writer.pause_s() if self._warehouse.is_maintained else 0.0

    @property
    def spans(self) -> OpenTable:
        """The span table, created if it does not exist."""
        return open_spans(self._tables)

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

    # -- whole traces ------------------------------------------------------------------------------------------------

    def get(self, request: TraceById) -> Trace:
        wanted, limit = parse_trace_id(request.trace_id), self.settings.trace_spans_limit
        rows, truncated = self.read_newest(
            lambda table, snapshot: rows_of_trace(
                table, snapshot, wanted, columns=SPAN_COLUMNS, limit=limit, exact=False
            ),
            (_NO_ROWS, False),
        )
        if not rows.num_rows:
            raise no_trace(wanted)
        return Trace(wanted.hex(), tuple(spans_in_tree_order(rows)), truncated)

    def get_many(self, trace_ids: Sequence[str]) -> Iterator[Trace]:
        """Yield the traces that exist, in order and as `get` returns them; reads many at once."""
        ids, limit = list(dict.fromkeys(map(parse_trace_id, trace_ids))), self.settings.trace_spans_limit
        for trace_id, rows, truncated in rows_of_traces(self.read_newest, ids, SPAN_COLUMNS, limit):
            yield Trace(trace_id.hex(), tuple(spans_in_tree_order(rows)), truncated)

    def span_counts(self, trace_ids: Sequence[str]) -> dict[str, int]:
        """Return the number of span rows, duplicates included, of each trace that exists."""
        found = row_counts(self.read_newest, [parse_trace_id(text) for text in trace_ids])
        return {trace_id.hex(): count for trace_id, count in found.items()}

    def trace_version(self, trace_id: str) -> str:
        """Return the etag of columns of a trace. Raises NotFound if there is no such trace."""
        return trace_version(self, trace_id)

    def jaeger_summaries(self, found: Sequence[TraceSummary]) -> list[JaegerSummary]:
        """Return the summaries for Jaeger's trace list of the traces on a search page, in order."""
        return summaries(self.read_newest, found)

    # -- maintenance -------------------------------------------------------------------------------------------------

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
            return retention.plan_erasure(table, retention.select_traces(table, request))

    def erase(
        self, request: EraseTraces, progress: Progress | None, cancellation: Cancellation | None
    ) -> ErasureReceipt:
        checked_erasure_id(request.erasure_id)
        table = self._spans_to_erase()
        with cancelled_by(cancellation):
            traces = retention.select_traces(table, request)
        receipt = retention.erase(
            self._tables,
            table,
            traces,
            actor=request.actor,
            reason=request.reason,
            copies=self._copies(),
            progress=progress,
            cancellation=cancellation,
        )
        return receipts.kept(table.warehouse.storage, receipt, request.erasure_id)

    def _spans_to_erase(self) -> OpenTable:
        """Return the span table. Raises NotFound if it does not exist."""
        try:
            return existing_spans(self._tables)
        except NotFound:
            raise NotFound("nothing to erase: this warehouse has no spans yet") from None


class EmbeddedTraces(Traces):
    """The traces of a warehouse in this process; the server also uses `store` directly."""

    def __init__(self, store: TraceStore) -> None:
        super().__init__(store)
        self.store = store


_CALLS: dict[AnyOperation, Callable[[TraceStore, Any], Any]] = {
    ops.WRITE: TraceStore.write,
    ops.GET: TraceStore.get,
    ops.SERVICES: services,
    ops.OPERATIONS_BY_KIND: operations,
    ops.EXPORT: export,
    ops.EXPORT_PROTOBUF: export_protobuf,
    ops.SEARCH: search,
    ops.SEARCH_SPANS: search_spans,
    ops.COMPLETE: complete,
    ops.SHOW: show,
    ops.PLACE: place,
    ops.SKELETON: skeleton,
    ops.FIND: find,
    ops.COMPARE: compare,
    ops.METRICS: metrics,
    ops.HEATMAP: heatmap,
    ops.DIFFERENCES: differences,
    ops.SESSIONS: sessions,
    ops.USAGE: usage,
    ops.MESSAGES: messages,
    ops.DEPENDENCIES: dependencies,
    ops.ATTRIBUTE_KEYS: attribute_keys,
    ops.ERASURE_PLAN: TraceStore.erasure_plan,
}
_LINES: dict[AnyOperation, Callable[[TraceStore, Any], Generator[str, None, None]]] = {
    ops.EXPORT_LINES: export_lines,
    ops.DOWNLOAD: download,
}
_JOBS: dict[AnyOperation, Callable[[TraceStore, Any, Progress | None, Cancellation | None], Any]] = {
    ops.DERIVE: TraceStore.derive,
    ops.EXPIRE: TraceStore.expire,
    ops.ERASE: TraceStore.erase,
}
