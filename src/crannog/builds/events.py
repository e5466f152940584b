"""A build event: the envelope, and the eight kinds of payloads.

Events and payloads are values: checked when they are created, frozen, compared by content, the same from every
store. As JSON an event has the shape of the table: the envelope, and the payload under the name of its kind (`job_event`, …).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import IntEnum
from typing import Any, ClassVar, TypeVar, get_args

from crannog.builds.event_values import (
    BuildRequestStatus,
    JobStatus,
    PartitionStatus,
    Status,
    identifier,
    identifiers,
    json_value,
    optional_identifier,
    text,
    timestamp,
    to_json,
)
from crannog.errors import BadRows

P = TypeVar("P", bound="Payload")
Check = Callable[[Any, str], Any]
_CHECKS: dict[str, Check] = {
    "requested_partitions": identifiers,
    "target_partitions": identifiers,
    "message": text,
    "reason": text,
    "config": json_value,
    "manifests": json_value,
    "job_graph": json_value,
}
_set = object.__setattr__


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
    CHECKS: ClassVar[tuple[tuple[str, Check], ...]]

    def __post_init__(self) -> None:
        for name, check in self.CHECKS:
            _set(self, name, check(getattr(self, name), name))

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


@dataclass(frozen=True, slots=True)
class BuildRequestEvent(Payload):
    """A build was requested, or its status changed."""

    KIND = Kind.BUILD_REQUEST
    STATUS = BuildRequestStatus
    status: BuildRequestStatus
    requested_partitions: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class PartitionEvent(Payload):
    """The status of a partition changed."""

    KIND = Kind.PARTITION
    STATUS = PartitionStatus
    partition_ref: str
    status: PartitionStatus
    message: str = ""
    job_run_id: str | None = None


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


@dataclass(frozen=True, slots=True)
class DelegationEvent(Payload):
    """A build delegates a partition to another build that is making it already."""

    KIND = Kind.DELEGATION
    partition_ref: str
    delegated_to_build_request_id: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class JobGraphEvent(Payload):
    """The plan of a build; `job_graph` is any JSON, a `JobGraph`, or None."""

    KIND = Kind.JOB_GRAPH
    job_graph: Any = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class PartitionInvalidationEvent(Payload):
    """A partition is invalid and must be built again."""

    KIND = Kind.PARTITION_INVALIDATION
    partition_ref: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TaskCancelEvent(Payload):
    """A job run must stop."""

    KIND = Kind.TASK_CANCEL
    job_run_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BuildCancelEvent(Payload):
    """A build must stop."""

    KIND = Kind.BUILD_CANCEL
    reason: str = ""


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
# By kind, or its number.
PAYLOADS: dict[int, type[AnyPayload]] = {payload.KIND: payload for payload in get_args(AnyPayload)}


def _check_of(payload: type[AnyPayload], field: Field[Any]) -> Check:
    """Return the check of a field: other fields than those of `_CHECKS` are identifiers."""
    if field.name == "status":
        assert payload.STATUS is not None
        read = payload.STATUS.read
        return lambda status, _: read(status)
    return _CHECKS.get(field.name, optional_identifier if field.default is None else identifier)


for _payload in PAYLOADS.values():
    _payload.FIELDS = tuple(one.name for one in fields(_payload))
    _payload.REQUIRED = tuple(one.name for one in fields(_payload) if one.default is MISSING)
    _payload.CHECKS = tuple((one.name, _check_of(_payload, one)) for one in fields(_payload))


@dataclass(frozen=True, slots=True)
class BuildEvent:
    """One event: what happened in a build, when, and the id under which a log stores it once.

    `index` is its position in commit order once a log has assigned one; it is not part of the event and not compared.
    """

    event_id: str
    timestamp: int
    build_request_id: str
    payload: AnyPayload
    index: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        identifier(self.event_id, "event_id")
        timestamp(self.timestamp, "timestamp")
        identifier(self.build_request_id, "build_request_id")
        if type(self.payload) not in _KNOWN_PAYLOADS:
            raise BadRows(f"payload must be one of the eight kinds of events, got {type(self.payload).__name__}")

    @classmethod
    def new(cls, build_request_id: str, payload: AnyPayload) -> BuildEvent:
        """Return an event with the present time and a new id."""
        return cls(str(uuid.uuid4()), time.time_ns(), build_request_id, payload)

    def at(self, index: int | None) -> BuildEvent:
        """Return the event with an index, without checking it again."""
        return stored_event(self.event_id, self.timestamp, self.build_request_id, self.payload, index)

    @property
    def kind(self) -> Kind:
        return self.payload.KIND

    @property
    def event_type(self) -> str:
        return self.payload.KIND.event_type

    def as_dict(self) -> dict[str, Any]:
        """Return the event in the shape of its JSON, with the index first if it has one."""
        found: dict[str, Any] = {} if self.index is None else {"index": self.index}
        found |= {
            "event_id": self.event_id,
            "timestamp": self.timestamp,
            "build_request_id": self.build_request_id,
            "event_type": self.event_type,
            self.kind.column: self.payload.as_dict(),
        }
        return found

    def as_json(self) -> str:
        """Return the event as one line of JSON."""
        return to_json(self.as_dict())

    @classmethod
    def of_stored(cls, document: dict[str, Any]) -> BuildEvent:
        """Return an event from its JSON without checking it: it was checked when it was appended."""
        kind = Kind.read(document["event_type"])
        payload = payload_of(kind, document[kind.column])
        return stored_event(
            document["event_id"], document["timestamp"], document["build_request_id"], payload, document.get("index")
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        """Let pydantic, which decodes the results of a server, read an event from its JSON."""
        from pydantic_core import core_schema  # slow to import, and not needed otherwise

        return core_schema.no_info_plain_validator_function(cls.of_stored)

    @classmethod
    def from_dict(cls, given: Any) -> BuildEvent:
        """Read an event. Raises BadRows if a part is missing or unknown, or the payload is not of the event's type."""
        if not isinstance(given, Mapping):
            raise BadRows(f"an event is an object, got {type(given).__name__}")
        for name in ("event_id", "timestamp", "build_request_id", "event_type"):
            if given.get(name) is None:
                raise BadRows(f"the event needs {name}")
        kind = Kind.read(given["event_type"])
        unknown = given.keys() - _ENVELOPE
        if unknown:
            raise BadRows(f"event {given['event_id']!r} has no field {sorted(map(str, unknown))[0]}")
        others = [other.column for other in Kind if other is not kind and given.get(other.column) is not None]
        if others:
            raise BadRows(f"event {given['event_id']!r} is of type {kind.event_type} and carries a {others[0]}")
        if given.get(kind.column) is None:
            raise BadRows(f"event {given['event_id']!r} is of type {kind.event_type} and has no {kind.column}")
        payload = PAYLOADS[kind].from_dict(given[kind.column])
        return cls(given["event_id"], given["timestamp"], given["build_request_id"], payload, given.get("index"))


def stored_event(
    event_id: str, timestamp: int, build_request_id: str, payload: AnyPayload, index: int | None
) -> BuildEvent:
    """Return an event without checking it: it was checked when it was appended."""
    event = object.__new__(BuildEvent)
    _set(event, "event_id", event_id)
    _set(event, "timestamp", timestamp)
    _set(event, "build_request_id", build_request_id)
    _set(event, "payload", payload)
    _set(event, "index", index)
    return event


def payload_of(kind: int, values: dict[str, Any]) -> Any:
    """Return the payload whose `as_dict` returned these values."""
    shape: Any = PAYLOADS[kind]
    payload = object.__new__(shape)
    for name in shape.FIELDS:
        if name == "status":
            _set(payload, name, shape.STATUS(values["status_code"]))
        elif name in _TUPLES:
            _set(payload, name, tuple(values[name]))
        else:
            _set(payload, name, values[name])
    return payload


_TUPLES = frozenset({"requested_partitions", "target_partitions"})
_KNOWN_PAYLOADS = frozenset(PAYLOADS.values())
_ENVELOPE = frozenset(
    {"index", "event_id", "timestamp", "build_request_id", "event_type", *(kind.column for kind in Kind)}
)
