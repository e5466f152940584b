"""Erase: delete, fold, purge, and verify that the keys are nowhere in the table's folder (PROTOCOL 17, 18).

Old files with the keys are deleted, whatever the retention. Log entries stay, and with them the history of
other rows, but lose the statistics of those files; checkpoints that show them are deleted after a new one is written.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from crannog.api.reports import Cancellation, ErasureReceipt, Place, Progress
from crannog.delta.log import Base, DeltaLog
from crannog.engine import result_files
from crannog.engine import rows as row_input
from crannog.engine.maintenance.delete_audit import key_hash
from crannog.engine.maintenance.job import progress_range
from crannog.engine.maintenance.key_search import Copies, KeySearch, describes
from crannog.engine.maintenance.purge_keys import DeletionRequest, is_folded, purge_by_key, purge_by_values
from crannog.engine.maintenance.unreferenced_files import checkpoints, log_entries, running_jobs
from crannog.engine.maintenance.vacuum import temporary_files
from crannog.engine.open_table import OpenTable
from crannog.errors import CallerError, NotFound, VerificationFailed
from crannog.protocol.leases import live_leases
from crannog.storage import failpoints, scratch_folders

_LEASE_POLL_S = 0.2
_Findings = Mapping[str, tuple[int, list[str]]]
"""By kind of place, the number of files searched and those that have a key."""


def erase(
    table: OpenTable,
    keys: Any,
    *,
    actor: str = "",
    reason: str = "",
    by: Sequence[str] = (),
    copies: Copies | None = None,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
    then: Callable[[ErasureReceipt, pa.Table], ErasureReceipt] | None = None,
) -> ErasureReceipt:
    """Erase keys from every file and from `copies` in memory; without a key, rows by their values in the columns `by`.

    `then` gets the receipt and the keys, erases them elsewhere, and returns the receipt with what it found there.
    Raises VerificationFailed with the place if a key is still readable afterwards.
    """
    started = time.perf_counter()
    report = progress or (lambda _step, _share: None)
    base = table.log.refresh()[0]
    wanted = _distinct_keys(table, base, keys, _columns(table, base, by))
    report("search for the keys", 0.0)
    before = KeySearch(table, wanted, copies).everywhere()
    purge = purge_by_key if base.key else purge_by_values
    clean, rows_erased = purge(
        table, wanted, DeletionRequest(actor, reason), progress_range(progress, 0.05, 0.6), cancellation
    )
    report("delete old files", 0.6)
    cut_off, search = _wait_for_readers(table), KeySearch(table, wanted)
    to_delete = _files_to_delete(table, search, clean)
    lost = _versions_naming(table, {path[len(table.folder) + 1 :] for path in to_delete})
    swept = _delete_files(table, to_delete)
    killed = scratch_folders.remove_abandoned()
    report("clean the log", 0.8)
    _redact_log(table, search)
    failpoints.reached("erase.log_redacted")
    if copies is not None:
        copies.refresh(table)
    report("verify", 0.9)
    places = _proven_places(table, before, KeySearch(table, wanted, copies).everywhere(), swept)
    places += (Place("scratch folders", len(killed), len(killed), sum(map(Path.exists, killed))),)
    storage, table_id = table.warehouse.storage, table.log.table_id
    receipt = ErasureReceipt(
        table=str(table.name),
        keys=wanted.num_rows,
        key_hashes=tuple(key_hash(storage, table_id, key) for key in wanted.to_pylist()),
        actor=actor,
        reason=reason,
        erased_at=dt.datetime.now(dt.UTC),
        rows_erased=rows_erased,
        places=places,
        files_deleted=len(to_delete),
        versions_lost=lost,
        readers_cut_off=cut_off,
        seconds=round(time.perf_counter() - started, 3),
    )
    return receipt if then is None else then(receipt, wanted)


def _distinct_keys(table: OpenTable, base: Base, keys: Any, columns: Sequence[str]) -> pa.Table:
    wanted = row_input.keys_to_arrow(keys, base.user_schema, columns, table=str(table.name), verb="erase")
    wanted = wanted.group_by(list(columns)).aggregate([])
    if not wanted.num_rows:
        raise CallerError(f"cannot erase from {table.name}: no keys were given")
    return wanted


def _files_to_delete(table: OpenTable, search: KeySearch, clean: Base) -> list[str]:
    # Later writes stay, whatever their keys: an erase covers the sequences up to its own.
    staged = [path for path in search.staged_files() if is_folded(path, clean)]
    jobs = _jobs_that_may_commit(table, clean)
    to_delete = search.old_files(but_jobs=jobs) + search.unfinished_files(but_jobs=jobs) + staged
    live = {f"{table.folder}/{path}" for path in table.log.head().files}
    held = [path for path in to_delete if path in live]
    if held:
        raise VerificationFailed(
            f"cannot erase from {table.name}: the live file {held[0]} still has a key after the fold"
        )
    return to_delete


def _delete_files(table: OpenTable, to_delete: list[str]) -> dict[str, list[str]]:
    """Delete files, their copies, and what unfinished work has left; return the latter by kind of place."""
    # A killed writer may have left an unfinished file with a key in it; a live writer writes its file again.
    leftovers = temporary_files(table, table.log.own_folder, older_than_s=0)
    table.warehouse.storage.delete([*to_delete, *leftovers])
    table.warehouse.forget_copies(to_delete)
    failpoints.reached("erase.files_deleted")
    return {
        "query results": result_files.delete_results(table.warehouse.storage, str(table.name)),
        "unfinished deletions": result_files.empty_trash(table.warehouse.storage),
    }


def _proven_places(
    table: OpenTable, before: _Findings, after: _Findings, swept: Mapping[str, Sequence[str]]
) -> tuple[Place, ...]:
    """Return what was searched, found and left in each place. Raises VerificationFailed if a key is left in one."""
    places = tuple(
        Place(name, looked, len(before.get(name, (0, []))[1]), len(found)) for name, (looked, found) in after.items()
    )
    left = {name: found for name, (_, found) in after.items() if found}
    for name, paths in swept.items():
        still = [path for path in paths if table.warehouse.storage.exists(path)]
        places += (Place(name, len(paths), len(paths), len(still)),)
        left |= {name: still} if still else {}
    if left:
        name, found = next(iter(left.items()))
        raise VerificationFailed(
            f"an erased key of {table.name} is still readable in {name}: {found[0]}; erase it again"
        )
    return places


def _columns(table: OpenTable, base: Base, by: Sequence[str]) -> tuple[str, ...]:
    if base.key:
        if by and tuple(by) != base.key:
            raise CallerError(f"cannot erase from {table.name} by {', '.join(by)}: use its key, {', '.join(base.key)}")
        return base.key
    unknown = [name for name in by if name not in base.user_schema.names or name in base.partition_by]
    if unknown:
        raise CallerError(f"cannot erase from {table.name} by {unknown[0]}: it is not a column of its files")
    if not by:
        raise CallerError(f"cannot erase from {table.name}: it has no key; give the columns to erase by")
    return tuple(by)


def _jobs_that_may_commit(table: OpenTable, clean: Base) -> set[str]:
    """Return the running jobs that read `clean` or later: keys in their files were written after the erase.

    A job that read an earlier base cannot commit files that have a key: the fold removed the files they come from.
    """
    return running_jobs(table, since_version=clean.version)


def _wait_for_readers(table: OpenTable) -> int:
    """Wait for readers up to the limit, then go ahead; return how many readers are cut off."""
    deadline = time.monotonic() + table.warehouse.settings.lease_wait_s
    while True:
        leases = live_leases(table.warehouse.storage, f"{table.log.own_folder}/leases")
        readers = len([lease for lease in leases if lease.get("kind") == "reader"])
        if not readers or time.monotonic() > deadline:
            return readers
        time.sleep(_LEASE_POLL_S)


def _versions_naming(table: OpenTable, paths: set[str]) -> tuple[int, ...]:
    """Return the versions that have one of these files: they can no longer be read."""
    log = DeltaLog(table.warehouse.storage, table.folder)
    lost = []
    for version in range(table.log.head().version + 1):
        with suppress(NotFound):  # deleted long ago
            if not paths.isdisjoint(log.at(version).files):
                lost.append(version)
    return tuple(lost)


def _redact_log(table: OpenTable, search: KeySearch) -> None:
    """Remove the statistics of erased files from the log; entries stay, so every other version stays readable."""
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
