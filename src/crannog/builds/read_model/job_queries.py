"""Queries of the read model for jobs, their runs, and which partitions they made from which."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from crannog.builds.read_model.connection import Connection, in_chunks, one_of
from crannog.builds.results import Edge, JobRun, JobSummary
from crannog.builds.statuses import FINISHED_JOBS, JobStatus

_RUN = "job_run_id, job_label, build_request_id, status, targets, first_at, started_at, ended_at, first_idx"
# Steps through the index from label to label: GROUP BY would read every run.
_LABELS = (
    "WITH RECURSIVE labels (label) AS (SELECT min(job_label) FROM job_runs"
    " UNION ALL SELECT (SELECT min(job_label) FROM job_runs WHERE job_label > label) FROM labels WHERE label IS NOT NULL)"
    " SELECT label, (SELECT max(first_idx) FROM job_runs WHERE job_label = label) FROM labels WHERE label IS NOT NULL"
    " ORDER BY 2 DESC LIMIT ?"
)
_TAKEN = "ended_at - COALESCE(started_at, first_at)"


def job_runs(
    connection: Connection, *, build_request_id: str | None = None, job_label: str | None = None, limit: int = 1_000
) -> tuple[JobRun, ...]:
    """Return runs, newest first."""
    conditions: list[str] = []
    values: list[Any] = []
    if build_request_id is not None:
        conditions.append("build_request_id = ?")
        values.append(build_request_id)
    if job_label is not None:
        conditions.append(f"{connection.without_index('job_label') if conditions else 'job_label'} = ?")
        values.append(job_label)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.query(f"SELECT {_RUN} FROM job_runs{where} ORDER BY first_idx DESC LIMIT ?", (*values, limit))
    return tuple(map(_run_of, rows))


def _run_of(row: Sequence[Any]) -> JobRun:
    run, label, build_id, status, targets, first_at, started, ended, first = row
    return JobRun(run, label, build_id, JobStatus(status), tuple(json.loads(targets)), first_at, started, ended, first)


def jobs(connection: Connection, limit: int) -> tuple[JobSummary, ...]:
    """Return a summary of each job, latest run first."""
    labels = connection.query(_LABELS, (limit,))
    return tuple(_job(connection, label) for label, _ in labels)


def _job(connection: Connection, label: str) -> JobSummary:
    counts = Counter(
        {
            JobStatus(status): number
            for status, number in connection.query(
                "SELECT status, count(*) FROM job_runs WHERE job_label = ? GROUP BY status", (label,)
            )
        }
    )
    total = sum(counts.values())
    ended = sum(counts[status] for status in FINISHED_JOBS)
    [(tasks,)] = connection.query(
        "SELECT count(*) FROM (SELECT DISTINCT build_request_id, targets FROM job_runs WHERE job_label = ?) AS tasks",
        (label,),
    )
    middle = connection.query(
        f"SELECT {_TAKEN} FROM job_runs WHERE job_label = ? AND ended_at IS NOT NULL ORDER BY 1 LIMIT 1 OFFSET ?",
        (label, (max(ended, 1) - 1) // 2),
    )
    [(longest,)] = connection.query(f"SELECT max({_TAKEN}) FROM job_runs WHERE job_label = ?", (label,))
    [last] = connection.query(
        f"SELECT {_RUN} FROM job_runs WHERE job_label = ? ORDER BY first_idx DESC LIMIT 1", (label,)
    )
    return JobSummary(
        label,
        total,
        counts[JobStatus.COMPLETED],
        counts[JobStatus.FAILED],
        counts[JobStatus.CANCELLED],
        total - ended,
        counts[JobStatus.COMPLETED] / ended if ended else None,
        total - tasks,
        max(0, middle[0][0]) if middle else None,
        max(0, longest) if longest is not None else None,
        _run_of(last),
    )


def edges(connection: Connection, refs: Sequence[str], *, upstream: bool) -> list[Edge]:
    """Return one edge for each pair of partitions, from its newest event, sorted by output and input."""
    column = "output_ref" if upstream else "input_ref"
    newest: dict[tuple[str, str], tuple[int, Edge]] = {}
    happened: set[tuple[str, str]] = set()
    for some in in_chunks(refs):
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
