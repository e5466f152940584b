"""Views of builds, computed from reads of a log: two builds compared, and the plan of a build as a mermaid flowchart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crannog.builds.event_values import JobStatus, PartitionStatus
from crannog.builds.events import JobGraphEvent, Kind
from crannog.builds.json_documents import label_of, refs_of
from crannog.builds.results import BuildSummary, JobRun
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


_COLOURS = {
    "planned": "fill:#eeeeee,stroke:#999999,color:#333333",
    "scheduled": "fill:#dbeafe,stroke:#3b82f6,color:#1e3a8a",
    "running": "fill:#fef3c7,stroke:#f59e0b,color:#78350f",
    "completed": "fill:#dcfce7,stroke:#22c55e,color:#14532d",
    "failed": "fill:#fee2e2,stroke:#ef4444,color:#7f1d1d",
    "cancelled": "fill:#f3e8ff,stroke:#a855f7,color:#581c87",
}
_CLASSES = {
    JobStatus.SCHEDULED: "scheduled",
    JobStatus.RUNNING: "running",
    JobStatus.COMPLETED: "completed",
    JobStatus.FAILED: "failed",
    JobStatus.CANCELLED: "cancelled",
}


def stored_graph(log: EventLog, build_request_id: str) -> Any:
    """Return the last job graph of a build. Raises NotFound if it has none."""
    page = log.list_events(limit=1, descending=True, build_request_id=build_request_id, kinds=[Kind.JOB_GRAPH])
    if not page.events:
        raise NotFound(f"build {build_request_id} has no job graph in {log.uri}")
    payload = page.events[0].payload
    assert isinstance(payload, JobGraphEvent)
    return payload.job_graph


def mermaid(log: EventLog, build_request_id: str) -> str:
    """Return the job graph of a build as a flowchart: jobs, the partitions between them, and their status."""
    graph = stored_graph(log, build_request_id)
    return draw(graph, log.list_job_runs(build_request_id=build_request_id, limit=100_000))


def draw(graph: Any, runs: list[JobRun]) -> str:
    """Return the flowchart of a graph, which may be any JSON: what is not a node is ignored."""
    listed = graph.get("nodes") if isinstance(graph, Mapping) else None
    nodes = [node for node in listed if isinstance(node, Mapping)] if isinstance(listed, list) else []
    lines = ["flowchart LR"]
    makers: dict[str, list[int]] = {}
    for number, node in enumerate(nodes):
        for ref in _config(node, "outputs"):
            makers.setdefault(ref, []).append(number)
    sources: dict[str, int] = {}
    arrows: list[str] = []
    for number, node in enumerate(nodes):
        label, outputs = label_of(node.get("job")) or f"job {number + 1}", _config(node, "outputs")
        state = _state(label, outputs, runs)
        lines.append(f'    j{number}["{_quoted(label)}"]:::{state}')
        for ref in _config(node, "inputs"):
            if ref in makers:
                arrows.extend(
                    f'    j{maker} -->|"{_quoted(ref)}"| j{number}' for maker in makers[ref] if maker != number
                )
            else:
                place = sources.setdefault(ref, len(sources))
                arrows.append(f"    p{place} --> j{number}")
    lines += [f'    p{place}(["{_quoted(ref)}"])' for ref, place in sources.items()]
    lines += dict.fromkeys(arrows)
    lines += [f"    classDef {name} {style}" for name, style in _COLOURS.items()]
    return "\n".join(lines) + "\n"


def _config(node: Mapping[str, Any], name: str) -> list[str]:
    config = node.get("config")
    return refs_of(config.get(name)) if isinstance(config, Mapping) else []


def _state(label: str, outputs: list[str], runs: list[JobRun]) -> str:
    """Return the status of the newest run of a job that makes these partitions."""
    for run in runs:
        if run.job_label == label and (not outputs or set(outputs) & set(run.target_partitions)):
            return _CLASSES.get(run.status, "planned")
    return "planned"


def _quoted(text: str) -> str:
    """Return text that mermaid shows unchanged and that cannot end its label."""
    return "".join(f"#{ord(letter)};" if letter in '"#<>&`|[]{}\\' or ord(letter) < 32 else letter for letter in text)
