"""Keeping a log small: what is old or too much goes, in batches, and each partition's latest status stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crannog.builds.event_values import LARGEST_TIMESTAMP
from crannog.errors import CallerError

if TYPE_CHECKING:
    from crannog.builds.log import EventLog

_BATCH = 1_000
_MOST = 10_000_000


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What a retention removed, or would have."""

    dry_run: bool
    before_ns: int | None
    keep_events: int | None
    events_before: int
    removed: int
    events_after: int
    batches: int


def prune(
    log: EventLog,
    *,
    before_ns: int | None = None,
    keep_events: int | None = None,
    dry_run: bool = False,
    batch: int = _BATCH,
    progress: Callable[[int], None] | None = None,
) -> PruneReport:
    """Remove events older than a time, and all but the newest so many, except what tells the present.

    Kept in any case: each partition's latest status, and unfinished builds that still have events to keep. Each
    batch is one step of the log, so writers wait for a batch at most, and a prune that is cut off can go on later.
    """
    if before_ns is None and keep_events is None:
        raise CallerError("a retention needs an age or a number of events to keep")
    if keep_events is not None and keep_events < 0:
        raise CallerError(f"the number of events to keep is 0 or more, got {keep_events}")
    if before_ns is not None and not 0 <= before_ns <= LARGEST_TIMESTAMP:
        raise CallerError(
            f"events are older than a time between 0 and {LARGEST_TIMESTAMP} nanoseconds, got {before_ns}"
        )
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
    """Take every event of one build out of the log, in one step; return how many there were."""
    indexes = [event.index for event in log.all_events(build_request_ids=[build_request_id])]
    return log.remove_events(index for index in indexes if index is not None) if indexes else 0
