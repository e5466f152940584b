"""The plan of a build as a mermaid flowchart, each job in the colour of its status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crannog.builds.events import JobGraphEvent, Kind
from crannog.builds.json_documents import label_of, refs_of
from crannog.builds.results import JobRun
from crannog.builds.statuses import JobStatus
from crannog.errors import NotFound

if TYPE_CHECKING:
    from crannog.builds.log import EventLog

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
