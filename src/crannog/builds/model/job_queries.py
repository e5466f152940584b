"""Jobs and their runs, from the read model. Nothing here writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from crannog.builds.model.connection import Connection
from crannog.builds.results import JobRun, JobSummary
from crannog.builds.statuses import JobStatus

_RUN = "job_run_id, job_label, build_request_id, status, targets, first_at, started_at, ended_at, first_idx"



def job_runs(connection: Connection, *, build_request_id: str | None = None, job_label: str | None = None, limit: int = 1_000) -> tuple[JobRun, ...]:
    """Return runs, newest first."""
    conditions, values = ["1 = 1"], []
    for column, value in (("build_request_id", build_request_id), ("job_label", job_label)):
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    rows = connection.query(f"SELECT {_RUN} FROM job_runs WHERE {' AND '.join(conditions)} ORDER BY first_idx DESC LIMIT ?", (*values, limit))
    return tuple(map(_run_of, rows))


def _run_of(row: Sequence[Any]) -> JobRun:
    run, label, build_id, status, targets, first_at, started, ended, first = row
    return JobRun(run, label, build_id, JobStatus(status), tuple(json.loads(targets)), first_at, started, ended, first)


def jobs(connection: Connection, limit: int) -> tuple[JobSummary, ...]:
    """Return each job with what its runs tell, the one that ran last first."""
    labels = connection.query("SELECT job_label, max(first_idx) FROM job_runs GROUP BY job_label ORDER BY 2 DESC LIMIT ?", (limit,))
    return tuple(_job(connection, label) for label, _ in labels)


def _job(connection: Connection, label: str) -> JobSummary:
    counts = Counter(
        {JobStatus(status): number for status, number in connection.query("SELECT status, count(*) FROM job_runs WHERE job_label = ? GROUP BY status", (label,))}
    )
    total = sum(counts.values())
    ended = sum(counts[status] for status in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED))
    [(tasks,)] = connection.query(
        "SELECT count(*) FROM (SELECT DISTINCT build_request_id, targets FROM job_runs WHERE job_label = ?) AS tasks", (label,)
    )
    durations = [
        max(0, taken)
        for (taken,) in connection.query(
            "SELECT ended_at - COALESCE(started_at, first_at) FROM job_runs WHERE job_label = ? AND ended_at IS NOT NULL ORDER BY 1", (label,)
        )
    ]
    [last] = connection.query(f"SELECT {_RUN} FROM job_runs WHERE job_label = ? ORDER BY first_idx DESC LIMIT 1", (label,))
    return JobSummary(
        label,
        total,
        counts[JobStatus.COMPLETED],
        counts[JobStatus.FAILED],
        counts[JobStatus.CANCELLED],
        total - ended,
        counts[JobStatus.COMPLETED] / ended if ended else None,
        total - tasks,
        durations[(len(durations) - 1) // 2] if durations else None,
        durations[-1] if durations else None,
        _run_of(last),
    )
