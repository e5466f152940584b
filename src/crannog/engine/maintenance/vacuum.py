"""Vacuum: deletes what no version, no reader and no running job needs any more (PROTOCOL 14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crannog.api.reports import VacuumReport
from crannog.delta.log import Base
from crannog.engine import result_files
from crannog.engine.maintenance.unreferenced_files import LogEntry, log_entries, removals
from crannog.engine.open_table import OpenTable
from crannog.errors import CallerError
from crannog.protocol.file_names import parse_name
from crannog.protocol.leases import DEAD_AFTER_S, is_live, live_leases
from crannog.storage import failpoints


def vacuum(
    table: OpenTable, *, retention_s: float | None = None, force: bool = False, dry_run: bool = False
) -> VacuumReport:
    """Delete files that were removed from the base longer ago than the retention.

    A retention below the floor is raised to it, and the report says so; only `force` goes below. Files that the lease
    of a live reader needs always stay.
    """
    settings = table.warehouse.settings
    requested = settings.retention_s if retention_s is None else retention_s
    if requested < 0:
        raise CallerError(f"the retention must be 0 seconds or more, got {requested}")
    used = requested if force else max(requested, settings.retention_floor_s)
    storage = table.warehouse.storage
    now = storage.now()
    base = table.log.head()
    leases = list(live_leases(storage, f"{table.log.own_folder}/leases"))
    oldest_read = min((lease["version"] for lease in leases if lease.get("kind") == "reader"), default=None)
    jobs = {lease["job"] for lease in leases if lease.get("kind") == "job"}
    doomed, size, kept = _unneeded_files(table, base, jobs, oldest_read, now, used)
    leftovers = [
        path
        for folder in (f"{table.folder}/_delta_log", table.log.own_folder)
        for path in temporary_files(table, folder, older_than_s=settings.orphan_grace_s)
    ]
    staged = _staged_to_clean(table, now, 0 if force and used == 0 else settings.fold_grace_s, leases)
    expired = table.log.ledger.expired() if not dry_run else []
    if not dry_run:
        doomed = _delete_data_files(table, doomed, jobs)
        storage.delete([*staged, *leftovers, *_of_dead_jobs(table, jobs, older_than_s=settings.orphan_grace_s)])
        # List the folders, then the leases: a job has its lease before its folder.
        folders = set(storage.folders(f"{table.log.own_folder}/jobs"))
        for job in folders - {lease.get("job") for lease in live_leases(storage, f"{table.log.own_folder}/leases")}:
            storage.remove_empty_folders(f"{table.log.own_folder}/jobs/{job}")
        failpoints.reached("clean.staged_files_deleted")
        result_files.remove_abandoned(storage)
        storage.delete(
            path
            for path in expired
            if now * 1000 - int(path.rpartition("/")[2].partition("-")[0]) > settings.dedup_window_s * 1000
        )
    return VacuumReport(
        files_deleted=len(doomed),
        bytes_deleted=size,
        staged_files_deleted=len(staged),
        kept_for_readers=kept,
        retention_s=used,
        raised_to_floor=used != requested,
        dry_run=dry_run,
        files=tuple(path[len(table.folder) + 1 :] for path in doomed),
    )


def _unneeded_files(
    table: OpenTable, base: Base, jobs: set[str], oldest_read: int | None, now: float, retention_s: float
) -> tuple[list[str], int, int]:
    """Return the data files to delete, their bytes, and how many more stay for readers."""
    gone = removals(table)
    doomed, size, kept = [], 0, 0
    for file in table.warehouse.storage.walk(f"{table.folder}/data"):
        path = file.path[len(table.folder) + 1 :]
        if path in base.files or path.split("/")[1] in jobs:
            continue
        removal = gone.get(path)
        if removal is None:
            # From a job that never committed, or removed so long ago that the log no longer has the removal.
            due = now - file.modified > table.warehouse.settings.orphan_grace_s
        else:
            due = now - removal.at_ms / 1000 >= retention_s
            if due and oldest_read is not None and removal.version > oldest_read:
                kept += 1
                continue
        if due:
            doomed.append(file.path)
            size += file.size
    return doomed, size, kept


def _delete_data_files(table: OpenTable, paths: list[str], jobs: set[str]) -> list[str]:
    """Delete data files and the folders they leave empty; return those deleted."""
    storage = table.warehouse.storage
    # Read the head again: a job that committed since the listing has made its files live.
    live = {f"{table.folder}/{path}" for path in table.log.head().files}
    doomed = [path for path in paths if path not in live]
    storage.delete(doomed)
    for job in {path.split("/")[4] for path in doomed} - jobs:
        storage.remove_empty_folders(f"{table.folder}/data/{job}")
    failpoints.reached("vacuum.files_deleted")
    return doomed


def _of_dead_jobs(table: OpenTable, living: set[str], *, older_than_s: float) -> list[str]:
    """Return the inputs of jobs that ended without cleaning up, and abandoned leases."""
    storage = table.warehouse.storage
    now = storage.now()
    inputs = [file for file in storage.walk(f"{table.log.own_folder}/jobs") if file.path.split("/")[-2] not in living]
    silent = [
        file for file in storage.walk(f"{table.log.own_folder}/leases") if not is_live(file.modified, now, DEAD_AFTER_S)
    ]
    return [file.path for file in (*inputs, *silent) if now - file.modified >= older_than_s]


def temporary_files(table: OpenTable, folder: str, *, older_than_s: float) -> list[str]:
    """Return the temporary files of killed processes, and those being written now."""
    storage = table.warehouse.storage
    now = storage.now()
    return [
        file.path for file in storage.walk(folder) if file.path.endswith(".tmp") and now - file.modified >= older_than_s
    ]


def _staged_to_clean(table: OpenTable, now: float, grace_s: float, leases: Sequence[dict[str, Any]]) -> list[str]:
    names = table.log.staged_names()
    head = table.log.head().folded
    until = folded_before(log_entries(table), head, cutoff_ms=(now - grace_s) * 1000)
    read_from = min((lease["sequence"] for lease in leases if lease.get("kind") == "reader"), default=None)
    if read_from is not None:
        until = min(until, read_from)
    packs = [parsed for name in names if (parsed := parse_name(name)) and parsed.is_pack]
    doomed = []
    for name in names:
        parsed = parse_name(name)
        assert parsed is not None
        under_a_pack = any(pack.first <= parsed.first and parsed.last <= pack.last and pack != parsed for pack in packs)
        if parsed.last <= until or under_a_pack:
            doomed.append(f"{table.log.stage_folder}/{name}")
    return doomed


def folded_before(entries: Sequence[LogEntry], head: int, *, cutoff_ms: float) -> int:
    """Return the sequence that was folded at `cutoff_ms`: staged files up to it are past the grace period."""
    until, newer = None, False
    for entry in entries:
        if entry.folded is not None:
            if entry.at_ms <= cutoff_ms:
                until = entry.folded
            else:
                newer = True
    if until is None:
        # No old fold in the log: either all folds are too recent, or their entries were deleted long ago.
        return 0 if newer else head
    return until
