"""Build events for tests: one of each kind, whole builds, and random streams."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from crannog.builds import (
    BuildCancelEvent,
    BuildEvent,
    BuildRequestEvent,
    BuildRequestStatus,
    DelegationEvent,
    JobEvent,
    JobGraphEvent,
    JobStatus,
    PartitionEvent,
    PartitionInvalidationEvent,
    PartitionStatus,
    TaskCancelEvent,
)

NESTED = {"deep": [1, 1.5, 2**70, -0.0, None, True, {"ü": "\u0000\n\"'", "": []}], "z": 1, "a": 2}


def one_of_each(build: str = "b1", start: int = 1_700_000_000_000_000_000) -> list[BuildEvent]:
    """The eight kinds, with every field set."""
    payloads = [
        BuildRequestEvent(BuildRequestStatus.RECEIVED, ["p/1", "p/2"], "asked"),
        PartitionEvent("p/1", PartitionStatus.BUILDING, "at work", "run-1"),
        JobEvent(
            "run-1",
            "//job:one",
            ["p/1"],
            JobStatus.RUNNING,
            "go",
            NESTED,
            [NESTED, {"outputs": ["p/1"], "inputs": ["p/0"]}],
        ),
        DelegationEvent("p/2", "b0", "theirs"),
        JobGraphEvent({"nodes": [{"job": {"label": "//job:one"}, "config": NESTED}]}, "planned"),
        PartitionInvalidationEvent("p/1", "stale"),
        TaskCancelEvent("run-1", "too slow"),
        BuildCancelEvent("enough"),
    ]
    return [BuildEvent(f"{build}-{place}", start + place, build, payload) for place, payload in enumerate(payloads)]


def request(build: str, status: BuildRequestStatus, *partitions: str, at: int = 0, n: str = "") -> BuildEvent:
    return BuildEvent(f"{build}:{status.name}{n}", at, build, BuildRequestEvent(status, partitions))


def partition(
    build: str, ref: str, status: PartitionStatus, *, at: int = 0, n: str = "", run: str | None = None
) -> BuildEvent:
    return BuildEvent(f"{build}:{ref}:{status.name}{n}", at, build, PartitionEvent(ref, status, "", run))


def job(
    build: str, run: str, status: JobStatus, *targets: str, label: str = "//job", at: int = 0, **documents: Any
) -> BuildEvent:
    return BuildEvent(f"{build}:{run}:{status.name}", at, build, JobEvent(run, label, targets, status, **documents))


def whole_build(
    build: str, refs: list[str], *, at: int = 1, failed: bool = False, sources: list[str] | None = None
) -> list[BuildEvent]:
    """A build from its request to its end, one job per partition, a second of time between events."""
    run = f"{build}-run"
    inputs = sources or []
    end = (
        (JobStatus.FAILED, PartitionStatus.FAILED, BuildRequestStatus.FAILED)
        if failed
        else (JobStatus.COMPLETED, PartitionStatus.AVAILABLE, BuildRequestStatus.COMPLETED)
    )
    manifests = None if failed else [{"outputs": refs, "inputs": inputs}]
    config = {"outputs": refs, "inputs": [{"dep_type": "MATERIALIZE", "partition_ref": ref} for ref in inputs]}
    events = [
        request(build, BuildRequestStatus.RECEIVED, *refs),
        request(build, BuildRequestStatus.PLANNING, *refs),
        BuildEvent(
            f"{build}:graph", 0, build, JobGraphEvent({"nodes": [{"job": {"label": "//job"}, "config": config}]})
        ),
        request(build, BuildRequestStatus.EXECUTING, *refs),
        job(build, run, JobStatus.SCHEDULED, *refs, config=config),
        job(build, run, JobStatus.RUNNING, *refs),
        *[partition(build, ref, PartitionStatus.BUILDING, run=run) for ref in refs],
        job(build, run, end[0], *refs, manifests=manifests),
        *[partition(build, ref, end[1], run=run) for ref in refs],
        request(build, end[2], *refs),
    ]
    second = 1_000_000_000
    return [
        BuildEvent(event.event_id, (at + place) * second, event.build_request_id, event.payload)
        for place, event in enumerate(events)
    ]


def random_stream(seed: int, count: int) -> Iterator[BuildEvent]:
    """A stream of any kinds over few builds, partitions and jobs, so that they meet."""
    dice = random.Random(seed)
    refs = [f"data/{name}/{day}" for name in ("raw", "clean", "größe", "a*b") for day in range(6)]
    builds = [f"build-{number}" for number in range(8)]
    runs = [(f"run-{number}", f"//jobs:{number % 4}") for number in range(12)]
    for number in range(count):
        build, ref, (run, label) = dice.choice(builds), dice.choice(refs), dice.choice(runs)
        some = dice.sample(refs, dice.randint(0, 3))
        document = dice.choice([None, NESTED, [], 7, {"outputs": some, "inputs": dice.sample(refs, 2)}])
        text = dice.choice(["", "ok", "naïve ☃ \u0000 \t", "x" * 300])
        payload = [
            BuildRequestEvent(dice.choice(list(BuildRequestStatus)), some, text),
            PartitionEvent(ref, dice.choice(list(PartitionStatus)), text, dice.choice([None, run])),
            JobEvent(run, label, some, dice.choice(list(JobStatus)), text, document, document),
            DelegationEvent(ref, dice.choice(builds), text),
            JobGraphEvent(document, text),
            PartitionInvalidationEvent(ref, text),
            TaskCancelEvent(run, text),
            BuildCancelEvent(text),
        ][dice.randrange(8)]
        yield BuildEvent(f"event-{seed}-{number}", dice.randint(0, 10**12), build, payload)
