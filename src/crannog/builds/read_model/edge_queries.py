"""What was made from what, and what may go, from the read model. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence

from crannog.builds.read_model.connection import Connection
from crannog.builds.read_model.index_choice import one_of
from crannog.builds.results import Edge
from crannog.builds.statuses import FINISHED_BUILDS

_AT_ONCE = 500


def edges(connection: Connection, refs: Sequence[str], *, upstream: bool) -> list[Edge]:
    """Return one edge per pair of partitions, as the newest event tells it, by output and input."""
    column = "output_ref" if upstream else "input_ref"
    newest: dict[tuple[str, str], tuple[int, Edge]] = {}
    happened: set[tuple[str, str]] = set()
    for start in range(0, len(refs), _AT_ONCE):
        some = refs[start : start + _AT_ONCE]
        for output, source, index, run, build_id, made in connection.query(
            f"SELECT output_ref, input_ref, idx, job_run_id, build_request_id, made FROM edges WHERE {one_of(column, some)}",
            some,
        ):
            pair = (output, source)
            if made:
                happened.add(pair)
            if pair not in newest or index > newest[pair][0]:
                newest[pair] = (index, Edge(output, source, run, build_id, True))
    return [
        Edge(edge.output_ref, edge.input_ref, edge.job_run_id, edge.build_request_id, pair not in happened)
        for pair, (_, edge) in sorted(newest.items())
    ]


def prunable(connection: Connection, before_ns: int | None, keep_events: int | None, limit: int) -> list[int]:
    """Return what a retention may remove, oldest first."""
    oldest_kept = 0
    if keep_events is not None:
        rows = connection.query("SELECT idx FROM events ORDER BY idx DESC LIMIT 1 OFFSET ?", (keep_events,))
        oldest_kept = rows[0][0] if rows else 0
    before = -1 if before_ns is None else before_ns
    finished = ", ".join(str(int(status)) for status in FINISHED_BUILDS)
    return [
        index
        for (index,) in connection.query(
            "SELECT e.idx FROM events e JOIN builds b ON b.build_request_id = e.build_request_id"
            " WHERE (e.timestamp < ? OR e.idx <= ?)"
            f" AND (b.status IN ({finished}) OR b.updated_at < ? OR b.last_idx <= ?)"
            " AND NOT EXISTS (SELECT 1 FROM partitions p WHERE p.status_idx = e.idx)"
            " ORDER BY e.idx LIMIT ?",
            (before, oldest_kept, before, oldest_kept, limit),
        )
    ]
