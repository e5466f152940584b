"""Erase: delete, fold, purge, and prove it. Afterwards the keys stand nowhere in the table's folder (PROTOCOL 17, 18).

Old files that hold the keys go, whatever the retention. Log entries keep their place, and with it the history of
other rows, but lose the statistics of those files; checkpoints that show them go after a new one is written.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crannog.engine import rows as row_input
from crannog.engine.local import FILE_COLUMN, LocalEngine, quoted
from crannog.engine.maintenance.audit import applied, key_hash
from crannog.engine.maintenance.fold import fold
from crannog.engine.maintenance.job import part_of
from crannog.engine.maintenance.removed import checkpoints, log_entries
from crannog.engine.maintenance.vacuum import temporary_files
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import read
from crannog.errors import CallerError, NotFound, SnapshotGone, VerificationFailed
from crannog.lake import phases
from crannog.lake.base import Base, DeltaLog
from crannog.lake.blocks import parse_name
from crannog.lake.leases import live_leases
from crannog.verbs.cancellation import Cancellation
from crannog.verbs.reports import ErasureReceipt, Place, Progress

_FOLDS = 5
_LOOKS = 20
_LEASE_POLL_S = 0.2


class Copies(Protocol):
    """Copies of tables in memory."""

    def holds(self, table: OpenTable, keys: pa.Table) -> bool:
        """Tell whether the copy of a table, if there is one, has a row with one of the keys."""

    def renew(self, table: OpenTable) -> None:
        """Make a copy anew: deleted rows of one stay in its memory until then."""


def erase(
    table: OpenTable,
    keys: Any,
    *,
    actor: str = "",
    reason: str = "",
    copies: Copies | None = None,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
) -> ErasureReceipt:
    """Erase keys for real, from `copies` in memory too.

    Raises VerificationFailed, naming the place, if one is still readable afterwards.
    """
    started = time.perf_counter()
    report = progress or (lambda _step, _share: None)
    base = table.log.refresh()[0]
    if not base.key:
        raise CallerError(f"cannot erase from {table.name}: it has no key, so there is nothing to erase by")
    wanted = row_input.keys_to_arrow(keys, base.user_schema, base.key, table=str(table.name), verb="erase")
    wanted = wanted.group_by(list(base.key)).aggregate([])
    if not wanted.num_rows:
        raise CallerError(f"cannot erase from {table.name}: no keys were given")
    report("look at every place", 0.0)
    before = _Search(table, wanted, copies).everywhere()
    deleted = table.delete(wanted, actor=actor, reason=reason, batch_id=None)
    clean = _fold_past_every_pack(table, wanted, part_of(progress, 0.05, 0.6), cancellation)
    report("delete old files", 0.6)
    cut_off = _wait_for_readers(table)
    search = _Search(table, wanted)
    # What was written later stays, whatever its keys: an erase covers the sequences up to its own.
    staged = [path for path in search.staged_files() if _is_folded(path, clean)]
    doomed = search.old_files(but_jobs=_jobs_that_may_commit(table, clean)) + staged
    live = {f"{table.folder}/{path}" for path in table.log.head().files}
    held = [path for path in doomed if path in live]
    if held:
        raise VerificationFailed(f"cannot erase from {table.name}: the live file {held[0]} still holds a key after the fold")
    lost = _versions_naming(table, {path[len(table.folder) + 1 :] for path in doomed})
    # A writer that was killed may have left its file unfinished, with a key in it; a living one writes it anew.
    leftovers = temporary_files(table, table.log.own_folder, older_than_s=0)
    table.warehouse.storage.delete([*doomed, *leftovers])
    table.warehouse.forget_copies(doomed)
    phases.reached("erase.files_deleted")
    report("clean the log", 0.8)
    _redact_log(table, search)
    phases.reached("erase.log_redacted")
    if copies is not None:
        copies.renew(table)
    report("prove", 0.9)
    after = _Search(table, wanted, copies).everywhere()
    places = tuple(
        Place(name, looked, len(before.get(name, (0, []))[1]), len(found)) for name, (looked, found) in after.items()
    )
    left = {name: found for name, (_, found) in after.items() if found}
    if left:
        name, found = next(iter(left.items()))
        raise VerificationFailed(f"an erased key of {table.name} is still readable in {name}: {found[0]}; erase it again")
    hashes = [key_hash(table.warehouse.storage, table.log.table_id, key) for key in wanted.to_pylist()]
    there = {entry["key_hash"] for entry in applied(table) if entry["sequence"] == deleted.sequence and entry["outcome"] == "hidden"}
    return ErasureReceipt(
        table=str(table.name),
        keys=wanted.num_rows,
        key_hashes=tuple(hashes),
        actor=actor,
        reason=reason,
        erased_at=dt.datetime.now(dt.UTC),
        rows_erased=len(there.intersection(hashes)),
        places=places,
        files_deleted=len(doomed),
        versions_lost=lost,
        readers_cut_off=cut_off,
        seconds=round(time.perf_counter() - started, 3),
    )


def _fold_past_every_pack(
    table: OpenTable, wanted: pa.Table, progress: Progress | None, cancellation: Cancellation | None
) -> Base:
    """Fold until no staged file that holds a key reaches beyond the folded sequence: only then may it go whole.

    Returns the base from which the keys are gone.
    """
    for _ in range(_FOLDS):
        fold(table, progress=progress, cancellation=cancellation)
        base = table.log.head()
        if all(_is_folded(path, base) for path in _Search(table, wanted).staged_files()):
            return base
    raise VerificationFailed(f"cannot erase from {table.name}: the keys are written anew as fast as they are folded")


def _is_folded(path: str, base: Base) -> bool:
    name = parse_name(path.rpartition("/")[2])
    return name is None or name.last <= base.folded


def _jobs_that_may_commit(table: OpenTable, clean: Base) -> set[str]:
    """Return the running jobs that read `clean` or later: the keys in their files were written anew.

    One that read an earlier base cannot commit files that hold a key: the fold took away what they were made of.
    """
    leases = live_leases(table.warehouse.storage, f"{table.log.own_folder}/leases")
    return {lease["job"] for lease in leases if lease.get("kind") == "job" and lease["version"] >= clean.version}


def _wait_for_readers(table: OpenTable) -> int:
    """Wait for readers up to the limit, then win; return how many are cut off."""
    deadline = time.monotonic() + table.warehouse.settings.lease_wait_s
    while True:
        leases = live_leases(table.warehouse.storage, f"{table.log.own_folder}/leases")
        readers = len([lease for lease in leases if lease.get("kind") == "reader"])
        if not readers or time.monotonic() > deadline:
            return readers
        time.sleep(_LEASE_POLL_S)


class _Search:
    """Looks for keys in every file of a table's folder, behind the engine's back, and in the copies in memory."""

    def __init__(self, table: OpenTable, wanted: pa.Table, copies: Copies | None = None) -> None:
        self._table = table
        self._copies = copies
        self._storage = table.warehouse.storage
        self._base = table.log.head()
        self._wanted = wanted
        self._key = self._base.key
        self._engine: LocalEngine = table.warehouse.local

    def everywhere(self) -> dict[str, tuple[int, list[str]]]:
        """Return, by kind of place, how many files were looked at and which of them show a key."""
        live = {f"{self._table.folder}/{path}" for path in self._base.files}
        data = self._data_files()
        entries = log_entries(self._table)
        saved = checkpoints(self._table)
        held = self._holding([path for path in data if path in live])
        old = self.old_files()
        # What the log tells of a file that is gone cannot be checked against it any more, so it must tell nothing.
        telling = {path[len(self._table.folder) + 1 :] for path in (*held, *old)} | self.gone()
        return {
            "live files": (len(live), held),
            "files of old versions": (len(data) - len(live), old),
            "stage": (len(self._table.log.staged_names()), self.staged_files()),
            "log statistics": (len(entries), [entry.path for entry in entries if describes(entry.actions, telling)]),
            "checkpoints": (len(saved), [path for path in saved if describes(self.adds_of(path), telling)]),
            "hot cache": (2 if self._copies is not None else 1, self._in_memory()),
        }

    def old_files(self, *, but_jobs: Set[str] = frozenset()) -> list[str]:
        live = {f"{self._table.folder}/{path}" for path in self._base.files}
        old = [path for path in self._data_files() if path not in live]
        return self._holding([path for path in old if but_jobs.isdisjoint(path.split("/"))])

    def staged_files(self) -> list[str]:
        folder = self._table.log.stage_folder
        for _ in range(_LOOKS):
            # Another process may pack what was listed: the next listing has the pack.
            with suppress(SnapshotGone, FileNotFoundError):
                return self._holding([f"{folder}/{name}" for name in self._table.log.staged_names()])
        return self._holding([f"{folder}/{name}" for name in self._table.log.staged_names()])

    def _data_files(self) -> list[str]:
        return [
            file.path
            for folder in (f"{self._table.folder}/data", f"{self._table.log.own_folder}/jobs")
            for file in self._storage.walk(folder)
            if file.path.endswith(".parquet")
        ]

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
        data = pq.read_table(pa.BufferReader(self._storage.read(checkpoint)), columns=["add"])
        adds = data.column("add").combine_chunks()
        adds = adds.filter(adds.is_valid())
        return [
            {"add": {"path": path, "stats": stats}}
            for path, stats in zip(
                pc.struct_field(adds, "path").to_pylist(), pc.struct_field(adds, "stats").to_pylist(), strict=True
            )
        ]

    def gone(self) -> set[str]:
        """Return the base files that the log names and that are not there any more."""
        present = {path[len(self._table.folder) + 1 :] for path in self._data_files()}
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


def _versions_naming(table: OpenTable, paths: set[str]) -> tuple[int, ...]:
    """Return the versions that have one of these files: they can no longer be read whole."""
    log = DeltaLog(table.warehouse.storage, table.folder)
    lost = []
    for version in range(table.log.head().version + 1):
        with suppress(NotFound):  # cleaned away long ago
            if not paths.isdisjoint(log.at(version).files):
                lost.append(version)
    return tuple(lost)


def _redact_log(table: OpenTable, search: _Search) -> None:
    """Take the statistics of erased files out of the log; entries stay, so every other version stays readable."""
    storage = table.warehouse.storage
    gone = search.gone()
    for entry in log_entries(table):
        if not describes(entry.actions, gone):
            continue
        actions = [dict(action) for action in entry.actions]
        for action in actions:
            if "add" in action and unquote(action["add"]["path"]) in gone and action["add"].get("stats"):
                rows = json.loads(action["add"]["stats"]).get("numRecords")
                action["add"] = {**action["add"], "stats": json.dumps({"numRecords": rows})}
        lines = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions) + "\n"
        storage.replace(entry.path, lines.encode())
    telling = [path for path in checkpoints(table) if describes(search.adds_of(path), gone)]
    if telling:
        DeltaLog(storage, table.folder).checkpoint()
        storage.delete(telling)
