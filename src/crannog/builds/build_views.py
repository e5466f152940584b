"""Views of builds, computed from reads of a log: two builds compared, and the plan of a build as nodes and edges or as a mermaid flowchart."""

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


@dataclass(frozen=True, slots=True)
class JobNode:
    """A job in the plan of a build: its partitions, the state of its newest run, and that run, if there is one.

    States are planned, scheduled, running, completed, failed and cancelled.
    """

    id: int
    job_label: str
    state: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    job_run_id: str | None


@dataclass(frozen=True, slots=True)
class JobEdge:
    """A partition that one job makes and another reads; `source` is null if no job of the plan makes it."""

    source: int | None
    target: int
    partition_ref: str


@dataclass(frozen=True, slots=True)
class JobGraphView:
    """The plan of a build as nodes and edges."""

    nodes: tuple[JobNode, ...]
    edges: tuple[JobEdge, ...]


def job_graph(log: EventLog, build_request_id: str) -> JobGraphView:
    """Return the job graph of a build: jobs, the partitions between them, and their states. Raises NotFound if it has none."""
    graph = stored_graph(log, build_request_id)
    return graph_view(graph, log.list_job_runs(build_request_id=build_request_id, limit=100_000))


def graph_view(graph: Any, runs: list[JobRun]) -> JobGraphView:
    """Return the nodes and edges of a graph, which may be any JSON: what is not a node is ignored."""
    listed = graph.get("nodes") if isinstance(graph, Mapping) else None
    given = [node for node in listed if isinstance(node, Mapping)] if isinstance(listed, list) else []
    nodes: list[JobNode] = []
    makers: dict[str, list[int]] = {}
    for number, node in enumerate(given):
        label, outputs = label_of(node.get("job")) or f"job {number + 1}", _config(node, "outputs")
        run = _newest_run(label, outputs, runs)
        state = _CLASSES.get(run.status, "planned") if run is not None else "planned"
        run_id = run.job_run_id if run is not None else None
        nodes.append(JobNode(number, label, state, tuple(_config(node, "inputs")), tuple(outputs), run_id))
        for ref in outputs:
            makers.setdefault(ref, []).append(number)
    edges = [
        JobEdge(maker, node.id, ref)
        for node in nodes
        for ref in node.inputs
        for maker in makers.get(ref, [None])
        if maker != node.id
    ]
    return JobGraphView(tuple(nodes), tuple(dict.fromkeys(edges)))


def mermaid(log: EventLog, build_request_id: str) -> str:
    """Return the job graph of a build as a flowchart: jobs, the partitions between them, and their status."""
    return draw(job_graph(log, build_request_id))


def draw(graph: JobGraphView) -> str:
    """Return the flowchart of a graph."""
    lines = ["flowchart LR"]
    lines += [f'    j{node.id}["{_quoted(node.job_label)}"]:::{node.state}' for node in graph.nodes]
    sources = {
        ref: place for place, ref in enumerate(dict.fromkeys(e.partition_ref for e in graph.edges if e.source is None))
    }
    lines += [f'    p{place}(["{_quoted(ref)}"])' for ref, place in sources.items()]
    lines += [
        f"    p{sources[edge.partition_ref]} --> j{edge.target}"
        if edge.source is None
        else f'    j{edge.source} -->|"{_quoted(edge.partition_ref)}"| j{edge.target}'
        for edge in graph.edges
    ]
    lines += [f"    classDef {name} {style}" for name, style in _COLOURS.items()]
    return "\n".join(lines) + "\n"


def _config(node: Mapping[str, Any], name: str) -> list[str]:
    config = node.get("config")
    return refs_of(config.get(name)) if isinstance(config, Mapping) else []


def _newest_run(label: str, outputs: list[str], runs: list[JobRun]) -> JobRun | None:
    """Return the newest run of a job that makes these partitions."""
    return next(
        (run for run in runs if run.job_label == label and (not outputs or set(outputs) & set(run.target_partitions))),
        None,
    )


def _quoted(text: str) -> str:
    """Return text that mermaid shows unchanged and that cannot end its label."""
    return "".join(f"#{ord(letter)};" if letter in '"#<>&`|[]{}\\' or ord(letter) < 32 else letter for letter in text)
