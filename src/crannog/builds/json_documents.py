"""The documents `config`, `manifests` and `job_graph`: typed models to write them, tolerant functions to read them.

An event stores these documents as the JSON it was given, whatever that is. The models are a convenience for writers;
the functions below read what they understand and ignore the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crannog.builds.event_values import DepType


@dataclass(frozen=True, slots=True)
class DataDep:
    """An input of a job."""

    partition_ref: str
    dep_type: DepType = DepType.MATERIALIZE

    def as_json(self) -> dict[str, Any]:
        return {"dep_type": DepType.read(self.dep_type).label, "partition_ref": self.partition_ref}


@dataclass(frozen=True, slots=True)
class JobConfig:
    """The outputs, inputs, arguments and environment of a job run."""

    outputs: Sequence[str] = ()
    inputs: Sequence[DataDep] = ()
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "outputs": list(self.outputs),
            "inputs": [dep.as_json() for dep in self.inputs],
            "args": list(self.args),
            "env": dict(self.env),
        }


@dataclass(frozen=True, slots=True)
class Task:
    """One node of a plan: a job and its configuration."""

    job: str
    config: JobConfig = field(default_factory=JobConfig)

    def as_json(self) -> dict[str, Any]:
        return {"job": {"label": self.job}, "config": self.config.as_json()}


@dataclass(frozen=True, slots=True)
class PartitionManifest:
    """The outputs and inputs of a job run, its times (seconds since 1970) and its task."""

    outputs: Sequence[str] = ()
    inputs: Sequence[PartitionManifest | str] = ()
    start_time: int = 0
    end_time: int = 0
    task: Task | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "outputs": list(self.outputs),
            "inputs": [one if isinstance(one, str) else one.as_json() for one in self.inputs],
            "start_time": self.start_time,
            "end_time": self.end_time,
            "task": None if self.task is None else self.task.as_json(),
            "metadata": dict(self.metadata),
        }


@dataclass(frozen=True, slots=True)
class JobGraph:
    """The plan of a build."""

    label: str = ""
    outputs: Sequence[str] = ()
    nodes: Sequence[Task] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "label": {"label": self.label},
            "outputs": list(self.outputs),
            "nodes": [node.as_json() for node in self.nodes],
        }


def partition_of(value: Any) -> str | None:
    """Return the partition that a JSON value names: text, or an object that contains it."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, Mapping):
        for name in ("partition_ref", "str", "ref"):
            if name in value:
                return partition_of(value[name])
    return None


def label_of(value: Any) -> str:
    """Return the label of a job or graph: text, or an object that contains it."""
    while isinstance(value, Mapping):
        value = value.get("label")
    return value if isinstance(value, str) else ""


def refs_of(values: Any) -> list[str]:
    """Return the partitions in a list; an input that is a manifest counts as its outputs."""
    found: list[str] = []
    for value in values if isinstance(values, list) else []:
        ref = partition_of(value)
        if ref is not None:
            found.append(ref)
        elif isinstance(value, Mapping) and "outputs" in value:
            found.extend(refs_of(value["outputs"]))
    return found


def made_from(document: Any) -> Iterator[tuple[str, str]]:
    """Yield each (output, input) pair in a config, a manifest, or a list of them."""
    documents = document if isinstance(document, list) else [document]
    for one in documents:
        if not isinstance(one, Mapping):
            continue
        inputs = refs_of(one.get("inputs"))
        for output in refs_of(one.get("outputs")):
            for source in inputs:
                yield output, source
        # Manifests nest: an input that is a manifest has inputs of its own.
        listed = one.get("inputs")
        for inner in listed if isinstance(listed, list) else []:
            if isinstance(inner, Mapping) and "outputs" in inner:
                yield from made_from(inner)
