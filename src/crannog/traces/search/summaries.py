"""Summaries of traces from all their spans, each span counted once: if it was sent again, its newest copy counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from crannog.api.traces import TraceSummary
from crannog.traces.search.filter_sql import condition_sql, null_as_false
from crannog.traces.search.filter_tree import MATCH_ALL, Filter
from crannog.traces.search.snapshot_reader import NEWEST_COPY_FIRST, SnapshotReader
from crannog.traces.span_table import COPY_ORDER, trace_id_high
from crannog.traces.trace import ERROR_STATUS

_TRACE_IDS = pa.schema([pa.field("trace_id", pa.binary()), pa.field("trace_hi", pa.int64())])
_COLUMNS = "trace_id, trace_hi, span_id, parent_span_id, start_ns, end_ns, service_name, span_name, status_code, _created_at, _batch_id"

ID_COLUMNS = "trace_id, trace_hi, span_id"
_MAX_LISTED_IDS = 256
_MAX_BLOOM_IDS = 1_024
"""Bloom filters find this many traces at any age; for more, they would let every row group through."""
MAX_PYTHON_ROWS = 10_000
"""Up to this many rows, Python aggregates faster than DuckDB plans the query for it."""


def trace_id_table(ids: Sequence[bytes]) -> pa.Table:
    return pa.table([pa.array(ids, pa.binary()), pa.array(map(trace_id_high, ids), pa.int64())], schema=_TRACE_IDS)


def rows_of_trace_table(rows: str, condition: str, traces: str, columns: str = "*") -> str:
    """Return the SQL of the rows whose trace is in the table `traces`."""
    return (
        f"SELECT {columns} FROM {rows} s SEMI JOIN {traces} t ON t.trace_hi = s.trace_hi AND t.trace_id = s.trace_id"
        f" WHERE {condition}"
    )


def rows_of_trace_ids(reader: SnapshotReader, ids: Sequence[bytes], low: int, high: int, columns: str) -> str:
    """Return the SQL of the rows of these traces, each of which has a span that starts from `low` to `high`.

    The query may read the table `wanted`, see `trace_id_table`.
    """
    if len(ids) <= _MAX_LISTED_IDS:
        listed = ", ".join(f"from_hex('{trace_id.hex()}')" for trace_id in ids)
        return f"SELECT {columns} FROM {reader.rows_of_ids(ids)} WHERE trace_id IN ({listed})"
    rows, condition = (reader.rows_of_ids(ids), "true") if len(ids) <= _MAX_BLOOM_IDS else reader.rows_near(low, high)
    return rows_of_trace_table(rows, condition, "wanted", columns)


def traces_with_duplicates(rows: str) -> str:
    """Return the SQL of the traces that have a span more than once in a table of rows."""
    # Compared by hash: a collision costs time, and changes no result.
    return (
        f"SELECT DISTINCT trace_id, trace_hi FROM {rows} WHERE hash(trace_id, span_id) IN"
        f" (SELECT hash(trace_id, span_id) AS h FROM {rows} GROUP BY h HAVING count(*) > 1)"
    )


def create_duplicated(reader: SnapshotReader, rows: str) -> int:
    """Create the table `duplicated` of the traces that have a span more than once in the rows of a query; return their number."""
    return reader.create_temp_table(
        "duplicated", f"WITH part AS MATERIALIZED ({rows}) {traces_with_duplicates('part')}"
    )


def newest_copies_sql(rows: str) -> str:
    """Return the SQL of the newest copy of each span in the rows of a query."""
    return (
        f"SELECT * FROM ({rows})"
        f" QUALIFY row_number() OVER (PARTITION BY trace_id, span_id ORDER BY {NEWEST_COPY_FIRST}) = 1"
    )


def summaries(
    reader: SnapshotReader, ids: Sequence[bytes], low: int, high: int, filter: Filter = MATCH_ALL
) -> dict[bytes, TraceSummary]:
    """Return the summaries of these traces, each of which has a span that starts from `low` to `high`.

    Leaves out traces of which no span, in its newest copy, matches the filter.
    """
    if not ids:
        return {}
    part = rows_of_trace_ids(reader, ids, low, high, f"{_COLUMNS}, {null_as_false(condition_sql(filter))} AS matches")
    wanted = {"wanted": trace_id_table(ids)}
    rows = reader.query(f"{part} LIMIT {MAX_PYTHON_ROWS + 1}", wanted)
    if rows.num_rows <= MAX_PYTHON_ROWS:
        return summaries_from_rows(rows.to_pylist())
    found = reader.query(
        f"WITH part AS MATERIALIZED ({part}), duplicated AS MATERIALIZED ({traces_with_duplicates('part')}),"
        # Few traces have a span twice: only their rows are sorted.
        " distinct_spans AS (SELECT * FROM part ANTI JOIN duplicated USING (trace_id) UNION ALL"
        f" {newest_copies_sql('SELECT * FROM part SEMI JOIN duplicated USING (trace_id)')})"
        " SELECT trace_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, count(*) AS spans,"
        f" count(*) FILTER (status_code = {ERROR_STATUS}) AS errors, list_sort(list(DISTINCT service_name)) AS services,"
        " arg_min({'service': service_name, 'name': span_name}, {'at': start_ns, 'id': span_id})"
        "  FILTER (parent_span_id IS NULL) AS root"
        " FROM distinct_spans GROUP BY trace_id HAVING bool_or(matches)",
        wanted,
    )
    return {row["trace_id"]: _summary(row) for row in found.to_pylist()}


def summaries_from_rows(rows: Iterable[dict[str, Any]]) -> dict[bytes, TraceSummary]:
    """Return what the query in `summaries` returns, computed in Python from a few rows."""
    traces: dict[bytes, dict[bytes, dict[str, Any]]] = {}
    for row in rows:
        spans = traces.setdefault(row["trace_id"], {})
        known = spans.get(row["span_id"])
        if known is None or _copy_order(row) > _copy_order(known):
            spans[row["span_id"]] = row
    found = {}
    for trace_id, spans_by_id in traces.items():
        spans_of_trace = spans_by_id.values()
        if any(span["matches"] for span in spans_of_trace):
            roots = [span for span in spans_of_trace if span["parent_span_id"] is None]
            root = min(roots, key=lambda span: (span["start_ns"], span["span_id"])) if roots else None
            found[trace_id] = _summary(
                {
                    "trace_id": trace_id,
                    "start_ns": min(span["start_ns"] for span in spans_of_trace),
                    "end_ns": max(span["end_ns"] for span in spans_of_trace),
                    "spans": len(spans_of_trace),
                    "errors": sum(span["status_code"] == ERROR_STATUS for span in spans_of_trace),
                    "services": sorted({span["service_name"] for span in spans_of_trace}),
                    "root": root and {"service": root["service_name"], "name": root["span_name"]},
                }
            )
    return found


def _copy_order(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in COPY_ORDER)


def _summary(row: dict[str, Any]) -> TraceSummary:
    root = row["root"] or {"service": None, "name": None}
    return TraceSummary(
        trace_id=row["trace_id"].hex(),
        root_service=root["service"],
        root_operation=root["name"],
        start_ns=row["start_ns"],
        duration_ns=row["end_ns"] - row["start_ns"],
        span_count=row["spans"],
        error_count=row["errors"],
        services=tuple(row["services"]),
    )
