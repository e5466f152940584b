"""Appends to a build log as messages between the processes that write to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crannog.builds.event_values import to_json
from crannog.builds.events import BuildEvent, stored_event
from crannog.builds.read_model.stored_events import payload_of
from crannog.engine.commit.group import Call

_FORMAT = "events 3"
# To write more than this for another process costs more than to wait and commit it.
_MOST_EVENTS = 200


@dataclass(frozen=True, slots=True)
class Append:
    """The events of one call, and whether their status changes are to be checked."""

    events: list[BuildEvent]
    check_states: bool


AppendCall = Call[Append, list[int]]


class AppendMessages:
    """Writes events in as few words as will do: the process that commits has to read those of all."""

    def encode(self, calls: Sequence[AppendCall]) -> bytes | None:
        if sum(len(call.value.events) for call in calls) > _MOST_EVENTS:
            return None
        listed = [[call.value.check_states, [_written(event) for event in call.value.events]] for call in calls]
        return to_json([_FORMAT, listed]).encode()

    def decode(self, message: bytes) -> list[Append]:
        try:
            version, listed = json.loads(message)
            if version != _FORMAT:
                return []
            return [Append([_read(*event) for event in events], bool(check_states)) for check_states, events in listed]
        except (ValueError, LookupError, TypeError, AttributeError):
            return []

    def encode_result(self, result: list[int]) -> Any:
        return result

    def decode_result(self, given: Any) -> list[int]:
        return list(given)


def _written(event: BuildEvent) -> list[Any]:
    return [event.event_id, event.timestamp, event.build_request_id, int(event.payload.KIND), event.payload.as_dict()]


def _read(event_id: str, timestamp: int, build: str, kind: int, payload: dict[str, Any]) -> BuildEvent:
    # Checked by the process that made it.
    return stored_event(event_id, timestamp, build, payload_of(kind, payload), None)
