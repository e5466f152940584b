"""Comparing two builds: their partitions, their jobs, their durations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from crannog.builds.results import BuildSummary, JobRun
from crannog.builds.statuses import PartitionStatus
from crannog.errors import NotFound

if TYPE_CHECKING:
    from crannog.builds.log import EventLog


@dataclass(frozen=True, slots=True)
class PartitionDifference:
    """A partition whose status differs; None where a build does not have it."""

    partition_ref: str
    first: PartitionStatus | None
    second: PartitionStatus | None


@dataclass(frozen=True, slots=True)
class JobDifference:
    """The runs of a job in each build, and how much longer the last run of the second one took."""

    job_label: str
    first_runs: int
    second_runs: int
    first: JobRun | None
    second: JobRun | None
    slower_ns: int | None

    @property
    def differs(self) -> bool:
        return self.first_runs != self.second_runs or (self.first and self.first.status) != (
            self.second and self.second.status
        )


@dataclass(frozen=True, slots=True)
class BuildComparison:
    """Two builds and where they differ; `slower_ns` is how much longer the second took."""

    first: BuildSummary
    second: BuildSummary
    slower_ns: int | None
    partitions: tuple[PartitionDifference, ...]
    same_partitions: int
    jobs: tuple[JobDifference, ...]


def compare(log: EventLog, first: str, second: str) -> BuildComparison:
    """Compare two builds of a log. Raises NotFound if the log does not have one of them."""
    one, other = _build(log, first), _build(log, second)
    ours, theirs = log.get_build_partitions(first), log.get_build_partitions(second)
    differences = tuple(
        PartitionDifference(ref, ours.get(ref), theirs.get(ref))
        for ref in sorted(ours.keys() | theirs.keys())
        if ours.get(ref) is not theirs.get(ref)
    )
    runs, other_runs = _by_label(log, first), _by_label(log, second)
    jobs = []
    for label in sorted(runs.keys() | other_runs.keys()):
        mine, yours = runs.get(label, []), other_runs.get(label, [])
        last, other_last = mine[0] if mine else None, yours[0] if yours else None
        jobs.append(
            JobDifference(
                label, len(mine), len(yours), last, other_last, _longer(_duration(last), _duration(other_last))
            )
        )
    same = len(ours.keys() | theirs.keys()) - len(differences)
    return BuildComparison(one, other, _longer(one.duration_ns, other.duration_ns), differences, same, tuple(jobs))


def _build(log: EventLog, name: str) -> BuildSummary:
    found = log.get_build(name)
    if found is None:
        raise NotFound(f"there is no build {name} in {log.uri}; list_build_requests() lists all builds")
    return found


def _by_label(log: EventLog, build: str) -> dict[str, list[JobRun]]:
    found: dict[str, list[JobRun]] = {}
    for run in log.list_job_runs(build_request_id=build, limit=100_000):
        found.setdefault(run.job_label, []).append(run)
    return found


def _duration(run: JobRun | None) -> int | None:
    return None if run is None else run.duration_ns


def _longer(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else second - first
