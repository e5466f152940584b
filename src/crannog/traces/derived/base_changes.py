"""Changes of the span table's base between two versions, by day, from its log.

A day either only gained files (a fold appends), or it is stale and has to be recomputed: rows were removed from it, or the
log or the files no longer show what was added when. Compaction changes no day: it only merges files and drops duplicates.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

from crannog.delta.log import Base, DeltaLog
from crannog.engine.maintenance.unreferenced_files import LogEntry, log_entries
from crannog.engine.open_table import OpenTable
from crannog.errors import NotFound

DAY = dt.timedelta(days=1)
_SPAN_PRESERVING_OPERATIONS = ("COMPACT", "DEDUPLICATE")
FilesByDay = Mapping[dt.date, tuple[str, ...]]


@dataclass(frozen=True)
class DayRange:
    """The days from `first` to `last`, both included; None means no bound."""

    first: dt.date | None = None
    last: dt.date | None = None

    def __contains__(self, day: dt.date) -> bool:
        return (self.first is None or day >= self.first) and (self.last is None or day <= self.last)

    def widened(self, days: int) -> DayRange:
        first = self.first - DAY * days if self.first is not None else None
        return DayRange(first, self.last + DAY * days if self.last is not None else None)

    @property
    def sql(self) -> str:
        bounds = [f"partition_date >= DATE '{self.first}'"] if self.first is not None else []
        bounds += [f"partition_date <= DATE '{self.last}'"] if self.last is not None else []
        return " AND ".join(bounds) or "true"


@dataclass(frozen=True)
class BaseChanges:
    """The changes from version `start` to version `end`.

    `added_files` are the files that days gained, `previous_files` what these days had before, `current_files` what all
    days have at the end. `stale_days` have to be recomputed and are not in `added_files`; if `all_stale`, all days have
    to be, including days that have no spans any more.
    """

    start: int
    end: int
    added_files: FilesByDay
    previous_files: FilesByDay
    current_files: FilesByDay
    stale_days: frozenset[dt.date]
    all_stale: bool = False

    def files_before(self, day: dt.date) -> tuple[str, ...]:
        """Return files with the spans that a day, which must not be stale, had at the start."""
        return self.previous_files.get(day, ()) if day in self.added_files else self.current_files.get(day, ())

    def with_stale(self, days: Iterable[dt.date]) -> BaseChanges:
        """Return the changes with more stale days."""
        stale_days = self.stale_days.union(days)
        added_files = {day: files for day, files in self.added_files.items() if day not in stale_days}
        return replace(self, stale_days=stale_days, added_files=added_files)

    def within(self, days: DayRange) -> BaseChanges:
        """Return the changes of some days."""
        added_files = {day: files for day, files in self.added_files.items() if day in days}
        return replace(self, added_files=added_files, stale_days=frozenset(filter(days.__contains__, self.stale_days)))


def days_around(days: Iterable[dt.date], reach_days: int) -> frozenset[dt.date]:
    """Return the days, and all days up to `reach_days` away from one of them."""
    return frozenset(day + DAY * shift for day in days for shift in range(-reach_days, reach_days + 1))


def files_by_day(base: Base) -> FilesByDay:
    """Return the files of a table that is partitioned by `partition_date`, by day."""
    found: dict[dt.date, list[str]] = {}
    for file in base.files.values():
        found.setdefault(file.partition["partition_date"], []).append(file.path)
    return {day: tuple(sorted(files)) for day, files in sorted(found.items())}


def changes_since(table: OpenTable, start: int, head: Base) -> BaseChanges:
    """Return the changes of the span table from version `start`, 0 if nothing was derived yet, to `head`."""
    current_files = files_by_day(head)
    if start == head.version:
        return BaseChanges(start, start, {}, {}, current_files, frozenset())
    entries = [entry for entry in log_entries(table, after=start) if entry.version <= head.version]
    previous_files = _files_at(table, start)
    if previous_files is None or [entry.version for entry in entries] != list(range(start + 1, head.version + 1)):
        # Entries of the log were deleted.
        return BaseChanges(start, head.version, {}, {}, current_files, frozenset(current_files), all_stale=True)
    added_files, stale_days = added_files_and_stale_days(entries)
    exists = table.warehouse.storage.exists
    for day, files in added_files.items():
        # Compaction may have removed files from the base; they still exist until a vacuum.
        taken = {*files, *previous_files.get(day, ())}.difference(head.files)
        if not all(exists(f"{table.folder}/{path}") for path in taken):
            stale_days.add(day)
    found = BaseChanges(
        start,
        head.version,
        added_files,
        {day: previous_files.get(day, ()) for day in added_files},
        current_files,
        frozenset(),
    )
    return found.with_stale(stale_days)


def added_files_and_stale_days(entries: Sequence[LogEntry]) -> tuple[dict[dt.date, tuple[str, ...]], set[dt.date]]:
    """Return the files that log entries added, by day, and the days from which they removed rows."""
    added_files: dict[dt.date, tuple[str, ...]] = {}
    stale_days: set[dt.date] = set()
    for entry in entries:
        if entry.operation in _SPAN_PRESERVING_OPERATIONS:
            continue
        added = [action["add"] for action in entry.actions if "add" in action]
        removed = [action["remove"] for action in entry.actions if "remove" in action]
        if removed:
            stale_days.update(map(_day, [*added, *removed]))
        else:
            for file in added:
                added_files[_day(file)] = (*added_files.get(_day(file), ()), unquote(file["path"]))
    return added_files, stale_days


def _day(action: Mapping[str, Mapping[str, str]]) -> dt.date:
    return dt.date.fromisoformat(action["partitionValues"]["partition_date"])


def _files_at(table: OpenTable, version: int) -> FilesByDay | None:
    if version == 0:
        return {}
    try:
        return files_by_day(DeltaLog(table.warehouse.storage, table.folder).at(version))
    except NotFound:
        return None
