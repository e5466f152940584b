"""Finds files of a table's folder that no version needs any more, from the log itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from crannog.delta.checkpoints import remove_damaged
from crannog.delta.log import Base
from crannog.engine.columnar.parquet_files import ARROW_SUFFIX
from crannog.engine.open_table import OpenTable
from crannog.errors import Corrupted
from crannog.protocol.leases import live_leases
from crannog.storage.interface import Storage

_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Removal:
    """A file removed from the base, with the time and version of its removal."""

    path: str
    at_ms: int
    version: int


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One JSON entry of the log."""

    version: int
    path: str
    actions: tuple[dict[str, Any], ...]

    @property
    def at_ms(self) -> int:
        return next((int(action["commitInfo"]["timestamp"]) for action in self.actions if "commitInfo" in action), 0)

    @property
    def operation(self) -> str:
        return next(
            (str(action["commitInfo"].get("operation", "")) for action in self.actions if "commitInfo" in action), ""
        )

    @property
    def folded(self) -> int | None:
        return next((int(action["txn"]["version"]) for action in self.actions if "txn" in action), None)


def log_entries(table: OpenTable, *, after: int = -1) -> list[LogEntry]:
    """Return the log's remaining JSON entries of versions above `after`, oldest first."""
    storage = table.warehouse.storage
    folder = f"{table.folder}/_delta_log"
    entries = []
    for name in sorted(storage.names(folder)):
        stem = name.removesuffix(".json")
        if name.endswith(".json") and stem.isdigit() and int(stem) > after:
            try:
                text = storage.read(f"{folder}/{name}")
                entries.append(LogEntry(int(stem), f"{folder}/{name}", tuple(map(json.loads, text.splitlines()))))
            except FileNotFoundError:
                continue
            except ValueError as error:
                raise Corrupted(f"log entry {folder}/{name} is not valid; restore it from a backup") from error
    return entries


def checkpoints(table: OpenTable) -> list[str]:
    """Return the paths of the log's checkpoints, oldest first."""
    folder = f"{table.folder}/_delta_log"
    return [
        f"{folder}/{name}"
        for name in sorted(table.warehouse.storage.names(folder))
        if ".checkpoint" in name and name.endswith(".parquet")
    ]


def read_checkpoint(table: OpenTable, path: str, action: str) -> pa.ChunkedArray:
    """Return the actions of one kind in a checkpoint; none if it is damaged and was therefore deleted."""
    storage = table.warehouse.storage
    try:
        return pq.read_table(pa.BufferReader(storage.read(path)), columns=[action]).column(action)
    except (pa.ArrowException, OSError, KeyError):
        if storage.exists(path) and path not in remove_damaged(storage, path.rpartition("/")[0]):
            raise
        return pa.chunked_array([], pa.struct([("path", pa.string()), ("stats", pa.string())]))


def removals(table: OpenTable) -> dict[str, Removal]:
    """Return every removal that the log still has, by path."""
    found: dict[str, Removal] = {}
    for path in checkpoints(table):
        version = int(path.rpartition("/")[2].partition(".")[0])
        for row in read_checkpoint(table, path, "remove").to_pylist():
            if row is not None:
                name = unquote(row["path"])
                found[name] = Removal(name, int(row["deletionTimestamp"] or 0), version)
    for entry in log_entries(table):
        for action in entry.actions:
            if "remove" in action:
                name = unquote(action["remove"]["path"])
                found[name] = Removal(name, int(action["remove"].get("deletionTimestamp") or 0), entry.version)
    return found


def data_files(table: OpenTable) -> list[str]:
    """Return the files of a table's folder that jobs have written: rows for their tasks, and results, committed or not."""
    return [
        file.path
        for folder in (f"{table.folder}/data", f"{table.log.own_folder}/jobs")
        for file in table.warehouse.storage.walk(folder)
        if file.path.endswith((".parquet", ARROW_SUFFIX))
    ]


def not_in_base(table: OpenTable, paths: Iterable[str], base: Base, *, but_jobs: Set[str]) -> list[str]:
    """Return the files that a version does not name, without those of some jobs."""
    named = {f"{table.folder}/{path}" for path in base.files}
    return [path for path in paths if path not in named and but_jobs.isdisjoint(path.split("/"))]


def running_jobs(table: OpenTable, *, since_version: int = 0) -> set[str]:
    """Return the ids of the jobs that are running and have read this version or a later one."""
    leases = live_leases(table.warehouse.storage, f"{table.log.own_folder}/leases")
    return {lease["job"] for lease in leases if lease.get("kind") == "job" and lease["version"] >= since_version}


def is_finished(storage: Storage, path: str) -> bool:
    """Tell whether a file of a job is a Parquet file with its footer, which is written last; a bucket takes files in one piece."""
    if path.endswith(ARROW_SUFFIX):
        return False  # rows for the tasks of a job, of no use without it
    if not storage.is_local:
        return True
    with suppress(FileNotFoundError), storage.open(path) as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - len(_MAGIC)))
        # Its first bytes are the same: a file that has nothing else is not finished.
        return end > 2 * len(_MAGIC) and file.read() == _MAGIC
    return True  # deleted since it was listed
