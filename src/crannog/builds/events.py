"""A build event: the envelope around one of the eight payloads.

An event is a value: frozen, compared by content, the same from every store. As JSON it has the shape of the table: the
envelope, and the payload under the name of its kind (`job_event`, …).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crannog.builds.event_values import identifier, timestamp, to_json
from crannog.builds.payloads import (
    PAYLOADS,
    AnyPayload,
    BuildCancelEvent,
    BuildRequestEvent,
    DelegationEvent,
    JobEvent,
    JobGraphEvent,
    Kind,
    PartitionEvent,
    PartitionInvalidationEvent,
    Payload,
    TaskCancelEvent,
)
from crannog.errors import BadRows

__all__ = [
    "PAYLOADS",
    "AnyPayload",
    "BuildCancelEvent",
    "BuildEvent",
    "BuildRequestEvent",
    "DelegationEvent",
    "JobEvent",
    "JobGraphEvent",
    "Kind",
    "PartitionEvent",
    "PartitionInvalidationEvent",
    "Payload",
    "TaskCancelEvent",
    "stored_event",
]


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


_set = object.__setattr__


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


_KNOWN_PAYLOADS = frozenset(PAYLOADS.values())
_ENVELOPE = frozenset(
    {"index", "event_id", "timestamp", "build_request_id", "event_type", *(kind.column for kind in Kind)}
)
