"""Pages of spans. Spans are sorted by their own start or duration, so each step reads the next few in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from crannog.api.traces import Span, SpanPage
from crannog.api.traces.requests import SpanQuery
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.traces.search import cursors, snapshot_reader, summaries
from crannog.traces.search.cursors import Position
from crannog.traces.search.filter_sql import condition_sql, null_as_false
from crannog.traces.search.request import SPAN_ORDERS, SearchRequest, checked_limit, checked_order, span_filter
from crannog.traces.search.snapshot_reader import SnapshotReader
from crannog.traces.span_store import SpanStore
from crannog.traces.span_table import COPY_ORDER
from crannog.traces.trace import SPAN_SQL, span_values

_ORDERS = {
    "newest": ("start_ns", True),
    "oldest": ("start_ns", False),
    "longest": ("duration_ns", True),
    "shortest": ("duration_ns", False),
}
_FIRST_ROWS, _MAX_ROWS = 32_768, 16_777_216
_GROWTH = 4
_ID_BYTES = 24


@dataclass(frozen=True, slots=True)
class _SpanMatch:
    """A matching row: its sort value, its ids and the values of `COPY_ORDER`."""

    value: int
    trace_id: bytes
    span_id: bytes
    copy: tuple[Any, ...]

    @property
    def position(self) -> Position:
        return Position(self.value, self.trace_id + self.span_id)

    @property
    def ids(self) -> tuple[bytes, bytes]:
        return self.trace_id, self.span_id


def search_spans(store: SpanStore, query: SpanQuery) -> SpanPage:
    """Return one page of the matching spans, each once and in its newest copy."""
    request = SearchRequest(span_filter(query), checked_order(query.order, SPAN_ORDERS))
    limit = checked_limit(query.limit)

    def page(table: OpenTable, snapshot: Snapshot) -> SpanPage:
        position = cursors.decode(query.cursor, request.digest, id_bytes=_ID_BYTES)
        with snapshot_reader.open_reader(table, snapshot) as reader:
            found = _matches_from(reader, request, position, limit)
            listed, next_cursor, previous_cursor = cursors.page_of(
                found, limit, position, lambda match: match.position, request.digest
            )
            spans = _spans(reader, listed)
            total = _count_spans(reader, request) if query.count else None
        return SpanPage(spans, next_cursor, previous_cursor, total)

    return store.read_newest(page, SpanPage((), total=0 if query.count else None))


def _matches_from(
    reader: SnapshotReader, request: SearchRequest, position: Position | None, limit: int
) -> list[_SpanMatch]:
    """Return up to `limit + 1` spans from the position on, nearest first."""
    column, descending = _ORDERS[request.order]
    if position is not None and position.backward:
        descending = not descending
    low, high = snapshot_reader.start_bounds(request.filter)
    # Newest first, the search goes back in time in steps; in other orders, one step covers all of it.
    histogram = reader.time_histogram(request.filter) if column == "start_ns" and descending else None
    if histogram is not None:
        high = min(high, histogram.high, position.value if position else snapshot_reader.LATEST)
        low = max(low, histogram.low)
    rows, batch_size = _FIRST_ROWS, limit + 9
    found: dict[tuple[bytes, bytes], _SpanMatch] = {}
    while len(found) <= limit and low <= high:
        since = low if histogram is None else max(low, histogram.range_start(high + 1, rows))
        batch = _matching_rows(reader, request, (column, descending), position, (since, high), batch_size)
        found |= {match.ids: match for match in _newest_only(reader, batch)}
        if len(batch) == batch_size:
            position = batch[-1].position
        elif histogram is None or since <= low:
            break
        else:
            high, rows = since - 1, min(rows * _GROWTH, _MAX_ROWS)
    return list(found.values())[: limit + 1]


def _matching_rows(
    reader: SnapshotReader,
    request: SearchRequest,
    order: tuple[str, bool],
    position: Position | None,
    times: tuple[int, int],
    limit: int,
) -> list[_SpanMatch]:
    """Return the next matching rows, among them older copies of spans."""
    (column, descending), (low, high) = order, times
    direction, sign = ("DESC", "<") if descending else ("ASC", ">")
    conditions = [condition_sql(request.filter)]
    if low > snapshot_reader.EARLIEST:
        conditions.append(f"start_ns >= {low}")
    if high < snapshot_reader.LATEST:
        conditions.append(f"start_ns <= {high}")
    if position is not None:
        trace_id, span_id = (f"from_hex('{part.hex()}')" for part in (position.id[:16], position.id[16:]))
        conditions.append(
            f"({column} {sign} {position.value} OR ({column} = {position.value} AND (trace_id {sign} {trace_id}"
            f" OR (trace_id = {trace_id} AND span_id {sign} {span_id}))))"
        )
    source = reader.rows(
        [*snapshot_reader.pruning_conditions(request.filter), *snapshot_reader.start_between(low, high)]
    )
    found = reader.query(
        f"SELECT {column} AS value, trace_id, span_id, {', '.join(COPY_ORDER)} FROM {source}"
        f" WHERE {' AND '.join(conditions)}"
        f" ORDER BY value {direction}, trace_id {direction}, span_id {direction} LIMIT {limit}"
    )
    return [
        _SpanMatch(row["value"], row["trace_id"], row["span_id"], tuple(row[name] for name in COPY_ORDER))
        for row in found.to_pylist()
    ]


def _newest_only(reader: SnapshotReader, matches: list[_SpanMatch]) -> list[_SpanMatch]:
    """Return those matches that are the newest copy of their span."""
    if not matches:
        return []
    columns = f"trace_id, span_id, {', '.join(COPY_ORDER)}"
    newest = {
        (row["trace_id"], row["span_id"]): tuple(row[name] for name in COPY_ORDER)
        for row in _newest_copies_of(reader, matches, columns).to_pylist()
    }
    return [match for match in matches if newest[match.ids] == match.copy]


def _newest_copies_of(reader: SnapshotReader, matches: list[_SpanMatch], columns: str) -> pa.Table:
    """Return the newest copy of the span of each match."""
    traces = sorted({match.trace_id for match in matches})
    starts = [match.copy[COPY_ORDER.index("start_ns")] for match in matches]
    pairs = pa.table(
        [
            pa.array([match.trace_id for match in matches], pa.binary()),
            pa.array([match.span_id for match in matches], pa.binary()),
        ],
        names=["trace_id", "span_id"],
    )
    rows = summaries.rows_of_trace_ids(reader, traces, min(starts), max(starts), columns)
    return reader.query(
        summaries.newest_copies_sql(f"SELECT * FROM ({rows}) SEMI JOIN pairs USING (trace_id, span_id)"),
        {"wanted": summaries.trace_id_table(traces), "pairs": pairs},
    )


def _spans(reader: SnapshotReader, matches: list[_SpanMatch]) -> tuple[Span, ...]:
    if not matches:
        return ()
    spans = [Span(*values) for values in span_values(_newest_copies_of(reader, matches, SPAN_SQL))]
    by_ids = {(span.trace_id, span.span_id): span for span in spans}
    return tuple(by_ids[match.trace_id.hex(), match.span_id.hex()] for match in matches)


def _count_spans(reader: SnapshotReader, request: SearchRequest) -> int:
    """Count the spans that match in their newest copy."""
    rows, condition = reader.rows(), condition_sql(request.filter)
    duplicates = summaries.create_duplicated(reader, f"SELECT {summaries.ID_COLUMNS} FROM {rows}")
    source = reader.rows(snapshot_reader.pruning_conditions(request.filter))
    if not duplicates:
        query = f"SELECT count(*) FROM {source} WHERE {condition}"
    else:
        copies = (
            f"SELECT trace_id, span_id, {', '.join(COPY_ORDER)}, {null_as_false(condition)} AS matches"
            f" FROM {rows} SEMI JOIN duplicated USING (trace_id)"
        )
        query = (
            f"SELECT (SELECT count(*) FROM {source} ANTI JOIN duplicated USING (trace_id) WHERE {condition})"
            f" + (SELECT count(*) FROM ({summaries.newest_copies_sql(copies)}) WHERE matches)"
        )
    return int(reader.query(query).column(0)[0].as_py())
