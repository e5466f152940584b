"""Erase: delete, fold, purge, and prove it. Afterwards the keys stand nowhere in the table's folder (PROTOCOL 17, 18).

Old files that hold the keys go, whatever the retention. Log entries keep their place, and with it the history of
other rows, but lose the statistics of those files; checkpoints that show them go after a new one is written.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crannog.engine import rows as row_input
from crannog.engine.local import LocalEngine, quoted
from crannog.engine.maintenance.audit import key_hash
from crannog.engine.maintenance.fold import fold
from crannog.engine.maintenance.job import Cancellation, Progress
from crannog.engine.maintenance.removed import checkpoints, log_entries
from crannog.engine.maintenance.vacuum import temporary_files
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import read
from crannog.errors import CallerError, VerificationFailed
from crannog.lake import phases
from crannog.lake.base import DeltaLog
from crannog.lake.blocks import parse_name
from crannog.lake.footers import shown_high, shown_low
from crannog.lake.leases import live_leases

_FOLDS = 5
_LEASE_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Place:
    """A kind of place that was looked at, and how many of its files showed a key, before and after."""

    place: str
    looked_at: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """What was found where, before and after, and what other history had to go with it."""

    table: str
    keys: int
    key_hashes: tuple[str, ...]
    actor: str
    reason: str
    erased_at: dt.datetime
    rows_erased: int
    places: tuple[Place, ...]
    files_deleted: int
    versions_lost: tuple[int, ...]
    readers_cut_off: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def erase(
    table: OpenTable,
    keys: Any,
    *,
    actor: str = "",
    reason: str = "",
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
) -> ErasureReceipt:
    """Erase keys for real. Raises VerificationFailed, naming the place, if one is still readable afterwards."""
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
    before = _Search(table, wanted).everywhere()
    rows_before = table.count()
    table.delete(wanted, actor=actor, reason=reason, batch_id=None)
    rows_erased = rows_before - table.count()
    _fold_past_every_pack(table, wanted, progress, cancellation)
    report("delete old files", 0.6)
    cut_off = _wait_for_readers(table)
    search = _Search(table, wanted)
    doomed = search.old_files() + search.staged_files()
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
    report("prove", 0.9)
    after = _Search(table, wanted).everywhere()
    places = tuple(
        Place(name, looked, len(before.get(name, (0, []))[1]), len(found)) for name, (looked, found) in after.items()
    )
    left = {name: found for name, (_, found) in after.items() if found}
    if left:
        name, found = next(iter(left.items()))
        raise VerificationFailed(f"an erased key of {table.name} is still readable in {name}: {found[0]}; erase it again")
    storage = table.warehouse.storage
    return ErasureReceipt(
        table=str(table.name),
        keys=wanted.num_rows,
        key_hashes=tuple(key_hash(storage, table.log.table_id, key) for key in wanted.to_pylist()),
        actor=actor,
        reason=reason,
        erased_at=dt.datetime.now(dt.UTC),
        rows_erased=rows_erased,
        places=places,
        files_deleted=len(doomed),
        versions_lost=lost,
        readers_cut_off=cut_off,
        seconds=round(time.perf_counter() - started, 3),
    )


def _fold_past_every_pack(
    table: OpenTable, wanted: pa.Table, progress: Progress | None, cancellation: Cancellation | None
) -> None:
    """Fold until no staged file that holds a key reaches beyond the folded sequence: only then may it go whole."""
    for _ in range(_FOLDS):
        fold(table, progress=progress, cancellation=cancellation)
        folded = table.log.head().folded
        holding = [parse_name(path.rpartition("/")[2]) for path in _Search(table, wanted).staged_files()]
        if all(name is None or name.last <= folded for name in holding):
            return
    raise VerificationFailed(f"cannot erase from {table.name}: the keys are written anew as fast as they are folded")


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
    """Looks for keys in every file of a table's folder, behind the engine's back."""

    def __init__(self, table: OpenTable, wanted: pa.Table) -> None:
        self._table = table
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
        return {
            "live files": (len(live), self._holding([path for path in data if path in live])),
            "files of old versions": (len(data) - len(live), self.old_files()),
            "stage": (len(self._table.log.staged_names()), self.staged_files()),
            "log statistics": (len(entries), [entry.path for entry in entries if self._shown_in(entry.actions)]),
            "checkpoints": (len(saved), [path for path in saved if self.is_shown_in(path)]),
            "hot cache": (1, self._in_memory()),
        }

    def is_shown_in(self, checkpoint: str) -> bool:
        return self._shown_in(self._adds_of(checkpoint))

    def old_files(self) -> list[str]:
        live = {f"{self._table.folder}/{path}" for path in self._base.files}
        return self._holding([path for path in self._data_files() if path not in live])

    def staged_files(self) -> list[str]:
        folder = self._table.log.stage_folder
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
                f"SELECT DISTINCT filename FROM {self._engine.scan(local, schema, positions=True)} t"
                f" SEMI JOIN wanted_keys k ON {match}",
            )
        holding = set(found["filename"].to_pylist())
        return [path for path, place in zip(paths, local, strict=True) if place in holding]

    def _in_memory(self) -> list[str]:
        rows = self._table.log.refresh()[1].rows
        if not rows.num_rows:
            return []
        joined = rows.select(list(self._key)).join(self._wanted, keys=list(self._key), join_type="left semi")
        return ["the staged tail"] if joined.num_rows else []

    def _adds_of(self, checkpoint: str) -> Iterable[dict[str, Any]]:
        data = pq.read_table(pa.BufferReader(self._storage.read(checkpoint)), columns=["add"])
        adds = data.column("add").combine_chunks()
        stats = pc.struct_field(adds, "stats").to_pylist() if adds.type.get_field_index("stats") >= 0 else []
        return [{"add": {"stats": text}} for text in stats if text]

    def _shown_in(self, actions: Iterable[dict[str, Any]]) -> bool:
        """Tell whether a statistic is the value of a key column of an erased key, as the log would write it."""
        telling = self._telling_values()
        for action in actions:
            stats = json.loads(action.get("add", {}).get("stats") or "{}")
            for bounds, cut in ((stats.get("minValues"), 0), (stats.get("maxValues"), 1)):
                for name, value in (bounds or {}).items():
                    if name in telling and value in telling[name][cut]:
                        return True
        return False

    def _telling_values(self) -> dict[str, tuple[list[Any], list[Any]]]:
        # In a key of several columns one column's value belongs to other rows too: only the first one of a
        # one-column key tells of the erased row by itself.
        if len(self._key) > 1:
            return {}
        [name] = self._key
        values = self._wanted[name].to_pylist()
        return {name: ([_plain(shown_low(value)) for value in values], [_plain(shown_high(value)) for value in values])}

    def erased_paths(self) -> set[str]:
        """Return the base files that any log entry or checkpoint names and that are gone now."""
        present = {path[len(self._table.folder) + 1 :] for path in self._data_files()}
        named = {
            unquote(action["add"]["path"])
            for entry in log_entries(self._table)
            for action in entry.actions
            if "add" in action
        }
        return named - present


def _plain(value: Any) -> Any:
    return float(value.strip("\0")) if isinstance(value, str) and value.startswith("\0") else value


def _versions_naming(table: OpenTable, paths: set[str]) -> tuple[int, ...]:
    """Return the versions that had one of these files: they can no longer be read whole."""
    lost = []
    present: set[str] = set()
    for entry in log_entries(table):
        for action in entry.actions:
            if "add" in action:
                present.add(unquote(action["add"]["path"]))
            elif "remove" in action:
                present.discard(unquote(action["remove"]["path"]))
        if present & paths:
            lost.append(entry.version)
    return tuple(lost)


def _redact_log(table: OpenTable, search: _Search) -> None:
    """Take the statistics of erased files out of the log; entries stay, so every other version stays readable."""
    storage = table.warehouse.storage
    gone = search.erased_paths()
    for entry in log_entries(table):
        actions = [dict(action) for action in entry.actions]
        touched = False
        for action in actions:
            if "add" in action and unquote(action["add"]["path"]) in gone and action["add"].get("stats"):
                rows = json.loads(action["add"]["stats"]).get("numRecords")
                action["add"] = {**action["add"], "stats": json.dumps({"numRecords": rows})}
                touched = True
        if touched:
            lines = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions) + "\n"
            storage.replace(entry.path, lines.encode())
    shown = [path for path in checkpoints(table) if search.is_shown_in(path)]
    if shown:
        DeltaLog(storage, table.folder).checkpoint()
        storage.delete(path for path in shown if path in checkpoints(table)[:-1])
