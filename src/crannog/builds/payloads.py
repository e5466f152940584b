"""The eight kinds of build events and the payload of each: values, checked when they are created, compared by content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from enum import IntEnum
from typing import Any, ClassVar, TypeVar

from crannog.builds.event_values import identifier, identifiers, json_value, optional_identifier, text
from crannog.builds.statuses import BuildRequestStatus, JobStatus, PartitionStatus, Status
from crannog.errors import BadRows

P = TypeVar("P", bound="Payload")


class Kind(IntEnum):
    """The kinds of events, in the order of the table's columns."""

    BUILD_REQUEST = 1
    PARTITION = 2
    JOB = 3
    DELEGATION = 4
    JOB_GRAPH = 5
    PARTITION_INVALIDATION = 6
    TASK_CANCEL = 7
    BUILD_CANCEL = 8

    @property
    def event_type(self) -> str:
        """The name in the `event_type` column."""
        return self.name.lower()

    @property
    def column(self) -> str:
        """The column that holds the payload of this kind."""
        return f"{self.name.lower()}_event"

    @classmethod
    def read(cls, given: Any) -> Kind:
        """Return the kind for an `event_type`. Raises BadRows for anything else."""
        if isinstance(given, Kind):
            return given
        found = cls.__members__.get(given.upper().removesuffix("_EVENT")) if isinstance(given, str) else None
        if found is None:
            raise BadRows(
                f"{given!r} is not a kind of event; the kinds are {', '.join(kind.event_type for kind in cls)}"
            )
        return found


class Payload:
    """What all payloads share: conversion to and from a dict, by their fields."""

    __slots__ = ()
    KIND: ClassVar[Kind]
    STATUS: ClassVar[type[Status] | None] = None
    FIELDS: ClassVar[tuple[str, ...]]
    REQUIRED: ClassVar[tuple[str, ...]]

    def as_dict(self) -> dict[str, Any]:
        """Return the payload in the shape of the table's struct, with nested JSON values."""
        found: dict[str, Any] = {}
        for name in self.FIELDS:
            value = getattr(self, name)
            if name == "status":
                found["status_code"], found["status_name"] = value.code, value.label
            else:
                found[name] = list(value) if type(value) is tuple else value
        return found

    @classmethod
    def from_dict(cls: type[P], given: Any) -> P:
        """Read a payload. Raises BadRows if a field is missing, unknown or inconsistent."""
        where = cls.KIND.column
        if not isinstance(given, Mapping):
            raise BadRows(f"{where} is an object, got {type(given).__name__}")
        values = {name: value for name, value in given.items() if value is not None}
        if cls.STATUS is not None and "status" not in values:
            if "status_code" not in values or "status_name" not in values:
                raise BadRows(f"{where} needs status_code and status_name")
            values["status"] = cls.STATUS.of_code_and_name(values.pop("status_code"), values.pop("status_name"))
        unknown = values.keys() - set(cls.FIELDS)
        if unknown:
            raise BadRows(f"{where} has no field {sorted(unknown)[0]}; it has {', '.join(cls.FIELDS)}")
        missing = [name for name in cls.REQUIRED if name not in values]
        if missing:
            raise BadRows(f"{where} needs {missing[0]}")
        return cls(**values)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class BuildRequestEvent(Payload):
    """A build was requested, or its status changed."""

    KIND = Kind.BUILD_REQUEST
    STATUS = BuildRequestStatus
    status: BuildRequestStatus
    requested_partitions: tuple[str, ...] = ()
    message: str = ""

    def __post_init__(self) -> None:
        self._set(
            status=BuildRequestStatus.read(self.status),
            requested_partitions=identifiers(self.requested_partitions, "requested_partitions"),
            message=text(self.message, "message"),
        )


