"""What stands on a slip of the desk, and on its answer: appends of one process that another one makes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from crannog.builds.events import BuildEvent
from crannog.builds.values import to_json
from crannog.engine.group import Call
from crannog.errors import CrannogError, Unavailable, error_of

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Wish:
    """One call's events, and whether their status changes are to be checked."""

    events: list[BuildEvent]
    check_states: bool


Append = Call[Wish, list[int]]


def slip_of(calls: Sequence[Append]) -> bytes:
    """Write calls down for another process."""
    listed = [{"check_states": call.value.check_states, "events": [event.at(None).as_dict() for event in call.value.events]} for call in calls]
    return to_json({"format": _FORMAT, "calls": listed}).encode()


def calls_of(slip: bytes) -> list[Append]:
    """Read the calls of a slip; none if it is another version's: whoever wrote it will see to it alone."""
    try:
        written = json.loads(slip)
        if written["format"] != _FORMAT:
            return []
        return [
            Call(Wish([BuildEvent.from_dict(event) for event in call["events"]], bool(call["check_states"])))
            for call in written["calls"]
        ]
    except (ValueError, KeyError, TypeError, CrannogError):
        return []


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
