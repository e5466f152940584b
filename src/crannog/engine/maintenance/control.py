"""The control table: which maintenance is due, which process runs it, and its result; shared by all processes.

A small Delta table that each change rewrites as a whole, with one log entry put at exactly the version after the one
that was read. The loser of a race finds its version taken and reads again, so a due task runs once.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from crannog.delta.checkpoints import remove_damaged
from crannog.delta.log import DataFile, add_action, metadata_action, put_entry, remove_action, torn_entry
from crannog.delta.schemas import to_delta_json
from crannog.engine.maintenance.owners import Owners
from crannog.errors import Conflict, Corrupted
from crannog.protocol.leases import CLOCK_SKEW_S, Lease, is_live
from crannog.storage import failpoints
from crannog.storage.interface import Storage
from crannog.version import VERSION

FOLDER = "_crannog/control"
IDLE, PROCESSING = "idle", "processing"
_INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        pa.field("task_name", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("owner", pa.string()),
        pa.field("claimed_at", _INSTANT),
        pa.field("completed_at", _INSTANT),
        pa.field("next_run_at", _INSTANT),
        pa.field("failures", pa.int64(), nullable=False),
        pa.field("last_result", pa.string()),
    ]
)
_MAX_ATTEMPTS = 50
_CHECKPOINT_EVERY = 20
_OLD_FILES_S = 3600.0
log = logging.getLogger("crannog.engine")


@dataclass(frozen=True, slots=True)
class Task:
    """One row of the control table."""

    task_name: str
    status: str = IDLE
    owner: str | None = None
    claimed_at: dt.datetime | None = None
    completed_at: dt.datetime | None = None
    next_run_at: dt.datetime | None = None
    failures: int = 0
    last_result: str | None = None

    def may_be_claimed(self, now: dt.datetime, *, holder_is_alive: bool) -> bool:
        """Tell whether a task may be claimed: it is idle and due, or its holder has stopped sending heartbeats."""
        if self.status == PROCESSING:
            return not holder_is_alive
        return self.is_due(now)

    def is_due(self, now: dt.datetime) -> bool:
        """Tell whether the task is due; also true if the clock was set back since it ran."""
        return self.next_run_at is None or self.next_run_at <= now or self.ahead_s(now) > CLOCK_SKEW_S

    def ahead_s(self, now: dt.datetime) -> float:
        """Return how many seconds in the future the task last ran, by the clock of that time; 0 if in the past."""
        times = [time for time in (self.claimed_at, self.completed_at) if time is not None]
        return max([0.0, *((time - now).total_seconds() for time in times)])


class _FileGone(Exception):
    """A data file is missing; carries the version of the log that names it."""


def _damaged(what: str) -> Corrupted:
    return Corrupted(
        f"the control table is damaged: {what}; the next maintenance process recreates it, or delete the folder {FOLDER}"
    )


class ControlTable:
    """The tasks of a warehouse. Safe for use from several threads and processes."""

    def __init__(
        self, storage: Storage, *, lease_s: float, clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    ) -> None:
        self._storage = storage
        self._lease_s = lease_s
        self._clock = clock
        self._lock = threading.Lock()
        self._owners = Owners(storage, f"{FOLDER}/owners")
        self._known: tuple[int | None, list[Task]] | None = None

    def tasks(self) -> list[Task]:
        """Return every task, by name."""
        # Read before the tasks: whatever changes them later changes it too.
        stamp = self._storage.change_stamp(f"{FOLDER}/_delta_log")
        known = self._known
        if stamp is None or known is None or known[0] != stamp:
            tasks = sorted(self._read()[1].values(), key=lambda task: task.task_name)
            self._known = known = (stamp, tasks)
        return list(known[1])

    def claim(self, name: str, owner: str) -> Lease | None:
        """Claim a due task; None if it is not due, another process has it, or the race was lost.

        The lease returned is not active yet: enter it while the task runs, then `release` the task.
        """
        lease = Lease(self._storage, self._lease_path(name, owner), {"kind": "task", "task": name, "owner": owner})

        def take(task: Task) -> Task | None:
            now = self._clock()
            if not task.may_be_claimed(now, holder_is_alive=self._is_alive(task, now)):
                return None
            return replace(task, status=PROCESSING, owner=owner, claimed_at=now)

        self._owners.announce(owner)
        if not self._change(name, take):
            return None
        failpoints.reached("control.claimed")
        return lease

    def release(self, name: str, owner: str, *, result: Any, interval_s: float | None) -> bool:
        """Release a task: with `interval_s` it succeeded and is due again after that, without it failed and stays due."""

        def give_back(task: Task) -> Task | None:
            if task.status != PROCESSING or task.owner != owner:
                return None  # another process took it over and reports its result
            now = self._clock()
            text = json.dumps(result, default=str)
            if interval_s is None:
                return replace(task, status=IDLE, owner=None, failures=task.failures + 1, last_result=text)
            due = now + dt.timedelta(seconds=interval_s)
            return replace(
                task, status=IDLE, owner=None, completed_at=now, next_run_at=due, failures=0, last_result=text
            )

        return self._change(name, give_back)

    def retire(self, owner: str) -> None:
        """Forget an owner in this process that will claim nothing more."""
        self._owners.retire(owner)

    def forget(self, names: set[str]) -> None:
        """Remove tasks, such as those of dropped tables."""
        for name in names:
            self._change(name, lambda _task: None, drop=True)

    def _is_alive(self, task: Task, now: dt.datetime) -> bool:
        if task.owner is not None and self._owners.is_dead(task.owner):
            return False
        # If it was just claimed, its lease may not be written yet.
        if task.claimed_at is not None and -CLOCK_SKEW_S <= (now - task.claimed_at).total_seconds() < self._lease_s:
            return True
        path = self._lease_path(task.task_name, task.owner or "")
        return any(
            file.path == path and is_live(file.modified, self._storage.now(), self._lease_s)
            for file in self._storage.walk(f"{FOLDER}/leases")
        )

    @staticmethod
    def _lease_path(name: str, owner: str) -> str:
        # Each claim has its own lease: releasing a task must not end the heartbeat of the next claim.
        return f"{FOLDER}/leases/{hashlib.sha256(f'{name} {owner}'.encode()).hexdigest()[:32]}.json"

    def _change(self, name: str, change: Callable[[Task], Task | None], *, drop: bool = False) -> bool:
        with self._lock:
            for _ in range(_MAX_ATTEMPTS):
                version, tasks, current = self._read()
                if drop:
                    if tasks.pop(name, None) is None:
                        return False
                else:
                    changed = change(tasks.get(name, Task(name)))
                    if changed is None:
                        return False
                    tasks[name] = changed
                if self._commit(version, tasks, current):
                    return True
        raise Conflict(f"cannot change task {name}: other processes won {_MAX_ATTEMPTS} times in a row; try again")

    def _read(self) -> tuple[int, dict[str, Task], list[DataFile]]:
        seen = None
        for _ in range(_MAX_ATTEMPTS):
            try:
                return self._read_newest()
            except _FileGone as gone:
                # Replaced and deleted since the log was read; or lost, if the log still names it.
                if seen == gone.args:
                    path, version = gone.args
                    raise _damaged(f"{FOLDER}/{path} is gone, and version {version} of the log names it") from None
                seen = gone.args
        raise Conflict(f"cannot read the control table: it changed {_MAX_ATTEMPTS} times meanwhile; try again")

    def _read_newest(self) -> tuple[int, dict[str, Task], list[DataFile]]:
        path = ""
        try:
            table = self._table()
            actions = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
            files = [
                DataFile(path, size, 0, {})
                for path, size in zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
            ]
            rows: list[dict[str, Any]] = []
            for file in files:
                path = f"{FOLDER}/{file.path}"
                rows += pq.read_table(pa.BufferReader(self._storage.read(path))).to_pylist()
        except TableNotFoundError:
            return -1, {}, []
        except FileNotFoundError:
            raise _FileGone(file.path, table.version()) from None
        except (DeltaError, OSError, pa.ArrowException) as error:
            path = path or torn_entry(self._storage, FOLDER) or f"the log in {FOLDER}/_delta_log"
            raise _damaged(f"{path} cannot be read ({str(error)[:200]})") from error
        return table.version(), {row["task_name"]: Task(**row) for row in rows}, files

    def _table(self) -> DeltaTable:
        options = dict(self._storage.options) or None
        try:
            return DeltaTable(self._storage.uri(FOLDER), storage_options=options)
        except TableNotFoundError:
            raise
        except DeltaError:
            if not remove_damaged(self._storage, f"{FOLDER}/_delta_log"):
                raise
            return DeltaTable(self._storage.uri(FOLDER), storage_options=options)

    def recreate(self, error: Corrupted) -> None:
        """Replace a control table that cannot be read. It loses when tasks last ran: all are due now.

        It also loses the claims: two processes may do the same work then, one of them for nothing.
        """
        log.warning("%s; recreating it, all tasks are due", error.message)
        with self._lock:
            for folder in ("_delta_log", "data"):
                self._storage.delete_folder(f"{FOLDER}/{folder}")

    def _commit(self, version: int, tasks: dict[str, Task], current: list[DataFile]) -> bool:
        for folder in ("_delta_log", "data", "leases"):
            self._storage.make_folder(f"{FOLDER}/{folder}")
        now_ms = time.time_ns() // 1_000_000
        rows = pa.Table.from_pylist(
            [{name: getattr(task, name) for name in SCHEMA.names} for task in tasks.values()], SCHEMA
        )
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink)
        data = sink.getvalue().to_pybytes()
        path = f"data/{version + 1:020}-{uuid.uuid4().hex}.parquet"
        self._storage.put_if_absent(f"{FOLDER}/{path}", data)
        added = DataFile(path, len(data), len(tasks), {}, json.dumps({"numRecords": len(tasks)}))
        actions: list[dict[str, Any]] = [
            {
                "commitInfo": {
                    "timestamp": now_ms,
                    "operation": "WRITE",
                    "operationParameters": {"mode": "Overwrite"},
                    "engineInfo": f"crannog/{VERSION}",
                }
            }
        ]
        if version < 0:
            actions.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
            properties = {"delta.logRetentionDuration": "interval 1 days"}
            actions.append(
                metadata_action(
                    table_id=str(uuid.uuid4()),
                    schema_json=to_delta_json(SCHEMA),
                    partition_by=(),
                    properties=properties,
                    created_ms=now_ms,
                )
            )
        actions += [remove_action(file, data_change=True, now_ms=now_ms) for file in current]
        actions.append(add_action(added, data_change=True, now_ms=now_ms))
        if not put_entry(self._storage, f"{FOLDER}/_delta_log/{version + 1:020}.json", actions):
            self._storage.delete([f"{FOLDER}/{path}"])
            return False
        if (version + 1) % _CHECKPOINT_EVERY == 0 and version >= 0:
            with suppress(DeltaError, OSError):
                self._tidy(path)
        return True

    def _tidy(self, current: str) -> None:
        table = self._table()
        table.create_checkpoint()
        table.cleanup_metadata()
        now = self._storage.now()
        self._storage.delete(
            file.path
            for file in list(self._storage.walk(f"{FOLDER}/data"))
            if now - file.modified > _OLD_FILES_S and not file.path.endswith(current)
        )