@dataclass(frozen=True, slots=True)
class PartitionEvent(Payload):
    """The status of a partition changed."""

    KIND = Kind.PARTITION
    STATUS = PartitionStatus
    partition_ref: str
    status: PartitionStatus
    message: str = ""
    job_run_id: str | None = None

    def __post_init__(self) -> None:
        self._set(
            partition_ref=identifier(self.partition_ref, "partition_ref"),
            status=PartitionStatus.read(self.status),
            message=text(self.message, "message"),
            job_run_id=optional_identifier(self.job_run_id, "job_run_id"),
        )


@dataclass(frozen=True, slots=True)
class JobEvent(Payload):
    """The status of a job run changed; `config` and `manifests` are any JSON, typed models, or None."""

    KIND = Kind.JOB
    STATUS = JobStatus
    job_run_id: str
    job_label: str
    target_partitions: tuple[str, ...]
    status: JobStatus
    message: str = ""
    config: Any = None
    manifests: Any = None

    def __post_init__(self) -> None:
        self._set(
            job_run_id=identifier(self.job_run_id, "job_run_id"),
            job_label=identifier(self.job_label, "job_label"),
            target_partitions=identifiers(self.target_partitions, "target_partitions"),
            status=JobStatus.read(self.status),
            message=text(self.message, "message"),
            config=json_value(self.config, "config"),
            manifests=json_value(self.manifests, "manifests"),
        )


@dataclass(frozen=True, slots=True)
class DelegationEvent(Payload):
    """A build delegates a partition to another build that is making it already."""

    KIND = Kind.DELEGATION
    partition_ref: str
    delegated_to_build_request_id: str
    message: str = ""

    def __post_init__(self) -> None:
        self._set(
            partition_ref=identifier(self.partition_ref, "partition_ref"),
            delegated_to_build_request_id=identifier(
                self.delegated_to_build_request_id, "delegated_to_build_request_id"
            ),
            message=text(self.message, "message"),
        )


@dataclass(frozen=True, slots=True)
class JobGraphEvent(Payload):
    """The plan of a build; `job_graph` is any JSON, a `JobGraph`, or None."""

    KIND = Kind.JOB_GRAPH
    job_graph: Any = None
    message: str = ""

    def __post_init__(self) -> None:
        self._set(job_graph=json_value(self.job_graph, "job_graph"), message=text(self.message, "message"))


@dataclass(frozen=True, slots=True)
class PartitionInvalidationEvent(Payload):
    """A partition is invalid and must be built again."""

    KIND = Kind.PARTITION_INVALIDATION
    partition_ref: str
    reason: str = ""

    def __post_init__(self) -> None:
        self._set(partition_ref=identifier(self.partition_ref, "partition_ref"), reason=text(self.reason, "reason"))


@dataclass(frozen=True, slots=True)
class TaskCancelEvent(Payload):
    """A job run must stop."""

    KIND = Kind.TASK_CANCEL
    job_run_id: str
    reason: str = ""

    def __post_init__(self) -> None:
        self._set(job_run_id=identifier(self.job_run_id, "job_run_id"), reason=text(self.reason, "reason"))


@dataclass(frozen=True, slots=True)
class BuildCancelEvent(Payload):
    """A build must stop."""

    KIND = Kind.BUILD_CANCEL
    reason: str = ""

    def __post_init__(self) -> None:
        self._set(reason=text(self.reason, "reason"))


AnyPayload = (
    BuildRequestEvent
    | PartitionEvent
    | JobEvent
    | DelegationEvent
    | JobGraphEvent
    | PartitionInvalidationEvent
    | TaskCancelEvent
    | BuildCancelEvent
)
PAYLOADS: dict[Kind, type[AnyPayload]] = {
    payload.KIND: payload
    for payload in (
        BuildRequestEvent,
        PartitionEvent,
        JobEvent,
        DelegationEvent,
        JobGraphEvent,
        PartitionInvalidationEvent,
        TaskCancelEvent,
        BuildCancelEvent,
    )
}
for _payload in PAYLOADS.values():
    _payload.FIELDS = tuple(one.name for one in fields(_payload))
    _payload.REQUIRED = tuple(one.name for one in fields(_payload) if one.default is MISSING)
