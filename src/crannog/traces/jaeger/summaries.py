"""Summaries of traces with their services, computed from a few columns of their spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crannog.api.traces import TraceSummary
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.traces.lookup import MAX_IDS, ReadNewest
from crannog.traces.search.snapshot_reader import SnapshotReader, open_reader, start_between
from crannog.traces.search.summaries import (
    MAX_PYTHON_ROWS,
    newest_copies_sql,
    rows_of_trace_table,
    trace_id_table,
    traces_with_duplicates,
)
from crannog.traces.span_table import trace_id_high
from crannog.traces.trace import ERROR_STATUS

_NEEDED = ("trace_id", "span_id", "parent_span_id", "start_ns", "end_ns", "service_name", "span_name", "status_code")
_FEW = ("trace_hi", *_NEEDED[1:])
_COLUMNS = ", ".join((*_NEEDED, "trace_hi", "_created_at", "_batch_id"))


@dataclass(frozen=True, slots=True)
class ServiceCount:
    """The spans of one service in a trace."""

    name: str
    spans: int
    errors: int


@dataclass(frozen=True, slots=True)
class JaegerSummary:
    """What Jaeger's UI lists of a trace. Of a span that was sent more than once, the newest copy counts."""

    trace_id: str
    root_service: str
    root_operation: str
    start_ns: int
    end_ns: int
    orphans: int
    services: list[ServiceCount] = field(default_factory=list)


def summaries(read: ReadNewest, found: Sequence[TraceSummary]) -> list[JaegerSummary]:
    """Return the summaries of traces that a search found, in order, without those that were deleted since."""
    if not found:
        return []
    known: dict[str, JaegerSummary] = read(lambda table, snapshot: _query(table, snapshot, found), {})
    return [known[one.trace_id] for one in found if one.trace_id in known]


def _start_range(found: Sequence[TraceSummary]) -> tuple[str, list[Condition]]:
    """Return the time in which the spans of these traces start, as SQL and as conditions for pruning."""
    low, high = min(one.start_ns for one in found), max(one.end_ns for one in found)
    return f"start_ns >= {low} AND start_ns <= {high}", start_between(low, high)


def _rows_sql(reader: SnapshotReader, found: Sequence[TraceSummary]) -> str:
    """Return the SQL of the rows of these traces."""
    condition, conditions = _start_range(found)
    rows = reader.rows(conditions)
    if len(found) > MAX_IDS:
        return rows_of_trace_table(rows, condition, "wanted", _COLUMNS)
    listed = ", ".join(f"from_hex('{one.trace_id}')" for one in found)
    return f"SELECT {_COLUMNS} FROM {rows} WHERE trace_id IN ({listed}) AND {condition}"


def _query(table: OpenTable, snapshot: Snapshot, found: Sequence[TraceSummary]) -> dict[str, JaegerSummary]:
    with open_reader(table, snapshot) as reader:
        spans_of = _few_spans(reader, found)
        if spans_of is not None:
            return {trace_id: _summary(trace_id, _services(spans)) for trace_id, spans in spans_of.items()}
        rows = reader.query(
            f"WITH part AS MATERIALIZED ({_rows_sql(reader, found)}),"
            # Few traces have a span twice, so only their rows are sorted.
            f" twice AS MATERIALIZED ({traces_with_duplicates('part')}),"
            " once AS MATERIALIZED (SELECT * FROM part ANTI JOIN twice USING (trace_id) UNION ALL"
            f" {newest_copies_sql('SELECT * FROM part SEMI JOIN twice USING (trace_id)')}),"
            " orphans AS (SELECT trace_id, count(*) AS orphans FROM once child WHERE parent_span_id IS NOT NULL AND NOT EXISTS"
            " (FROM once parent WHERE parent.trace_id = child.trace_id AND parent.span_id = child.parent_span_id) GROUP BY trace_id),"
            " by_service AS (SELECT trace_id, service_name, count(*) AS spans,"
            f" count(*) FILTER (status_code = {ERROR_STATUS}) AS errors, min(start_ns) AS start_ns, max(end_ns) AS end_ns,"
            " min({'at': start_ns, 'id': span_id, 'name': span_name}) FILTER (parent_span_id IS NULL) AS root"
            " FROM once GROUP BY trace_id, service_name)"
            " SELECT by_service.*, coalesce(orphans, 0) AS orphans FROM by_service LEFT JOIN orphans USING (trace_id)",
            {"wanted": trace_id_table([bytes.fromhex(one.trace_id) for one in found])},
        )
    traces: dict[str, list[dict[str, Any]]] = {}
    for row in rows.to_pylist():
        traces.setdefault(row["trace_id"].hex(), []).append(row)
    return {trace_id: _summary(trace_id, services) for trace_id, services in traces.items()}


