"""Purges keys from the base, so that only old files still have them: the first half of an erasure."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass

import pyarrow as pa

from crannog.api.arguments import new_batch_id
from crannog.api.reports import Cancellation, Progress
from crannog.delta.log import Base
from crannog.engine.columnar.tasks import WithoutKeys
from crannog.engine.duckdb.engine import quoted
from crannog.engine.maintenance.delete_audit import applied, key_hash, record
from crannog.engine.maintenance.fold import fold
from crannog.engine.maintenance.job import Job, progress_range
from crannog.engine.maintenance.key_search import KeySearch
from crannog.engine.maintenance.rewrite_without import counted_by_file, rewrite_without
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.errors import VerificationFailed
from crannog.protocol.file_names import parse_name

_FOLDS = 5


@dataclass(frozen=True, slots=True)
class DeletionRequest:
    """The actor and reason of an erasure."""

    actor: str
    reason: str


def purge_by_key(
    table: OpenTable,
    wanted: pa.Table,
    request: DeletionRequest,
    progress: Progress | None,
    cancellation: Cancellation | None,
) -> tuple[Base, int]:
    """Delete keys and fold; return the base without them, and how many of them had a row."""
    deleted = table.delete(wanted, actor=request.actor, reason=request.reason, batch_id=None)
    clean = _fold_past_every_pack(table, wanted, progress, cancellation)
    # The same staged file may have other callers' deletes.
    hashes = {key_hash(table.warehouse.storage, table.log.table_id, key) for key in wanted.to_pylist()}
    done = [entry for entry in applied(table) if entry["sequence"] == deleted.sequence and entry["key_hash"] in hashes]
    return clean, sum(entry["outcome"] == "hidden" for entry in done)


def purge_by_values(
    table: OpenTable,
    wanted: pa.Table,
    request: DeletionRequest,
    progress: Progress | None,
    cancellation: Cancellation | None,
) -> tuple[Base, int]:
    """Fold and drop the rows; return the base without them, and how many there were."""
    erased = 0
    for _ in range(_FOLDS):
        _fold_past_every_pack(table, wanted, progress_range(progress, 0, 0.5), cancellation)
        dropped = rewrite_without(
            table,
            "ERASE",
            lambda _: _AnyOf(wanted),
            parameters={"by": wanted.column_names},
            progress=progress_range(progress, 0.5, 1),
            cancellation=cancellation,
        )
        erased += dropped.rows
        clean = table.log.head()
        search = KeySearch(table, wanted)
        # Another process may have folded rows staged meanwhile.
        if search.are_gone_from(clean) and all(is_folded(path, clean) for path in search.staged_files()):
            _record_values(table, wanted, request, clean, erased)
            return clean, erased
    raise VerificationFailed(
        f"cannot erase from {table.name}: the rows are written again as fast as they are dropped; stop their writer and try again"
    )


def _record_values(table: OpenTable, wanted: pa.Table, request: DeletionRequest, clean: Base, erased: int) -> None:
    now = dt.datetime.now(dt.UTC)
    outcome = "hidden" if erased else "not there"
    record(
        table,
        new_batch_id(),
        [
            {
                "sequence": clean.folded,
                # After everything that a fold has recorded for this sequence.
                "order": time.time_ns() + place,
                "key": key,
                "actor": request.actor,
                "reason": request.reason,
                "deleted_at": now,
                "outcome": outcome,
            }
            for place, key in enumerate(wanted.to_pylist())
        ],
    )


@dataclass(frozen=True)
class _AnyOf:
    """Selects the rows that have one of some values."""

    wanted: pa.Table

    def counts(self, table: OpenTable, snapshot: Snapshot) -> dict[str, int]:
        match = " AND ".join(f"k.{quoted(name)} = t.{quoted(name)}" for name in self.wanted.column_names)
        condition = f"EXISTS (SELECT 1 FROM wanted_keys k WHERE {match})"
        files = list(snapshot.base.files)
        return counted_by_file(
            table, snapshot, files, self.wanted.column_names, condition, {"wanted_keys": self.wanted}
        )

    def remaining(self, job: Job) -> WithoutKeys:
        return WithoutKeys(job.write_input(self.wanted))


def _fold_past_every_pack(
    table: OpenTable, wanted: pa.Table, progress: Progress | None, cancellation: Cancellation | None
) -> Base:
    """Fold until no staged file with a key reaches beyond the folded sequence: only then may it be deleted as a whole.

    Returns the base without the keys.
    """
    for _ in range(_FOLDS):
        fold(table, progress=progress, cancellation=cancellation)
        base = table.log.head()
        # Before the search: until then, a writer or packer that read the keys before the fold may put them again.
        ended = table.log.end_unfinished_puts()
        if ended and all(is_folded(path, base) for path in KeySearch(table, wanted).staged_files()):
            return base
    raise VerificationFailed(
        f"cannot erase from {table.name}: the keys are written again as fast as they are folded; stop their writer and try again"
    )


def is_folded(path: str, base: Base) -> bool:
    name = parse_name(path.rpartition("/")[2])
    return name is None or name.last <= base.folded
