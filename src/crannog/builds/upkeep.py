"""Upkeep of whole logs: pruning, the consistency check, and copying to another log or to and from lines of JSON.

A prune removes events by age or number, in batches; the latest status of each partition stays. The check reads and validates
every event again, rebuilds every state table and compares. A copy is verified and safe to repeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, TextIO, Unpack

from crannog.builds.append_plan import same_event
from crannog.builds.event_values import LARGEST_TIMESTAMP, from_json
from crannog.builds.events import BuildEvent
from crannog.builds.filters import FilterArguments
from crannog.builds.results import CheckReport, CopyReport, ImportReport, PruneReport
from crannog.builds.stores.read_model_log import ModelLog
from crannog.builds.stores.sqlite_log import PastLog
from crannog.errors import BadRows, CallerError, CrannogError, VerificationFailed

if TYPE_CHECKING:
    from crannog.builds.log import EventLog

_BATCH = 1_000
_MOST = 10_000_000


def prune(
    log: EventLog,
    *,
    before_ns: int | None = None,
    keep_events: int | None = None,
    dry_run: bool = False,
    batch: int = _BATCH,
    progress: Callable[[int], None] | None = None,
) -> PruneReport:
    """Remove events older than a time, and all but the newest `keep_events`, except those that hold the present state.

    Always kept: the latest status of each partition, and unfinished builds that have newer events. Each batch is one
    step of the log, so writers wait for one batch at most, and a prune that was interrupted can be run again.
    """
    if before_ns is None and keep_events is None:
        raise CallerError("a prune needs an age or a number of events to keep")
    if keep_events is not None and keep_events < 0:
        raise CallerError(f"the number of events to keep is 0 or more, got {keep_events}")
    if before_ns is not None and not 0 <= before_ns <= LARGEST_TIMESTAMP:
        raise CallerError(f"the time to prune before is from 0 to {LARGEST_TIMESTAMP} nanoseconds, got {before_ns}")
    if batch < 1:
        raise CallerError(f"a batch has 1 event or more, got {batch}")
    events = log.stats().events
    if dry_run:
        removed = len(log.list_prunable(before_ns, keep_events, _MOST))
        return PruneReport(True, before_ns, keep_events, events, removed, events - removed, 0)
    removed = batches = 0
    while True:
        indexes = log.list_prunable(before_ns, keep_events, batch)
        if not indexes:
            break
        removed += log.remove_events(indexes)
        batches += 1
        if progress is not None:
            progress(removed)
    return PruneReport(False, before_ns, keep_events, events, removed, log.stats().events, batches)


def wipe_build(log: EventLog, build_request_id: str) -> int:
    """Remove every event of one build, in one step; return their number."""
    indexes = [event.index for event in log.all_events(build_request_ids=[build_request_id])]
    return log.remove_events(index for index in indexes if index is not None) if indexes else 0


_MOST_PROBLEMS = 100
# The columns of each table that are compared.
_COMPARED_COLUMNS = {
    "events": "idx, event_id, timestamp, build_request_id, kind, job_run_id, job_label",
    "event_partitions": "partition_ref, idx",
    "builds": "build_request_id, status, status_idx, requested, first_idx, created_at, last_idx, updated_at, ended_at, cancel_idx",
    "partitions": "partition_ref, status, status_idx, updated_at, build_request_id, job_run_id, invalidated_idx",
    "build_partitions": "partition_ref, build_request_id, status, status_idx, delegated_to, delegated_idx",
    "job_runs": "job_run_id, job_label, build_request_id, status, status_idx, first_idx, first_at, started_at, ended_at",
    "edges": "output_ref, input_ref, idx, job_run_id, build_request_id, made",
}


@dataclass(slots=True)
class _Findings:
    found: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        if len(self.found) < _MOST_PROBLEMS:
            self.found.append(problem)


def check(log: EventLog) -> CheckReport:
    """Check everything in a log; writers may continue, and what they add meanwhile is not checked."""
    target = getattr(log, "target", None)
    if callable(target):
        log = target()
    if (there := getattr(log, "check_there", None)) is not None:
        report: CheckReport = there()
        return report
    if not isinstance(log, ModelLog):
        raise CallerError(f"{log.uri} cannot be checked from here: check it where it is stored")
    began, findings = time.monotonic(), _Findings()
    until = log.head()
    count = _check_events(log, until, findings)
    _check_state(log, until, findings)
    _check_store(log, findings)
    return CheckReport(log.uri, count, until, tuple(findings.found), round(time.monotonic() - began, 3))


def _check_events(log: ModelLog, until: int, findings: _Findings) -> int:
    count = previous = 0
    for event in log.all_events(until=until):
        count += 1
        assert event.index is not None
        if event.index <= previous:
            findings.add(f"event {event.event_id} has index {event.index} after {previous}")
        previous = event.index
        try:
            if not same_event(BuildEvent.from_dict(event.as_dict()), event):
                findings.add(f"event {event.event_id} does not read back as it is stored")
        except BadRows as error:
            findings.add(f"event {event.event_id} (index {event.index}): {error.message}")
    return count


def _check_state(log: ModelLog, until: int, findings: _Findings) -> None:
    """Compare the state tables with tables rebuilt from the events."""
    for _ in range(3):
        fresh = PastLog("the check", log.all_events(until=until))
        with closing(fresh), fresh.reading() as right:
            with log.reading(snapshot=True) as stored:
                [(now,)] = stored.query("SELECT COALESCE(max(idx), 0) FROM events")
                if now > until:
                    until = now  # a writer was faster: compare with the newest state
                    continue
                for table, columns in _COMPARED_COLUMNS.items():
                    query = f"SELECT {columns} FROM {table}"
                    _compare(table, set(stored.query(query)), set(right.query(query)), findings)
            return
    findings.add("the state could not be compared: the log kept changing; check again when fewer events come in")


def _compare(table: str, stored: set[tuple[object, ...]], right: set[tuple[object, ...]], findings: _Findings) -> None:
    for label, rows in (("has extra rows", stored - right), ("lacks rows", right - stored)):
        if rows:
            findings.add(f"table {table} {label}: {len(rows):,}, such as {sorted(rows, key=repr)[0]!r:.200}")


def _check_store(log: ModelLog, findings: _Findings) -> None:
    try:
        for problem in log.check_store():
            findings.add(problem)
    except CrannogError as error:
        findings.add(error.message)


_COPY_BATCH = 1_000


def copy(
    source: EventLog,
    target: EventLog,
    *,
    since: int | None = None,
    batch: int = _COPY_BATCH,
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
    for events in _batches(source.all_events(since, until), _COPY_BATCH):
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


def export_lines(log: EventLog, out: TextIO, since: int | None = None, **filter: Unpack[FilterArguments]) -> int:
    """Write events as lines of JSON, in order, up to the present head; return their number."""
    count = 0
    for event in log.all_events(since, log.head(), **filter):
        out.write(event.as_json() + "\n")
        count += 1
    return count


def import_lines(log: EventLog, lines: Iterable[str], *, batch: int = _COPY_BATCH) -> ImportReport:
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
