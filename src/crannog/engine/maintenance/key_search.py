"""Searches every place of a table for keys without going through the engine: the proof of an erasure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from crannog.delta.log import Base
from crannog.engine.duckdb.engine import FILE_COLUMN, DuckDBEngine, quoted
from crannog.engine.maintenance.unreferenced_files import (
    checkpoints,
    data_files,
    is_finished,
    log_entries,
    not_in_base,
    read_checkpoint,
    running_jobs,
)
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import read
from crannog.errors import SnapshotGone

_LOOKS = 20


class Copies(Protocol):
    """Copies of tables in memory (hot tables)."""

    def holds(self, table: OpenTable, keys: pa.Table) -> bool:
        """Tell whether the copy of a table, if any, has a row with one of the keys."""

    def refresh(self, table: OpenTable) -> None:
        """Reload a copy: its deleted rows stay in memory until then."""


class KeySearch:
    """Searches every file of a table's folder, without going through the engine, and the copies in memory."""

    def __init__(self, table: OpenTable, wanted: pa.Table, copies: Copies | None = None) -> None:
        self._table = table
        self._copies = copies
        self._storage = table.warehouse.storage
        self._base = table.log.head()
        self._wanted = wanted
        self._key = wanted.column_names
        self._engine: DuckDBEngine = table.warehouse.duckdb

    def everywhere(self) -> dict[str, tuple[int, list[str]]]:
        """Return, by kind of place, the number of files searched and those that have a key."""
        live = {f"{self._table.folder}/{path}" for path in self._base.files}
        data = data_files(self._table)
        entries = log_entries(self._table)
        saved = checkpoints(self._table)
        held = self._holding([path for path in data if path in live])
        old = self.old_files() + self.unfinished_files(but_jobs=running_jobs(self._table))
        # The log's statistics of a deleted file cannot be checked against it any more, so the log must have none.
        telling = {path[len(self._table.folder) + 1 :] for path in (*held, *old)} | self.gone()
        return {
            "live files": (len(live), held),
            "files of old versions": (len(data) - len(live), old),
            "stage": (len(self._table.log.staged_names()), self.staged_files()),
            "log statistics": (len(entries), [entry.path for entry in entries if describes(entry.actions, telling)]),
            "checkpoints": (len(saved), [path for path in saved if describes(self.adds_of(path), telling)]),
            "hot cache": (2 if self._copies is not None else 1, self._in_memory()),
        }

    def are_gone_from(self, base: Base) -> bool:
        """Tell whether no file of a base has a key."""
        return not self._holding([f"{self._table.folder}/{path}" for path in base.files])

    def old_files(self, *, but_jobs: Set[str] = frozenset()) -> list[str]:
        """Return the files with a key that the newest version does not name, without those of some jobs."""
        return self._holding([path for path in self._not_live(but_jobs) if is_finished(self._storage, path)])

    def unfinished_files(self, *, but_jobs: Set[str]) -> list[str]:
        """Return the files that a killed task has left half written, without those of some jobs: they may have any key."""
        return [path for path in self._not_live(but_jobs) if not is_finished(self._storage, path)]

    def _not_live(self, but_jobs: Set[str]) -> list[str]:
        return not_in_base(self._table, data_files(self._table), self._base, but_jobs=but_jobs)

    def staged_files(self) -> list[str]:
        folder = self._table.log.stage_folder
        for _ in range(_LOOKS):
            # Another process may have packed what was listed: the next listing has the pack.
            with suppress(SnapshotGone, FileNotFoundError):
                return self._holding([f"{folder}/{name}" for name in self._table.log.staged_names()])
        return self._holding([f"{folder}/{name}" for name in self._table.log.staged_names()])

    def _holding(self, paths: Sequence[str]) -> list[str]:
        """Return the files that have a row with one of the keys."""
        if not paths:
            return []
        schema = pa.schema([self._base.schema.field(name) for name in self._key])
        local = self._table.warehouse.local_paths(paths)
        match = " AND ".join(f"k.{quoted(name)} = t.{quoted(name)}" for name in self._key)
        with self._engine.cursor({"wanted_keys": self._wanted}) as cursor:
            found = read(
                cursor,
                f"SELECT DISTINCT {FILE_COLUMN} AS file FROM {self._engine.scan(local, schema, positions=True)} t"
                f" SEMI JOIN wanted_keys k ON {match}",
            )
        holding = set(found["file"].to_pylist())
        return [path for path, place in zip(paths, local, strict=True) if place in holding]

    def _in_memory(self) -> list[str]:
        found = []
        rows = self._table.log.refresh()[1].rows
        if rows.num_rows:
            joined = rows.select(list(self._key)).join(self._wanted, keys=list(self._key), join_type="left semi")
            found += ["the staged tail"] if joined.num_rows else []
        if self._copies is not None and self._copies.holds(self._table, self._wanted):
            found.append("the copy in memory")
        return found

    def adds_of(self, checkpoint: str) -> list[dict[str, Any]]:
        """Return the add actions of a checkpoint, their paths and statistics."""
        adds = read_checkpoint(self._table, checkpoint, "add").combine_chunks()
        adds = adds.filter(adds.is_valid())
        return [
            {"add": {"path": path, "stats": stats}}
            for path, stats in zip(
                pc.struct_field(adds, "path").to_pylist(), pc.struct_field(adds, "stats").to_pylist(), strict=True
            )
        ]

    def gone(self) -> set[str]:
        """Return the base files that the log names and that no longer exist."""
        present = {path[len(self._table.folder) + 1 :] for path in data_files(self._table)}
        actions = [action for entry in log_entries(self._table) for action in entry.actions]
        actions += [action for path in checkpoints(self._table) for action in self.adds_of(path)]
        return {unquote(action["add"]["path"]) for action in actions if "add" in action} - present


def describes(actions: Iterable[dict[str, Any]], files: set[str]) -> bool:
    """Tell whether statistics show values of one of `files`."""
    for action in actions:
        add = action.get("add")
        if add and unquote(add["path"]) in files and json.loads(add.get("stats") or "{}").keys() - {"numRecords"}:
            return True
    return False
