"""The same random events in every kind of log: every question has the same answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from build_logs import place_of
from build_samples import random_stream
from build_server import build_server  # noqa: F401
from crannog.builds import BuildRequestStatus, EventLog, JobStatus, mermaid, plain
from crannog.errors import NotFound
from postgres_server import postgres  # noqa: F401

REFS = [f"data/{name}/{day}" for name in ("raw", "clean", "größe", "a*b") for day in range(6)]
BUILDS = [f"build-{number}" for number in range(8)]


def drawn(log: EventLog, build: str) -> str:
    try:
        return mermaid(log, build)
    except NotFound:
        return "none"


QUESTIONS: dict[str, Callable[[EventLog], Any]] = {
    "events": lambda log: [(event.index, event.as_json()) for event in log.all_events()],
    "pages down": lambda log: [log.list_events(since, 7, descending=True) for since in range(0, 200, 31)],
    "by build": lambda log: [log.get_build_request_events(build, since=20) for build in BUILDS],
    "by partition": lambda log: [log.get_partition_events(ref) for ref in REFS],
    "by glob": lambda log: [
        log.list_events(partition_globs=[glob])
        for glob in ("data/*", "*/[0-2]", "data/[!r]*", "*[*]*", "data/???/?", "[", "a]")
    ],
    "by run": lambda log: [log.get_job_run_events(f"run-{number}") for number in range(12)],
    "by label": lambda log: [log.list_events(job_labels=[f"//jobs:{number}", "x"]) for number in range(4)],
    "by time": lambda log: [log.get_events_in_range(start, start + 10**11) for start in range(0, 10**12, 10**11)],
    "partition status": lambda log: [log.get_latest_partition_status(ref) for ref in REFS],
    "active builds": lambda log: [log.get_active_builds_for_partition(ref) for ref in REFS],
    "builds": lambda log: [log.list_build_requests(status, 3, 1) for status in (None, *BuildRequestStatus)],
    "one build": lambda log: [(log.get_build(build), log.get_build_partitions(build)) for build in BUILDS],
    "recent partitions": lambda log: log.list_recent_partitions(100),
    "jobs": lambda log: log.list_jobs(),
    "job runs": lambda log: [log.list_job_runs(build, limit=5) for build in BUILDS],
    "activity": lambda log: log.get_activity_summary(),
    "manifests": lambda log: [log.get_manifests(build) for build in BUILDS],
    "lineage": lambda log: [log.get_lineage(ref, way) for ref in REFS for way in ("upstream", "downstream")],
    "graph": lambda log: [drawn(log, build) for build in BUILDS],
    "prunable": lambda log: [
        log.list_prunable(before, keep, 1000) for before in (None, 5 * 10**11) for keep in (None, 50)
    ],
    "past": lambda log: plain(log.as_of(60).get_activity_summary()),
    "counts": lambda log: {**plain(log.stats()), "uri": "", "bytes": 0, "store": {}},
}


@pytest.mark.parametrize("seed", [1, 2])
def test_all_logs_answer_alike(seed: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    places = {
        kind: place_of(kind, tmp_path, request.getfixturevalue)
        for kind in ("memory", "sqlite", "delta", "postgresql", "http")
    }
    logs = {kind: place.open() for kind, place in places.items()}
    events = list(random_stream(seed, 180))
    try:
        for log in logs.values():
            log.append_events(events[:100])
            for event in events[100:120]:
                log.append_event(event)
            log.remove_events(range(30, 60, 2))
            log.append_events(events[110:])
        for name, question in QUESTIONS.items():
            wanted = question(logs["memory"])
            for kind, log in logs.items():
                assert question(log) == wanted, f"{name} differs on {kind}"
        assert any(run.status is JobStatus.COMPLETED for run in logs["memory"].list_job_runs())
    finally:
        for place in places.values():
            place.close()
