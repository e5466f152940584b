"""Copying events to another log, and to and from lines of JSON; verified, and safe to repeat."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

from crannog.builds.append_plan import same_event
from crannog.builds.event_values import from_json
from crannog.builds.events import BuildEvent
from crannog.builds.results import CopyReport, ImportReport
from crannog.errors import BadRows, CrannogError, VerificationFailed

if TYPE_CHECKING:
    from crannog.builds.log import EventLog

_BATCH = 1_000


def copy(
    source: EventLog,
    target: EventLog,
    *,
    since: int | None = None,
    batch: int = _BATCH,
    verify: bool = True,
    progress: Callable[[int], None] | None = None,
) -> CopyReport:
    """Copy every event of one log to another, in order; then read both again and compare.

    Events that the target has are not stored twice, so an interrupted copy can be started again, and a repeated one
    copies what is new. Raises VerificationFailed, with the event, if one differs.
    """
    began = time.monotonic()
    until = source.head()
    count = known = 0
    alike = True
    for events in _batches(source.all_events(since, until), batch):
        head = target.head()
        indexes = target.append_events([_without_index(event) for event in events])
        known += sum(index <= head for index in indexes)
        alike = alike and indexes == [event.index for event in events]
        count += len(events)
        if progress is not None:
            progress(count)
    if verify:
        _verify(source, target, since, until, count)
    return CopyReport(source.uri, target.uri, count, known, until, alike, verify, round(time.monotonic() - began, 3))


def _verify(source: EventLog, target: EventLog, since: int | None, until: int, count: int) -> None:
    checked = 0
    for events in _batches(source.all_events(since, until), _BATCH):
        for event in events:
            copied = target.get_event(event.event_id)
            if copied is None or not same_event(event, copied):
                state = "is missing" if copied is None else "is not the same"
                raise VerificationFailed(
                    f"event {event.event_id} (index {event.index} of {source.uri}) {state} in {target.uri}"
                )
        checked += len(events)
    if checked != count:
        raise VerificationFailed(
            f"{source.uri} had {count:,} events when they were copied and has {checked:,} now; copy again"
        )


def export_lines(log: EventLog, out: TextIO, since: int | None = None, **filter: Any) -> int:
    """Write events as lines of JSON, in order, up to the present head; return their number."""
    count = 0
    for event in log.all_events(since, log.head(), **filter):
        out.write(event.as_json() + "\n")
        count += 1
    return count


def import_lines(log: EventLog, lines: Iterable[str], *, batch: int = _BATCH) -> ImportReport:
    """Append events from lines of JSON, in their order; indexes in them are ignored.

    Raises BadRows, with the line, if one is not an event; earlier batches stay, and importing again is safe.
    """
    read = known = 0
    for events in _batches(_parsed(lines), batch):
        head = log.head()
        try:
            indexes = log.append_events(events)
        except CrannogError as error:
            error.message = f"after {read:,} events: {error.message}"
            raise
        known += sum(index <= head for index in indexes)
        read += len(events)
    return ImportReport(read, read - known, known)


def _parsed(lines: Iterable[str]) -> Iterator[BuildEvent]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _without_index(BuildEvent.from_dict(from_json(line, "it")))
        except BadRows as error:
            raise BadRows(f"line {number}: {error.message}") from None


def _without_index(event: BuildEvent) -> BuildEvent:
    """Return the event without the index that another log assigned."""
    return event if event.index is None else event.at(None)


def _batches(events: Iterable[BuildEvent], size: int) -> Iterator[list[BuildEvent]]:
    stream = iter(events)
    while some := list(islice(stream, size)):
        yield some