def _few_spans(reader: SnapshotReader, found: Sequence[TraceSummary]) -> dict[str, dict[bytes, dict[str, Any]]] | None:
    """Return the spans of each trace by id; None if there are many, or if they are not those that the search counted.

    The first half of an id is a number, which is read and compared in half the time of the whole id. It is enough where
    the counts agree: with a span of another trace, or a copy of a span, there would be more.
    """
    expected = {trace_id_high(bytes.fromhex(one.trace_id)): one for one in found}
    most = sum(one.span_count for one in found)
    if len(found) > MAX_IDS or most > MAX_PYTHON_ROWS or len(expected) < len(found):
        return None
    condition, conditions = _start_range(found)
    rows = reader.query(
        f"SELECT {', '.join(_FEW)} FROM {reader.rows(conditions, _FEW)}"
        f" WHERE trace_hi IN ({', '.join(map(str, expected))}) AND {condition} LIMIT {most + 1}"
    )
    spans_of: dict[int, dict[bytes, dict[str, Any]]] = {}
    for row in rows.to_pylist():
        spans_of.setdefault(row["trace_hi"], {})[row["span_id"]] = row
    is_as_counted = all(len(spans) == expected[half].span_count for half, spans in spans_of.items())
    if not is_as_counted or sum(map(len, spans_of.values())) < rows.num_rows:
        return None
    return {expected[half].trace_id: spans for half, spans in spans_of.items()}


def _services(spans: Mapping[bytes, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the query above for one trace, computed from its spans."""
    orphans = sum(span["parent_span_id"] is not None and span["parent_span_id"] not in spans for span in spans.values())
    by_service: dict[str, list[Mapping[str, Any]]] = {}
    for span in spans.values():
        by_service.setdefault(span["service_name"], []).append(span)
    return [
        {
            "service_name": name,
            "spans": len(group),
            "errors": sum(span["status_code"] == ERROR_STATUS for span in group),
            "start_ns": min(span["start_ns"] for span in group),
            "end_ns": max(span["end_ns"] for span in group),
            "root": min(
                (
                    {"at": span["start_ns"], "id": span["span_id"], "name": span["span_name"]}
                    for span in group
                    if span["parent_span_id"] is None
                ),
                key=lambda root: (root["at"], root["id"]),
                default=None,
            ),
            "orphans": orphans,
        }
        for name, group in by_service.items()
    ]


def _summary(trace_id: str, services: Sequence[Mapping[str, Any]]) -> JaegerSummary:
    """Return the summary of a trace from the rows of its services."""
    roots = [row for row in services if row["root"] is not None]
    root = min(roots, key=lambda row: (row["root"]["at"], row["root"]["id"])) if roots else None
    return JaegerSummary(
        trace_id=trace_id,
        root_service=root["service_name"] if root else "",
        root_operation=root["root"]["name"] if root else "",
        start_ns=min(row["start_ns"] for row in services),
        end_ns=max(row["end_ns"] for row in services),
        orphans=services[0]["orphans"],
        services=sorted(
            (ServiceCount(row["service_name"], row["spans"], row["errors"]) for row in services),
            key=lambda service: service.name,
        ),
    )
