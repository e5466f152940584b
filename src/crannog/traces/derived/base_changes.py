"""What became of the span table's base between two versions, day by day, read from its log.

A day either only got files (a fold appends), or it has to be worked out anew: rows were dropped from it, or the log or
the files do not tell any more what came when. Compaction changes no day: it merges files and drops what was a
duplicate all along.
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
class BaseChanges:
    """The way from version `start` to version `end`.

    `fresh` are the files that days got, `old` those that these days had before, `live` those that all days have at the
    end. `stale` are the days to work out anew, none of them in `fresh`; if `everything`, all days are, those that have
    no spans any more included.
    """

    start: int
    end: int
    fresh: FilesByDay
    old: FilesByDay
    live: FilesByDay
    stale: frozenset[dt.date]
    everything: bool = False

    def is_stale(self, day: dt.date) -> bool:
        return self.everything or day in self.stale

    def before(self, day: dt.date) -> tuple[str, ...]:
        """Return files with the spans that a day, which is not stale, had at the start."""
        return self.old.get(day, ()) if day in self.fresh else self.live.get(day, ())

    def with_stale(self, more: Iterable[dt.date]) -> BaseChanges:
        """Return the same with further days to work out anew."""
        stale = self.stale.union(more)
        return replace(self, stale=stale, fresh={day: files for day, files in self.fresh.items() if day not in stale})

    def within(self, first: dt.date | None, last: dt.date | None) -> BaseChanges:
        """Return the part that concerns some days."""

        def wanted(day: dt.date) -> bool:
            return (first is None or day >= first) and (last is None or day <= last)

        fresh = {day: files for day, files in self.fresh.items() if wanted(day)}
        return replace(self, fresh=fresh, stale=frozenset(filter(wanted, self.stale)))


def days_around(days: Iterable[dt.date], reach_days: int) -> frozenset[dt.date]:
    """Return the days and those up to `reach_days` days away."""
    return frozenset(day + DAY * shift for day in days for shift in range(-reach_days, reach_days + 1))


def files_by_day(base: Base) -> FilesByDay:
    """Return the files of a table that is partitioned by day."""
    found: dict[dt.date, list[str]] = {}
    for file in base.files.values():
        found.setdefault(file.partition["partition_date"], []).append(file.path)
    return {day: tuple(sorted(files)) for day, files in sorted(found.items())}


def changes_since(table: OpenTable, start: int, head: Base) -> BaseChanges:
    """Return how the span table came from version `start`, which is 0 where nothing was derived yet, to `head`."""
    live = files_by_day(head)
    if start == head.version:
        return BaseChanges(start, start, {}, {}, live, frozenset())
    entries = [entry for entry in log_entries(table, after=start) if entry.version <= head.version]
    old = _files_at(table, start)
    if old is None or [entry.version for entry in entries] != list(range(start + 1, head.version + 1)):
        # The log was cleaned since, and does not tell any more.
        return BaseChanges(start, head.version, {}, {}, live, frozenset(live), everything=True)
    fresh, stale = added_files_and_stale_days(entries)
    exists = table.warehouse.storage.exists
    for day, files in fresh.items():
        # A compaction may have taken files out of the base; until a vacuum they are still there.
        taken = {*files, *old.get(day, ())}.difference(head.files)
        if not all(exists(f"{table.folder}/{path}") for path in taken):
            stale.add(day)
    found = BaseChanges(start, head.version, fresh, {day: old.get(day, ()) for day in fresh}, live, frozenset())
    return found.with_stale(stale)


def added_files_and_stale_days(entries: Sequence[LogEntry]) -> tuple[dict[dt.date, tuple[str, ...]], set[dt.date]]:
    """Return the files that the entries added day by day, and the days on which they took rows away. Pure."""
    fresh: dict[dt.date, tuple[str, ...]] = {}
    stale: set[dt.date] = set()
    for entry in entries:
        if entry.operation in _SPAN_PRESERVING_OPERATIONS:
            continue
        added = [action["add"] for action in entry.actions if "add" in action]
        removed = [action["remove"] for action in entry.actions if "remove" in action]
        if removed:
            stale.update(map(_day, [*added, *removed]))
        else:
            for file in added:
                fresh[_day(file)] = (*fresh.get(_day(file), ()), unquote(file["path"]))
    return fresh, stale


def _day(action: Mapping[str, Mapping[str, str]]) -> dt.date:
    return dt.date.fromisoformat(action["partitionValues"]["partition_date"])


def _files_at(table: OpenTable, version: int) -> FilesByDay | None:
    if version == 0:
        return {}
    try:
        return files_by_day(DeltaLog(table.warehouse.storage, table.folder).at(version))
    except NotFound:
        return None
