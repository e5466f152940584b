"""What upkeep has to do for each table: what is staged and since when, what its tasks did last, and what its files take."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from crannog.engine.maintenance.control import Task
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.errors import CrannogError, Overloaded
from crannog.names import TableName

On = Callable[[TableName, Callable[[OpenTable], dict[str, Any]]], dict[str, Any]]


def upkeep_of(names: Sequence[TableName], on: On, tasks: Iterable[Task], *, storage: bool) -> list[dict[str, Any]]:
    """Return the upkeep of tables; of one that cannot be read, its name and the error."""
    by_table: dict[str, list[dict[str, Any]]] = {}
    for task in tasks:
        kind, _, table = task.task_name.partition(":")
        by_table.setdefault(table, []).append(_task(kind, task))
    now = dt.datetime.now(dt.UTC)
    found = []
    for name in names:
        try:
            entry = on(name, lambda table: _upkeep(table, now, storage=storage))
        except Overloaded:
            raise
        except CrannogError as error:
            # One table that cannot be read must not hide the others.
            entry = {"name": str(name), "error": error.message}
        found.append({**entry, "tasks": by_table.get(str(name), [])})
    return found


def _upkeep(table: OpenTable, now: dt.datetime, *, storage: bool) -> dict[str, Any]:
    base, backlog = table.log.last_seen_base(), table.log.backlog()
    oldest = None if backlog.oldest_us is None else dt.datetime.fromtimestamp(backlog.oldest_us / 1e6, dt.UTC)
    return {
        "name": str(table.name),
        "version": base.version,
        **table.newest(
            lambda snapshot: {
                "rows": table.count(snapshot=snapshot),
                "changed_at": changed_at(snapshot).isoformat(),
            }
        ),
        "base_rows": base.rows,
        "base_files": len(base.files),
        "base_bytes": base.bytes,
        "staged_rows": backlog.rows,
        "staged_bytes": backlog.bytes,
        "staged_files": backlog.files,
        "oldest_staged_at": None if oldest is None else oldest.isoformat(),
        "lag_s": 0.0 if oldest is None else max(0.0, round((now - oldest).total_seconds(), 3)),
        "storage": _storage(table) if storage else None,
    }


def changed_at(snapshot: Snapshot) -> dt.datetime:
    """Return when a table was last written: by a change that is staged, or else when the newest file of its base was made."""
    if records := snapshot.tail.records:
        return dt.datetime.fromtimestamp(records[-1].at_us / 1e6, dt.UTC)
    base = snapshot.base
    newest_ms = max(base.actions["modification_time"].to_pylist(), default=base.created_ms)
    return dt.datetime.fromtimestamp(newest_ms / 1000, dt.UTC)


def _storage(table: OpenTable) -> dict[str, int]:
    """Return the bytes of a table's files by what they are for."""
    # Listed before the head is read: a file that is committed meanwhile is not taken for one to be deleted.
    files = list(table.warehouse.storage.walk(table.folder))
    live = {f"{table.folder}/{path}" for path in table.log.head().files}
    sizes = dict.fromkeys(
        ("base_bytes", "stage_bytes", "log_bytes", "other_bytes", "pending_bytes", "pending_files"), 0
    )
    for file in files:
        if file.path in live:
            sizes["base_bytes"] += file.size
        elif file.path.startswith(f"{table.folder}/data/"):
            sizes["pending_bytes"] += file.size
            sizes["pending_files"] += 1
        elif file.path.startswith(f"{table.log.stage_folder}/"):
            sizes["stage_bytes"] += file.size
        elif file.path.startswith(f"{table.folder}/_delta_log/"):
            sizes["log_bytes"] += file.size
        else:
            sizes["other_bytes"] += file.size
    return sizes


def _text(time: dt.datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _task(kind: str, task: Task) -> dict[str, Any]:
    result = json.loads(task.last_result) if task.last_result else None
    return {
        "kind": kind,
        "status": task.status,
        "owner": task.owner,
        "failures": task.failures,
        "claimed_at": _text(task.claimed_at),
        "completed_at": _text(task.completed_at),
        "next_run_at": _text(task.next_run_at),
        "seconds": result.get("seconds") if isinstance(result, dict) else None,
        "last_result": result,
    }
