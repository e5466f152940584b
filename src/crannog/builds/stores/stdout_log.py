"""A log that prints: one line of JSON per event on standard output, for a build whose output is collected anyway."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any, NoReturn

from crannog.builds.append_plan import checked, numbered
from crannog.builds.events import BuildEvent
from crannog.builds.log import EventLog
from crannog.builds.results import LogStats
from crannog.errors import Refused, Unavailable


class StdoutLog(EventLog):
    """Keeps nothing: reads are refused, an event sent twice is printed twice, indexes count from 1 in each process.

    There is no earlier status to check a change against, so `check_states` has no effect.
    """

    uri = "stdout:"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> list[int]:
        batch = checked(events)
        with self._lock:
            lines = [numbered(event, self._last + place).as_json() for place, event in enumerate(batch, 1)]
            try:
                # One write: a line is never torn by another thread's.
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
        """Standard output is not ours to close."""

    def _refused(self, *_: Any, **__: Any) -> NoReturn:
        raise Refused("the log stdout: keeps nothing, so it cannot be read; use tee: to print and keep")

    def stats(self) -> LogStats:
        self._refused()

    list_events = get_event = get_latest_partition_status = get_active_builds_for_partition = _refused
    list_build_requests = get_build = get_build_partitions = list_recent_partitions = _refused
    list_job_runs = list_jobs = get_activity_summary = list_edges = list_prunable = remove_events = _refused
