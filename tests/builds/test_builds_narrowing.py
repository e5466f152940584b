"""Whichever condition of a filter leads to its events, they are the ones that match, in their order."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from build_logs import place_of
from build_samples import random_stream
from crannog.builds import BuildEvent, JobEvent, TaskCancelEvent
from crannog.builds.read_model import event_queries
from crannog.builds.read_model.apply import partitions_of
from postgres_server import postgres  # noqa: F401

HALF = 5 * 10**11
FILTERS: list[dict[str, Any]] = [
    {"partition_globs": ["data/*"]},
    {"partition_globs": ["*/3"]},
    {"partition_globs": ["data/cl*", "*größe/[0-2]"], "partition_refs": ["data/raw/1", "data/raw/2"]},
    {"partition_globs": ["nothing/*"]},
    {"partition_globs": ["*"], "job_labels": ["//jobs:1"], "end_ns": HALF},
    {"partition_refs": ["data/raw/1"], "kinds": ["job", "partition"]},
    {"start_ns": HALF},
    {"end_ns": HALF, "kinds": ["job"]},
    {"start_ns": HALF, "end_ns": HALF + 10**11, "job_labels": ["//jobs:1", "//jobs:2"]},
    {"start_ns": HALF, "build_request_ids": ["build-1", "build-2"], "kinds": ["partition"]},
    {"job_run_ids": ["run-3"], "build_request_ids": ["build-1", "build-2"], "job_labels": ["//jobs:3"]},
    {"start_ns": 2, "end_ns": 1},
]


def matches(event: BuildEvent, wanted: dict[str, Any]) -> bool:
    """Say for one event, without any index, what the log says for all."""
    payload, refs = event.payload, partitions_of(event)
    checks = {
        "job_labels": lambda value: isinstance(payload, JobEvent) and payload.job_label in value,
        "job_run_ids": lambda value: isinstance(payload, (JobEvent, TaskCancelEvent)) and payload.job_run_id in value,
        "build_request_ids": lambda value: event.build_request_id in value,
        "kinds": lambda value: event.event_type in value,
        "start_ns": lambda value: event.timestamp >= value,
        "end_ns": lambda value: event.timestamp <= value,
    }
    globs, exact = wanted.get("partition_globs", []), wanted.get("partition_refs", [])
    about = (not globs and not exact) or any(
        ref in exact or any(fnmatchcase(ref, glob) for glob in globs) for ref in refs
    )
    return about and all(check(wanted[name]) for name, check in checks.items() if name in wanted)


@pytest.mark.parametrize("kind", ["memory", "postgresql"])
def test_every_way_finds_the_same_events(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(kind, tmp_path, request.getfixturevalue)
    log = place.open()
    log.append_events(random_stream(3, 300))
    everything = list(log.all_events())
    # As they are, all of this is few; smaller, it is a log in which names or events are many.
    for limits in (
        {},
        {"_FEW_EVENTS": 3},
        {"_SHORT_LOG": 0},
        {"_SHORT_LOG": 0, "_FEW_EVENTS": 3},
        {"_SHORT_LOG": 0, "_FEW_EVENTS": 3, "_FEW_NAMES": 2},
        {"_SHORT_LOG": 0, "_MOST_NAMES": 4},
    ):
        with monkeypatch.context() as patch:
            for name, limit in limits.items():
                patch.setattr(event_queries, name, limit)
            for wanted in FILTERS:
                right = [event.index for event in everything if matches(event, wanted)]
                assert [event.index for event in log.all_events(**wanted)] == right, (limits, wanted)
                down = log.list_events(200, 20, descending=True, **wanted)
                assert [event.index for event in down.events] == [index for index in reversed(right) if index < 200][
                    :20
                ], (limits, wanted)
    place.close()
