"""What stands on a slip of the desk, and on its answer: appends of one process that another one makes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crannog.builds.event_values import to_json
from crannog.builds.events import BuildEvent, stored_event
from crannog.builds.read_model.stored_events import payload_of
from crannog.engine.commit.group import Call
from crannog.errors import CrannogError, Unavailable, error_of

_FORMAT = 2


@dataclass(frozen=True, slots=True)
class Wish:
    """One call's events, and whether their status changes are to be checked."""

    events: list[BuildEvent]
    check_states: bool


Append = Call[Wish, list[int]]


def slip_of(calls: Sequence[Append]) -> bytes:
    """Write calls down for another process, in as few words as will do: it has to read those of everybody."""
    listed = [[call.value.check_states, [_written_event(event) for event in call.value.events]] for call in calls]
    return to_json([_FORMAT, listed]).encode()


def _written_event(event: BuildEvent) -> list[Any]:
    return [event.event_id, event.timestamp, event.build_request_id, int(event.payload.KIND), event.payload.as_dict()]


def calls_of(slip: bytes) -> list[Append]:
    """Read the calls of a slip; none if it is another version's: whoever wrote it will see to it alone."""
    try:
        written = json.loads(slip)
        # An older version wrote an object, whose first key is no number.
        if next(iter(written)) != _FORMAT:
            return []
        return [
            Call(Wish([_read_event(*event) for event in events], bool(check_states)))
            for check_states, events in written[1]
        ]
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration):
        return []


def _read_event(event_id: str, timestamp: int, build: str, kind: int, payload: dict[str, Any]) -> BuildEvent:
    # As it was checked by who made it.
    return stored_event(event_id, timestamp, build, payload_of(kind, payload), None)


def answer_of(calls: Sequence[Append]) -> bytes:
    """Write down what became of calls."""
    return to_json([{"indexes": call.result, "error": _written(call.error)} for call in calls]).encode()


def _written(error: BaseException | None) -> list[str] | None:
    if error is None:
        return None
    return [error.code, error.message] if isinstance(error, CrannogError) else [Unavailable.code, str(error)]


def take_answer(calls: Sequence[Append], answer: bytes) -> None:
    """Give the calls of this process what another one wrote down."""
    for call, written in zip(calls, json.loads(answer), strict=True):
        call.result = written["indexes"]
        call.error = None if written["error"] is None else error_of(*written["error"])
