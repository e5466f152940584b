"""Reports of the operations on tables, the same in the process and through a server."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

Progress = Callable[[str, float], None]
"""Called with each step of a long job and its share of the whole, 0 to 1."""


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """The result of a write, which is durable and visible when it is returned."""

    sequence: int
    rows: int
    batch_id: str
    duplicate: bool


@dataclass(frozen=True, slots=True)
class FoldReport:
    """What a fold did; all zero if nothing was staged."""

    folded_to: int = 0
    version: int | None = None
    changes: int = 0
    staged_rows: int = 0
    base_rows: int = 0
    final_rows: int = 0
    tombstones_applied: int = 0
    rows_dropped_by_tombstones: int = 0
    files_before: int = 0
    files_after: int = 0
    files_rewritten: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    bytes_written: int = 0
    write_amplification: float = 0.0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What a compaction did; rows are exact."""

    base_rows: int
    delta_rows: int
    final_rows: int
    deltas_merged: int
    tombstones_applied: int
    rows_dropped_by_tombstones: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    seconds: float
    version: int | None = None
    skipped: str = ""
    plan: tuple[str, ...] = ()
    duplicates_dropped: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What a vacuum deleted, or would delete."""

    files_deleted: int
    bytes_deleted: int
    staged_files_deleted: int
    kept_for_readers: int
    retention_s: float
    raised_to_floor: bool
    dry_run: bool
    files: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ExpireReport:
    """What an expiry dropped."""

    column: str
    before: dt.date
    rows_dropped: int
    rows_kept: int
    files_dropped: int
    files_rewritten: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    seconds: float
    version: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class EvolveReport:
    """How a table's schema changed."""

    added: tuple[str, ...]
    widened: tuple[str, ...]
    files_rewritten: int
    version: int | None
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Place:
    """A kind of place that was checked, and how many of its files contained a key, before and after."""

    place: str
    looked_at: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """The receipt of an erasure: what was found where, before and after, and which versions were removed."""

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
