"""The scheduler: checks every few seconds for due tasks and runs them; pure functions decide what is due.

Tasks run in lanes, each with threads of its own, so that long work never delays folds.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from crannog.api.reports import Cancellation
from crannog.engine.commit.writer import backlog_share
from crannog.engine.maintenance.compact import CompactionLimits, files_to_compact, merge_files, scheduled_limits
from crannog.engine.maintenance.control import ControlTable, Task
from crannog.engine.maintenance.expire import expire, may_contain_older
from crannog.engine.maintenance.fold import fold, nothing_folded
from crannog.engine.maintenance.owners import process_name
from crannog.engine.maintenance.vacuum import vacuum
from crannog.engine.open_table import OpenTable
from crannog.engine.owned_tables import is_reserved, owner_of
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.errors import Corrupted, CrannogError, NotFound
from crannog.names import TableName
from crannog.protocol.changelog import Backlog
from crannog.protocol.leases import CLOCK_SKEW_S

log = logging.getLogger("crannog.engine")
_JITTER = 0.1
_LONGEST_PAUSE_S = 300.0
AFTER_COMPACT = "vacuum-after-compact"
_KINDS = ("fold", "compact", "vacuum", "expire", AFTER_COMPACT)
LANES = {"fold": 2, "derive": 1, "other": 2}
"""The lanes by name and the number of tasks that run in one at a time; a kind without a lane of its own runs in `other`."""
_RECHECK_S = 60.0
# How old may be what is known of a table that others change, where the storage does not show changes or the table is not open.
_LOOK_EVERY_S = 30.0
_TASKS_AGE_S = 10.0
_LONGEST_REST_S = 3600.0
_PRIORITY_SHARE = 0.3
_LASTING_FAILURES = 4

Work = tuple[str, Callable[[], Any], float]
"""A kind of task, its function (which returns the result for the control table), and the seconds until it is due again."""


class ExtraTasks:
    """Tasks that a domain adds; `kinds` are their kinds."""

    kinds: Sequence[str] = ()

    def due(self, table: OpenTable, cancellation: Cancellation) -> Sequence[Work]:
        """Return the tasks that a table needs now."""
        return ()

    def due_outside(self, cancellation: Cancellation) -> Sequence[tuple[TableName, Work]]:
        """Return the tasks for data outside the warehouse now, each with the name used in tasks and permissions."""
        return ()

    def merges(self, name: TableName) -> bool:
        """Return whether the domain merges the files of a table itself."""
        return False


def lane_of(kind: str) -> str:
    """Return the lane in which tasks of a kind run."""
    return kind if kind in LANES else "other"


@dataclass(frozen=True, slots=True)
class FoldLimits:
    """When a fold pays off."""

    rows: int
    bytes: int
    age_s: float
    share: float


def fold_reason(backlog: Backlog, limits: FoldLimits, *, base_rows: int, keyed: bool, now_us: int) -> str | None:
    """Return why a table should be folded now, or None. Reads no clock and touches no storage."""
    if not backlog.rows:
        return None
    if backlog.rows >= limits.rows:
        return f"{backlog.rows:,} staged rows"
    if backlog.bytes >= limits.bytes:
        return f"{backlog.bytes:,} staged bytes"
    if keyed and base_rows and backlog.rows >= base_rows * limits.share:
        return f"{backlog.rows:,} staged rows are {backlog.rows / base_rows:.0%} of the base"
    if backlog.oldest_us is not None and backlog.oldest_us - now_us > CLOCK_SKEW_S * 1e6:
        return f"the oldest change is dated {(backlog.oldest_us - now_us) / 1e6:.0f} s after the present time"
    if backlog.oldest_us is not None and now_us - backlog.oldest_us >= limits.age_s * 1e6:
        return f"the oldest change is {(now_us - backlog.oldest_us) / 1e6:.0f} s old"
    return None


def spark_nice(share: float, usual: int) -> int:
    """Return Spark's nice value by the share of the staged limits that is used: it gives way only while little is staged."""
    return round(usual * min(1.0, max(0.0, (_PRIORITY_SHARE - share) / _PRIORITY_SHARE)))


@dataclass(frozen=True, slots=True)
class _Settled:
    """A table that needs nothing in a lane until some time, unless its folders change.

    The time is that of `time.monotonic`: a clock that is set back must not stop maintenance.
    """

    folders: tuple[str, ...]
    stamps: tuple[int, ...] | None
    """None if nothing shows changes."""
    position: tuple[int, int] | None
    """The position of a table that was open in this process."""
    until: float
    asleep_until: float = 0.0
    """Until then changes by others are not looked at."""


