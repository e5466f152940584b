"""Summaries of traces from all of their spans, each span once: of one that was sent again, the newest copy counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from crannog.api.traces import TraceSummary
from crannog.traces.ids import trace_id_high
from crannog.traces.search.filter_sql import condition_sql, null_as_false
from crannog.traces.search.filter_tree import MATCH_ALL, Filter
from crannog.traces.search.snapshot_reader import NEWEST_COPY_FIRST, SnapshotReader
from crannog.traces.trace import ERROR_STATUS

_WANTED = pa.schema([pa.field("trace_id", pa.binary()), pa.field("trace_hi", pa.int64())])
_COLUMNS = "trace_id, trace_hi, span_id, parent_span_id, start_ns, end_ns, service_name, span_name, status_code, _created_at, _batch_id"

_MAX_BLOOM_IDS = 256
MAX_PYTHON_ROWS = 10_000
"""Up to this many rows are aggregated faster in Python than DuckDB plans the query that would do it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A summary, and the bytes of its id."""

    id: bytes
    summary: TraceSummary


def trace_id_table(ids: Sequence[bytes]) -> pa.Table:
    return pa.table([pa.array(ids, pa.binary()), pa.array(map(trace_id_high, ids), pa.int64())], schema=_WANTED)


def rows_of_trace_table(rows: str, condition: str, wanted: str, columns: str = "*") -> str:
    """Return the SQL of the rows whose trace is in the table `wanted`."""
    return (
        f"SELECT {columns} FROM {rows} s SEMI JOIN {wanted} w ON w.trace_hi = s.trace_hi AND w.trace_id = s.trace_id"
        f" WHERE {condition}"
    )


def rows_of_trace_ids(reader: SnapshotReader, ids: Sequence[bytes], low: int, high: int, columns: str) -> str:
    """Return the SQL of the rows of these traces, which have a span that starts from `low` to `high`.

    Bloom filters find few traces at any age; for many they would let every row group through.
    """
    if len(ids) <= _MAX_BLOOM_IDS:
        listed = ", ".join(f"from_hex('{each.hex()}')" for each in ids)
        return f"SELECT {columns} FROM {reader.rows()} WHERE trace_id IN ({listed})"
    return rows_of_trace_table(*reader.rows_near(low, high), "wanted", columns)


def traces_with_duplicates(part: str) -> str:
    """Return the SQL of the traces in a table of rows that have a span more than once."""
    # By their hash: a collision costs time, nothing else.
    return (
        f"SELECT DISTINCT trace_id, trace_hi FROM {part} WHERE hash(trace_id, span_id) IN"
        f" (SELECT hash(trace_id, span_id) AS h FROM {part} GROUP BY h HAVING count(*) > 1)"
    )


def newest_copies_sql(rows: str) -> str:
    """Return the SQL that keeps, of the rows of a query, the newest copy of each span."""
    return f"SELECT * FROM ({rows}) QUALIFY row_number() OVER (PARTITION BY trace_id, span_id ORDER BY {NEWEST_COPY_FIRST}) = 1"


def summaries(
    reader: SnapshotReader, ids: Sequence[bytes], low: int, high: int, filter: Filter = MATCH_ALL
) -> list[Found]:
    """Return the summaries of traces that have a span which starts from `low` to `high`, in no order.

    Those of which no span meets the filter, in its newest copy, are left out.
    """
    if not ids:
        return []
    part = rows_of_trace_ids(reader, ids, low, high, f"{_COLUMNS}, {null_as_false(condition_sql(filter))} AS meets")
    wanted = {"wanted": trace_id_table(ids)}
    rows = reader.query(f"{part} LIMIT {MAX_PYTHON_ROWS + 1}", wanted)
    if rows.num_rows <= MAX_PYTHON_ROWS:
        return summaries_from_rows(rows.to_pylist())
    found = reader.query(
        f"WITH part AS MATERIALIZED ({part}), twice AS MATERIALIZED ({traces_with_duplicates('part')}),"
        # Few traces have a span twice: only their rows are sorted.
        " once AS (SELECT * FROM part ANTI JOIN twice USING (trace_id) UNION ALL"
        f" {newest_copies_sql('SELECT * FROM part SEMI JOIN twice USING (trace_id)')})"
        " SELECT trace_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, count(*) AS spans,"
        f" count(*) FILTER (status_code = {ERROR_STATUS}) AS errors, list_sort(list(DISTINCT service_name)) AS services,"
        " arg_min({'service': service_name, 'name': span_name}, {'at': start_ns, 'id': span_id})"
        "  FILTER (parent_span_id IS NULL) AS root"
        " FROM once GROUP BY trace_id HAVING bool_or(meets)",
        wanted,
    )
    return [_found(row) for row in found.to_pylist()]


def summaries_from_rows(rows: Iterable[dict[str, Any]]) -> list[Found]:
    """Return what the query in `summaries` returns, of a few rows."""
    traces: dict[bytes, dict[bytes, dict[str, Any]]] = {}
    for row in rows:
        spans = traces.setdefault(row["trace_id"], {})
        known = spans.get(row["span_id"])
        if known is None or _copy(row) > _copy(known):
            spans[row["span_id"]] = row
    found = []
    for trace_id, spans in traces.items():
        each = spans.values()
        if any(row["meets"] for row in each):
            roots = [row for row in each if row["parent_span_id"] is None]
            first = min(roots, key=lambda row: (row["start_ns"], row["span_id"])) if roots else None
            told = {
                "trace_id": trace_id,
                "start_ns": min(row["start_ns"] for row in each),
                "end_ns": max(row["end_ns"] for row in each),
                "spans": len(spans),
                "errors": sum(row["status_code"] == ERROR_STATUS for row in each),
                "services": sorted({row["service_name"] for row in each}),
                "root": first and {"service": first["service_name"], "name": first["span_name"]},
            }
            found.append(_found(told))
    return found


def _copy(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["_created_at"], row["end_ns"], row["start_ns"], row["_batch_id"]


def _found(row: dict[str, Any]) -> Found:
    root = row["root"] or {"service": None, "name": None}
    summary = TraceSummary(
        trace_id=row["trace_id"].hex(),
        root_service=root["service"],
        root_operation=root["name"],
        start_ns=row["start_ns"],
        duration_ns=row["end_ns"] - row["start_ns"],
        span_count=row["spans"],
        error_count=row["errors"],
        services=tuple(row["services"]),
    )
    return Found(row["trace_id"], summary)
