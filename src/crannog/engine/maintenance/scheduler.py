"""The scheduler: checks every few seconds for due tasks and runs them; pure functions decide what is due."""

from __future__ import annotations

import datetime as dt
import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from crannog.api.reports import Cancellation
from crannog.engine.maintenance.compact import compact
from crannog.engine.maintenance.control import ControlTable, Task
from crannog.engine.maintenance.expire import expire, may_contain_older
from crannog.engine.maintenance.fold import fold
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


def process_name() -> str:
    """Return a unique name for this process."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


class Scheduler:
    """Runs due maintenance of every table in one thread; several processes share the work through the control table."""

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
        self._thread = threading.Thread(target=self._run, name="crannog-scheduler", daemon=True)
        self._running = Cancellation()
        self._not_before: dict[str, tuple[float, int]] = {}
        self._warned_of_clock = False
        self.last_error: str | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 20.0) -> bool:
        """Cancel the running job and wait for the thread; return False if it is still running after the timeout."""
        self._stop.set()
        self._running.cancel()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.wait(self._warehouse.settings.scheduler_tick_s * random.uniform(1 - _JITTER, 1 + _JITTER)):
            try:
                self.run_due()
            except Exception as error:
                # Storage may be unavailable for a while; in any case the next tick tries again.
                self._note(_error_text(error))

    def run_due(self) -> list[str]:
        """Run everything that is due now; return the names of the tasks that this process ran."""
        ran = []
        self._tables.close_idle()
        tasks = {task.task_name: task for task in self._tasks()}
        now = dt.datetime.now(dt.UTC)
        ahead_s = max((task.ahead_s(now) for task in tasks.values()), default=0.0)
        if ahead_s <= CLOCK_SKEW_S:
            self._warned_of_clock = False
        elif not self._warned_of_clock:
            self._warned_of_clock = True
            log.warning(
                "tasks ran up to %.0f s after the present time: the clock was set back; they are due now", ahead_s
            )
        names = self._tables.names()
        outside = [given for more in self._upkeep for given in more.due_outside(self._running)]
        known = {f"{kind}:{name}" for kind in self._kinds for name in names}
        self._control.forget(tasks.keys() - known - {f"{work[0]}:{name}" for name, work in outside})

        def run(name: TableName, kind: str, work: Callable[[], Any], interval_s: float) -> None:
            task = f"{kind}:{name}"
            is_due = task not in tasks or tasks[task].is_due(now)
            if is_due and self._may_try(task) and self._try(task, work, interval_s):
                ran.append(task)

        for name, work in outside:
            run(name, *work)
        for name in names:
            if self._stop.is_set():
                break
            try:
                for each in self._work_of(self._tables.open(name)):
                    run(name, *each)
            except NotFound:
                continue  # dropped meanwhile
            except CrannogError as error:
                self._note(f"{name}: {error.message}")
        return ran

    def _note(self, error: str) -> None:
        """Keep an error for callers of `run_due`, who show it; from the scheduler's own thread, log it once."""
        if error != self.last_error and threading.current_thread() is self._thread:
            log.warning("maintenance failed: %s", error)
        self.last_error = error

    def _tasks(self) -> list[Task]:
        try:
            return self._control.tasks()
        except Corrupted as error:
            # A damaged control table must not stop all maintenance.
            self._control.recreate(error)
            return self._control.tasks()

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
            work.append(("fold", lambda: {"why": reason, **fold(table, cancellation=self._running).as_dict()}, 0.0))
        work.append(("compact", lambda: self._compact_if_it_pays(table), settings.compact_interval_s))
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
        asked = self._warehouse.settings.table_retention_days
        return next((days for pattern, days in asked.items() if fnmatchcase(str(name), pattern)), 0)

    def _compact_if_it_pays(self, table: OpenTable) -> dict[str, Any]:
        plan = compact(table, dry_run=True)
        if not any(line.startswith("merge") for line in plan.plan):
            return {"skipped": "no files are worth merging"}
        return compact(table, cancellation=self._running).as_dict()

    def _expire_if_old(self, table: OpenTable, before: dt.date) -> dict[str, Any]:
        if not may_contain_older(table.snapshot().base, before):
            return {"skipped": f"nothing is older than {before}"}
        return expire(table, before, cancellation=self._running).as_dict()

    def _may_try(self, task: str) -> bool:
        """Tell whether to try a task: after a failure here, others may at once, this process after a doubling delay."""
        return time.monotonic() >= self._not_before.get(task, (0.0, 0))[0]

    def _try(self, task: str, work: Callable[[], Any], interval_s: float) -> bool:
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
                self._note(f"{task}: {message}")
                return True
            self._not_before.pop(task, None)
            self._control.release(
                task, self._owner, result=result, interval_s=interval_s * random.uniform(1, 1 + _JITTER)
            )
        return True


def run_as_task(control: ControlTable, name: TableName, kind: str, work: Callable[[], Any]) -> None:
    """Run background work and record its result in the control table."""
    owner = process_name()
    task = f"{kind}:{name}"
    lease = control.claim(task, owner)
    if lease is None:
        return
    with lease:
        try:
            control.release(task, owner, result=work(), interval_s=0.0)
        except Exception as error:
            control.release(task, owner, result={"error": _error_text(error)}, interval_s=None)


def _error_text(error: Exception) -> str:
    return error.message if isinstance(error, CrannogError) else f"{type(error).__name__}: {error}"
