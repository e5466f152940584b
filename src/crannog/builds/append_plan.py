"""What becomes of a batch: which events are new and which index each gets. Pure; the stores look up and keep."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from crannog.builds.event_values import LARGEST_EVENT_BYTES, to_json
from crannog.builds.events import PAYLOADS, BuildEvent
from crannog.errors import BadRows, CallerError, Conflict

LARGEST_BATCH = 100_000
# What may be long: everything but ids and statuses.
_LONG_FIELDS = {
    kind: tuple(name for name in payload.FIELDS if name not in ("status", "partition_ref", "job_run_id"))
    for kind, payload in PAYLOADS.items()
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The index of each event of a batch, in its order, and the events that are to be kept, in theirs."""

    indexes: list[int]
    fresh: list[BuildEvent]


def checked(events: Iterable[BuildEvent]) -> list[BuildEvent]:
    """Return a batch as a list; CallerError if it is none or too large."""
    if not isinstance(events, Iterable):
        raise BadRows(f"a batch is a list of events, got {type(events).__name__}")
    listed = list(events)
    if len(listed) > LARGEST_BATCH:
        raise CallerError(f"{len(listed):,} events in one batch; {LARGEST_BATCH:,} is the most: send them in parts")
    for event in listed:
        if not isinstance(event, BuildEvent):
            raise BadRows(f"a log keeps BuildEvent values, got {type(event).__name__}; nothing of the batch was kept")
        _check_size(event)
    return listed


def _check_size(event: BuildEvent) -> None:
    """Refuse an event that is larger than any reader should have to hold."""
    size = 0
    for name in _LONG_FIELDS[event.payload.KIND]:
        value = getattr(event.payload, name)
        if value is not None:
            size += len(value) if isinstance(value, str) else len(to_json(value))
    if size > LARGEST_EVENT_BYTES:
        raise BadRows(f"event {event.event_id} has {size:,} characters; {LARGEST_EVENT_BYTES:,} is the most")


def plan(events: Sequence[BuildEvent], known: Mapping[str, BuildEvent], last_index: int) -> Plan:
    """Give each event the index it is kept under; `known` are the events kept before under ids of this batch.

    The same event again gets the index it has. Conflict if its id is kept with other content.
    """
    indexes: list[int] = []
    fresh: dict[str, BuildEvent] = {}
    for event in events:
        earlier = known.get(event.event_id) or fresh.get(event.event_id)
        if earlier is None:
            earlier = fresh[event.event_id] = numbered(event, last_index + len(fresh) + 1)
        elif not same(event, earlier):
            raise Conflict(
                f"event {event.event_id} is kept already, with other content, at index {earlier.index};"
                " nothing of the batch was kept: give a new event a new id"
            )
        assert earlier.index is not None
        indexes.append(earlier.index)
    return Plan(indexes, list(fresh.values()))


def numbered(event: BuildEvent, index: int) -> BuildEvent:
    """Return the event at its place."""
    return event if event.index == index else event.at(index)


def same(one: BuildEvent, other: BuildEvent) -> bool:
    """Tell whether two events are one, documents compared as JSON: the order of names does not count, 1 and true differ."""
    return one == other and _canonical(one) == _canonical(other)


def _canonical(event: BuildEvent) -> str:
    return json.dumps(event.payload.as_dict(), sort_keys=True)
