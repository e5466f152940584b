"""Pruning a log by age or number of events, in batches; the latest status of each partition stays."""

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
    """What a prune removed, or would remove."""

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
