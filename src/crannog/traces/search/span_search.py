"""Pages of spans. A span has its place by its own start or duration, so each step asks for the next few in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from crannog.api.traces import Span, SpanPage
from crannog.engine.duckdb.engine import quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.traces.search import cursors
from crannog.traces.search.cursors import Position
from crannog.traces.search.filter_sql import condition_sql, null_as_false
from crannog.traces.search.pruning import pruning_conditions, start_bounds
from crannog.traces.search.request import SearchRequest
from crannog.traces.search.snapshot_reader import SnapshotReader, open_reader, start_between
from crannog.traces.search.summaries import newest_copies_sql, rows_of_trace_ids, trace_id_table, traces_with_duplicates
from crannog.traces.search.time_histogram import EARLIEST, LATEST
from crannog.traces.trace import SPAN_COLUMNS, span_from_row

_ORDERS = {
    "newest": ("start_ns", True),
    "oldest": ("start_ns", False),
    "longest": ("duration_ns", True),
    "shortest": ("duration_ns", False),
}
_FIRST_ROWS, _MAX_ROWS = 32_768, 16_777_216
_GROWTH = 4
_COPY_ORDER_COLUMNS, _START_INDEX = "_created_at, end_ns, start_ns, _batch_id", 2
_IDS = "trace_id, trace_hi, span_id"
_ID_BYTES = 24


@dataclass(frozen=True, slots=True)
class _SpanMatch:
    value: int
    trace_id: bytes
    span_id: bytes
    copy: tuple[Any, ...]

    @property
    def position(self) -> Position:
        return Position(self.value, self.trace_id + self.span_id)


def search_spans(table: OpenTable, request: SearchRequest, *, limit: int, cursor: str | None, count: bool) -> SpanPage:
    """Return one page of the spans that match, each once and in its newest copy."""
    position = cursors.decode(cursor, request.digest, id_bytes=_ID_BYTES)

    def page(snapshot: Snapshot) -> SpanPage:
        with open_reader(table, snapshot) as reader:
            found = _matches_from(reader, request, position, limit)
            more, listed = len(found) > limit, found[:limit]
            backward = position is not None and position.backward
            if backward:
                listed.reverse()
            spans = _spans(reader, listed)
            counted = _count_spans(reader, request) if count else None
        first, last = (listed[0].position, listed[-1].position) if listed else (position, position)

        def written(at: Position | None, *, back: bool, wanted: bool) -> str | None:
            return cursors.encode(Position(at.value, at.id, back), request.digest) if at and wanted else None

        return SpanPage(
            spans,
            next_cursor=written(last, back=False, wanted=more or backward),
            previous_cursor=written(first, back=True, wanted=more if backward else position is not None),
            total=counted,
        )

    return table.newest(page)


def _matches_from(
    open_reader: SnapshotReader, request: SearchRequest, position: Position | None, limit: int
) -> list[_SpanMatch]:
    """Return up to `limit + 1` spans from the position on, nearest first."""
    column, descending = _ORDERS[request.order]
    if position is not None and position.backward:
        descending = not descending
    is_walk = column == "start_ns" and descending
    low, high = start_bounds(request.filter)
    spread = open_reader.time_histogram(request.filter) if is_walk else None
    if spread is not None:
        high = min(high, spread.high, position.value if position else LATEST)
        low = max(low, spread.low)
    rows, some = _FIRST_ROWS, limit + 9
    found: dict[tuple[bytes, bytes], _SpanMatch] = {}
    while len(found) <= limit and low <= high:
        since = low if spread is None else max(low, spread.before(high + 1, rows))
        listed = _matching_rows(open_reader, request, (column, descending), position, (since, high), some)
        found |= {(each.trace_id, each.span_id): each for each in _newest_only(open_reader, listed)}
        if len(listed) == some:
            position = listed[-1].position
        elif spread is None or since <= low:
            break
        else:
            high, rows = since - 1, min(rows * _GROWTH, _MAX_ROWS)
    return list(found.values())[: limit + 1]


def _matching_rows(
    open_reader: SnapshotReader,
    request: SearchRequest,
    order: tuple[str, bool],
    position: Position | None,
    times: tuple[int, int],
    some: int,
) -> list[_SpanMatch]:
    """Return the next rows that match, older copies of spans among them."""
    (column, descending), (low, high) = order, times
    direction, sign = ("DESC", "<") if descending else ("ASC", ">")
    conditions = [condition_sql(request.filter)]
    if low > EARLIEST:
        conditions.append(f"start_ns >= {low}")
    if high < LATEST:
        conditions.append(f"start_ns <= {high}")
    if position is not None:
        ids = [f"from_hex('{part.hex()}')" for part in (position.id[:16], position.id[16:])]
        conditions.append(
            f"({column} {sign} {position.value} OR ({column} = {position.value} AND (trace_id {sign} {ids[0]}"
            f" OR (trace_id = {ids[0]} AND span_id {sign} {ids[1]}))))"
        )
    source = open_reader.rows([*pruning_conditions(request.filter), *start_between(low, high)])
    found = open_reader.query(
        f"SELECT {column} AS value, trace_id, span_id, {_COPY_ORDER_COLUMNS} FROM {source} WHERE {' AND '.join(conditions)}"
        f" ORDER BY value {direction}, trace_id {direction}, span_id {direction} LIMIT {some}"
    )
    names = _COPY_ORDER_COLUMNS.split(", ")
    return [
        _SpanMatch(row["value"], row["trace_id"], row["span_id"], tuple(row[name] for name in names))
        for row in found.to_pylist()
    ]


def _newest_only(open_reader: SnapshotReader, listed: list[_SpanMatch]) -> list[_SpanMatch]:
    """Keep those that are the newest copy of their span."""
    if not listed:
        return []
    newest: dict[tuple[bytes, bytes], tuple[Any, ...]] = {}
    for row in _newest_copies_of(open_reader, listed, f"trace_id, span_id, {_COPY_ORDER_COLUMNS}").to_pylist():
        newest[row["trace_id"], row["span_id"]] = tuple(row[name] for name in _COPY_ORDER_COLUMNS.split(", "))
    return [each for each in listed if newest[each.trace_id, each.span_id] == each.copy]


def _newest_copies_of(open_reader: SnapshotReader, listed: list[_SpanMatch], columns: str) -> pa.Table:
    """Return the newest copy of each of these spans."""
    traces = sorted({each.trace_id for each in listed})
    starts = [each.copy[_START_INDEX] for each in listed]
    pairs = pa.table(
        [
            pa.array([each.trace_id for each in listed], pa.binary()),
            pa.array([each.span_id for each in listed], pa.binary()),
        ],
        names=["trace_id", "span_id"],
    )
    rows = rows_of_trace_ids(open_reader, traces, min(starts), max(starts), columns)
    return open_reader.query(
        newest_copies_sql(f"SELECT * FROM ({rows}) SEMI JOIN pairs USING (trace_id, span_id)"),
        {"wanted": trace_id_table(traces), "pairs": pairs},
    )


def _spans(open_reader: SnapshotReader, listed: list[_SpanMatch]) -> tuple[Span, ...]:
    if not listed:
        return ()
    names = ", ".join(map(quoted, dict.fromkeys([*SPAN_COLUMNS, "_created_at", "_batch_id"])))
    found = {
        (row["trace_id"], row["span_id"]): span_from_row(row)
        for row in _newest_copies_of(open_reader, listed, names).to_pylist()
    }
    return tuple(found[each.trace_id, each.span_id] for each in listed)


def _count_spans(open_reader: SnapshotReader, request: SearchRequest) -> int:
    """Count the spans that match in their newest copy."""
    rows, condition = open_reader.rows(), condition_sql(request.filter)
    again = open_reader.create_temp_table(
        "again", f"WITH part AS MATERIALIZED (SELECT {_IDS} FROM {rows}) {traces_with_duplicates('part')}"
    )
    source = open_reader.rows(pruning_conditions(request.filter))
    if not again:
        query = f"SELECT count(*) FROM {source} WHERE {condition}"
    else:
        copies = f"SELECT trace_id, span_id, {_COPY_ORDER_COLUMNS}, {null_as_false(condition)} AS meets FROM {rows} SEMI JOIN again USING (trace_id)"
        query = (
            f"SELECT (SELECT count(*) FROM {source} ANTI JOIN again USING (trace_id) WHERE {condition})"
            f" + (SELECT count(*) FROM ({newest_copies_sql(copies)}) WHERE meets)"
        )
    return int(open_reader.query(query).column(0)[0].as_py())
