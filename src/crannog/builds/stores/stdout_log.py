"""A log that prints each event as a line of JSON on standard output, for builds whose output is collected."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any, NoReturn

from crannog.builds.append_plan import checked_batch
from crannog.builds.events import BuildEvent
from crannog.builds.log import EventLog
from crannog.builds.results import LogStats
from crannog.errors import Refused, Unavailable


class StdoutLog(EventLog):
    """Stores nothing: reads are refused, an event sent twice is printed twice, indexes count from 1 in each process.

    There is no earlier status to check a change against, so `check_states` has no effect.
    """

    uri = "stdout:"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> list[int]:
        batch = checked_batch(events)
        with self._lock:
            lines = [event.at(self._last + place).as_json() for place, event in enumerate(batch, 1)]
            try:
                # One write, so that lines of other threads cannot come between.
                sys.stdout.write("".join(f"{line}\n" for line in lines))
                sys.stdout.flush()
            except (OSError, ValueError) as error:
                raise Unavailable(f"cannot print events: {error}") from error
            first = self._last + 1
            self._last += len(batch)
            return list(range(first, self._last + 1))

    def head(self) -> int:
        return self._last

    def close(self) -> None:
        """Leave standard output open."""

    def _refused(self, *_: Any, **__: Any) -> NoReturn:
        raise Refused("the log stdout: stores nothing, so it cannot be read; use tee: to print and store")

    def stats(self) -> LogStats:
        self._refused()

    list_events = get_event = get_latest_partition_status = get_active_builds_for_partition = _refused
    list_build_requests = get_build = get_build_partitions = list_recent_partitions = _refused
    list_job_runs = list_jobs = get_activity_summary = list_edges = list_prunable = remove_events = _refused