class Scheduler:
    """Runs due maintenance of every table; several processes share the work through the control table."""

    def __init__(
        self, warehouse: Warehouse, tables: Tables, control: ControlTable, extra_tasks: Sequence[ExtraTasks] = ()
    ) -> None:
        self._upkeep = extra_tasks
        self._kinds = (*_KINDS, *(kind for more in extra_tasks for kind in more.kinds))
        self._warehouse = warehouse
        self._tables = tables
        self._control = control
        self._owner = process_name()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._running = Cancellation()
        self._not_before: dict[str, tuple[float, int]] = {}
        self._settled: dict[tuple[str | None, TableName], _Settled] = {}
        self._names: list[TableName] = []
        self._listing: _Settled | None = None
        self._known_tasks: tuple[float, list[Task]] = (-math.inf, [])
        self._names_lock = threading.Lock()
        self._warned_of_clock = False
        self._logs_errors = False
        self.last_error: str | None = None

    def start(self, after_tasks: Callable[[Sequence[str]], object] | None = None) -> None:
        """Start the lanes.

        `after_tasks` is called after every check with the names of the tasks that ran; without it, errors are logged.
        """
        self._warehouse.is_maintained = True
        self._logs_errors = after_tasks is None
        report = after_tasks or (lambda _names: None)
        self._threads = [
            threading.Thread(target=self._run, args=(lane, report), name=f"crannog-{lane}", daemon=True)
            for lane in LANES
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 20.0) -> bool:
        """Cancel the running jobs and wait for the threads; return False if one is still running after the timeout."""
        self._stop.set()
        self._running.cancel()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        ended = not any(thread.is_alive() for thread in self._threads)
        if ended:
            self._control.retire(self._owner)
        return ended

    def _run(self, lane: str, after_tasks: Callable[[Sequence[str]], object]) -> None:
        busy: set[TableName] = set()

        def work_on(name: TableName, works: Sequence[Work]) -> None:
            try:
                after_tasks(self._run_works(name, works))
            except Exception as error:
                self._note(_error_text(error))
            finally:
                busy.discard(name)

        with ThreadPoolExecutor(LANES[lane], thread_name_prefix=f"crannog-{lane}") as pool:
            tick_s = self._warehouse.settings.scheduler_tick_s
            while not self._stop.wait(tick_s * random.uniform(1 - _JITTER, 1 + _JITTER)):
                try:
                    for name, works in self._due(lane):
                        if name not in busy:
                            busy.add(name)
                            pool.submit(work_on, name, works)
                except Exception as error:
                    # Storage may be unavailable for a while; in any case the next tick tries again.
                    self._note(_error_text(error))
                after_tasks(())

    def run_due(self) -> list[str]:
        """Run everything that is due now, one task after the other; return the names of those that this process ran."""
        return [task for name, works in self._due(None) for task in self._run_works(name, works)]

    def _run_works(self, name: TableName, works: Sequence[Work]) -> list[str]:
        return [
            f"{kind}:{name}"
            for kind, work, interval_s in works
            if not self._stop.is_set() and self._try(f"{kind}:{name}", work, interval_s)
        ]

    def _due(self, lane: str | None) -> Iterator[tuple[TableName, list[Work]]]:
        """Yield the tables with tasks that are due now, in one lane or all."""
        now = dt.datetime.now(dt.UTC)
        tasks = {task.task_name: task for task in self._tasks()}
        if lane in (None, "other"):
            self._check_clock(tasks, now)
            self._tables.close_idle()

        def chosen(name: TableName, works: Sequence[Work]) -> list[Work]:
            listed = [(f"{work[0]}:{name}", work) for work in works if lane in (None, lane_of(work[0]))]
            return [
                work for task, work in listed if (task not in tasks or tasks[task].is_due(now)) and self._may_try(task)
            ]

        outside = [each for more in self._upkeep for each in more.due_outside(self._running)]
        for name, work in outside:
            if works := chosen(name, [work]):
                yield name, works
        for name in self._known_names(tasks, [f"{work[0]}:{name}" for name, work in outside]):
            if self._stop.is_set():
                return
            if works := chosen(name, self._works(lane, name, tasks, now)):
                yield name, works

    def _known_names(self, tasks: Mapping[str, Task], outside: Sequence[str]) -> list[TableName]:
        """Return all tables, from the last listing while nothing changed; tasks of tables that were dropped are forgotten."""
        now = time.monotonic()
        with self._names_lock:
            listing = self._listing
            if listing is not None and now < listing.until and self._is_unchanged(listing):
                return self._names
            names = self._tables.names()
            folders = (
                "",
                *sorted({part for name in names for part in (name.catalog, f"{name.catalog}/{name.schema}")}),
            )
            self._listing = _Settled(folders, self._stamps(folders), None, now + _LOOK_EVERY_S)
            if names != self._names or not self._names:
                known = {f"{kind}:{name}" for kind in self._kinds for name in names}
                self._control.forget(tasks.keys() - known - set(outside))
                for task in self._warehouse.conditions.all().keys() - known - set(outside):
                    self._warehouse.conditions.clear(task)
                self._names = names
            return names

    def _is_unchanged(self, settled: _Settled, name: TableName | None = None) -> bool:
        """Tell whether nothing shows a change: in this process, and in the folders where the storage tells."""
        position = self._tables.position(name) if name is not None else None
        if position is not None and position != settled.position:
            return False
        if time.monotonic() < settled.asleep_until or not self._warehouse.storage.is_local:
            return True
        return settled.stamps is not None and self._stamps(settled.folders) == settled.stamps

    def _works(self, lane: str | None, name: TableName, tasks: Mapping[str, Task], now: dt.datetime) -> list[Work]:
        """Return the tasks of a table; none, without opening it, if nothing has changed and nothing was due."""
        settled = self._settled.get((lane, name))
        if settled is not None and time.monotonic() < settled.until and self._is_unchanged(settled, name):
            return []
        self._settled.pop((lane, name), None)
        try:
            table = self._tables.open(name, displace=False)
            folders = (table.log.stage_folder, f"{table.folder}/_delta_log")
            stamps = self._stamps(folders)
            works = self._work_of(table)
        except NotFound:
            return []  # dropped meanwhile
        except CrannogError as error:
            self._note(f"{name}: {error.message}")
            return []
        due = [work for work in works if lane in (None, lane_of(work[0]))]
        later = [tasks[task].next_run_at for kind, *_ in due if (task := f"{kind}:{name}") in tasks]
        if len(later) == len(due) and all(at is not None and at > now for at in later):
            self._settle(lane, table, folders, stamps, min([_LONGEST_REST_S, *(_until(at, now) for at in later)]))
        return works

    def _settle(
        self,
        lane: str | None,
        table: OpenTable,
        folders: tuple[str, ...],
        stamps: tuple[int, ...] | None,
        wait_s: float,
    ) -> None:
        """Leave a table alone until something of it is due, or changes."""
        position = self._tables.position(table.name)
        now, age_s = time.monotonic(), self._warehouse.settings.fold_age_s
        # A table that is not kept open is opened by each look, and one in a bucket read again: not at every change.
        asleep_s = min(_LOOK_EVERY_S, age_s / 4) if position is None else 0.0
        if table.log.backlog().rows:  # its age makes a fold due
            wait_s = min(wait_s, _RECHECK_S, age_s / 4)
        if not self._warehouse.storage.is_local:
            wait_s = min(wait_s, age_s / 2)
        elif stamps is None:  # it changed just now
            wait_s = min(wait_s, asleep_s)
        if wait_s:
            self._settled[lane, table.name] = _Settled(folders, stamps, position, now + wait_s, now + asleep_s)

    def _stamps(self, folders: Sequence[str]) -> tuple[int, ...] | None:
        """Return numbers that change whenever the folders do; None if the storage has none, or they just changed."""
        found = [self._warehouse.storage.change_stamp(folder) for folder in folders]
        return None if None in found else tuple(stamp for stamp in found if stamp is not None)

    def _check_clock(self, tasks: Mapping[str, Task], now: dt.datetime) -> None:
        ahead_s = max((task.ahead_s(now) for task in tasks.values()), default=0.0)
        if ahead_s <= CLOCK_SKEW_S:
            self._warned_of_clock = False
        elif not self._warned_of_clock:
            self._warned_of_clock = True
            log.warning(
                "tasks ran up to %.0f s after the present time: the clock was set back; they are due now", ahead_s
            )

    def _note(self, error: str) -> None:
        """Keep an error for those who show it; if nobody does, log it once."""
        if error != self.last_error and self._logs_errors:
            log.warning("maintenance failed: %s", error)
        self.last_error = error

    def _tasks(self) -> list[Task]:
        at, tasks = self._known_tasks
        # On a bucket each look is several requests; a claim looks again.
        if not self._warehouse.storage.is_local and time.monotonic() - at < _TASKS_AGE_S:
            return tasks
        try:
            tasks = self._control.tasks()
        except Corrupted as error:
            # A damaged control table must not stop all maintenance.
            self._control.recreate(error)
            tasks = self._control.tasks()
        self._known_tasks = (time.monotonic(), tasks)
        return tasks

    def _work_of(self, table: OpenTable) -> list[Work]:
        settings = self._warehouse.settings
        snapshot = table.snapshot()
        limits = FoldLimits(settings.fold_rows, settings.fold_bytes, settings.fold_age_s, settings.fold_share)
        now_us = int(dt.datetime.now(dt.UTC).timestamp() * 1e6)
        reason = fold_reason(
            table.log.backlog(), limits, base_rows=snapshot.base.rows, keyed=bool(snapshot.key), now_us=now_us
        )
        work: list[Work] = []
        if reason:
            work.append(("fold", lambda: self._fold(table, reason), 0.0))
        compaction = scheduled_limits(table.file_bytes(snapshot.base))
        is_merged = any(more.merges(table.name) for more in self._upkeep)
        if not is_merged and files_to_compact(snapshot.base.files.values(), compaction):
            work.append(("compact", lambda: self._merge(table, compaction), settings.compact_interval_s))
        if snapshot.base.version:  # before the first commit there is nothing to delete
            work.append(("vacuum", lambda: vacuum(table).as_dict(), settings.vacuum_interval_s))
        properties = snapshot.base.properties
        days = int(properties.get("crannog.retentionDays", 0)) or self._days_kept(table.name, properties)
        if days:
            before = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=days)
            work.append(("expire", lambda: self._expire_if_old(table, before), settings.expire_interval_s))
        for more in self._upkeep:
            work += more.due(table, self._running)
        return work

    def _days_kept(self, name: TableName, properties: Mapping[str, str]) -> int:
        """Return the retention of a user's table in days; 0 keeps everything. Crannog's own tables have their own settings."""
        if is_reserved(name) or owner_of(name, properties) is not None:
            return 0
        retentions = self._warehouse.settings.table_retention_days
        return next((days for pattern, days in retentions.items() if fnmatchcase(str(name), pattern)), 0)

    def _fold(self, table: OpenTable, reason: str) -> dict[str, Any]:
        settings = self._warehouse.settings
        share = backlog_share(table.log.backlog(), settings.staged_rows_limit, settings.staged_bytes_limit)
        self._warehouse.set_spark_nice(spark_nice(share, settings.spark_nice))
        return {"why": reason, **fold(table, cancellation=self._running).as_dict()}

    def _merge(self, table: OpenTable, limits: CompactionLimits) -> dict[str, Any]:
        folded = nothing_folded(table.snapshot().base)
        return merge_files(table, limits, folded, cancellation=self._running).as_dict()

    def _expire_if_old(self, table: OpenTable, before: dt.date) -> dict[str, Any]:
        if not may_contain_older(table.snapshot().base, before):
            return {"skipped": f"nothing is older than {before}"}
        return expire(table, before, cancellation=self._running).as_dict()

    def _may_try(self, task: str) -> bool:
        """Tell whether to try a task: after a failure here, others may at once, this process after a doubling delay."""
        return time.monotonic() >= self._not_before.get(task, (0.0, 0))[0]

    def _try(self, task: str, work: Callable[[], Any], interval_s: float) -> bool:
        self._known_tasks = (-math.inf, [])
        lease = self._control.claim(task, self._owner)
        if lease is None:
            return False
        with lease:
            try:
                result = work()
            except Exception as error:
                message = _error_text(error)
                self._control.release(task, self._owner, result={"error": message}, interval_s=None)
                failures = self._not_before.get(task, (0.0, 0))[1] + 1
                pause_s = min(_LONGEST_PAUSE_S, self._warehouse.settings.scheduler_tick_s * 2**failures)
                self._not_before[task] = (time.monotonic() + pause_s, failures)
                self._warehouse.conditions.note(task, message)
                # The first failure is shown by the one who gets the names of tasks; a lasting one is logged the 4th, 8th, … time.
                if not self._logs_errors and failures >= _LASTING_FAILURES and failures & (failures - 1) == 0:
                    log.warning("%s failed (%d times), trying again in %.0f s: %s", task, failures, pause_s, message)
                self._note(f"{task}: {message}")
                return True
            self._not_before.pop(task, None)
            self._warehouse.conditions.clear(task)
            self._control.release(
                task, self._owner, result=result, interval_s=interval_s * random.uniform(1, 1 + _JITTER)
            )
        return True


def run_as_task(control: ControlTable, name: TableName, kind: str, work: Callable[[], Any]) -> None:
    """Run background work and record its result in the control table."""
    owner = process_name()
    task = f"{kind}:{name}"
    lease = control.claim(task, owner)
    try:
        if lease is None:
            return
        with lease:
            try:
                control.release(task, owner, result=work(), interval_s=0.0)
            except Exception as error:
                control.release(task, owner, result={"error": _error_text(error)}, interval_s=None)
    finally:
        control.retire(owner)


def _until(at: dt.datetime | None, now: dt.datetime) -> float:
    return 0.0 if at is None else (at - now).total_seconds()


def _error_text(error: Exception) -> str:
    return error.message if isinstance(error, CrannogError) else f"{type(error).__name__}: {error}"
