"""Jobs on tables: their progress, cancellation and reports, the same in the process and through a server."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from crannog.errors import Cancelled

_INTERRUPT_EVERY_S = 0.2


class Cancellation:
    """Cancels work; may be called from any thread, any number of times."""

    def __init__(self, message: str = "the job was cancelled before it committed; the table is unchanged") -> None:
        self._message = message
        self._lock = threading.Lock()
        self._cancelled = False
        self._interrupt: Callable[[], object] | None = None

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._interrupt is None:
                return
        # Repeatedly, since an interrupt only ends running jobs and the next one may be about to start.
        threading.Thread(target=self._keep_interrupting, name="crannog-cancel", daemon=True).start()

    def _keep_interrupting(self) -> None:
        while (interrupt := self._interrupt) is not None:
            with suppress(Exception):  # Spark may be gone
                interrupt()
            time.sleep(_INTERRUPT_EVERY_S)

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled

    def check(self) -> None:
        if self._cancelled:
            raise Cancelled(self._message)

    @contextmanager
    def interrupting(self, interrupt: Callable[[], object]) -> Iterator[None]:
        with self._lock:
            self._interrupt = interrupt
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._interrupt = None


Progress = Callable[[str, float], None]
"""Called with each step of a long job and its share of the whole, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a job did."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """The result of a write, which is durable and visible when it is returned."""

    sequence: int
    rows: int
    batch_id: str
    duplicate: bool


@dataclass(frozen=True, slots=True)
class FoldReport(Report):
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


@dataclass(frozen=True, slots=True)
class CompactReport(Report):
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


@dataclass(frozen=True, slots=True)
class VacuumReport(Report):
    """What a vacuum deleted, or would delete."""

    files_deleted: int
    bytes_deleted: int
    staged_files_deleted: int
    kept_for_readers: int
    retention_s: float
    raised_to_floor: bool
    dry_run: bool
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpireReport(Report):
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


@dataclass(frozen=True, slots=True)
class EvolveReport(Report):
    """How a table's schema changed."""

    added: tuple[str, ...]
    widened: tuple[str, ...]
    files_rewritten: int
    version: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Place:
    """A kind of place that was checked, and how many of its files contained a key, before and after."""

    place: str
    looked_at: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ErasureReceipt(Report):
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
    erasure_id: str = ""
    """Under which the receipt is kept, together with those of other tables with this id."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be loaded: its position (for Parquet, `line` is the row number) and what is wrong with it."""

    file: str
    line: int
    column: str
    value: str
    reason: str

    def __str__(self) -> str:
        where = f", column {self.column}" if self.column else ""
        shown = f": {self.value}" if self.value else ""
        return f"{self.file}, line {self.line:,}{where}{shown}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Drift:
    """How one column of the files differs from the table's."""

    column: str
    change: str  # "added", "removed", "widened" or "incompatible"
    in_table: str
    in_files: str
    done: str = ""  # what the load did about it


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """The result for one file; `duplicate` if all its rows were loaded before."""

    file: str
    format: str
    bytes: int
    rows: int = 0
    bad_rows: int = 0
    duplicate_rows: int = 0
    batches: int = 0
    duplicate: bool = False
    engine: str = "stream"


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did, or would do; `rows` were loaded now, `duplicate_rows` before."""

    table: str
    created: bool = False
    dry_run: bool = False
    files: tuple[LoadedFile, ...] = ()
    rows: int = 0
    bad_rows: int = 0
    duplicate_rows: int = 0
    duplicates: int = 0
    batches: int = 0
    bytes: int = 0
    seconds: float = 0.0
    rows_per_s: float = 0.0
    columns: tuple[dict[str, Any], ...] = ()
    key: tuple[str, ...] = ()
    drift: tuple[Drift, ...] = ()
    renamed: dict[str, str] = field(default_factory=dict)
    first_bad: tuple[BadRow, ...] = ()
    first_rows: tuple[dict[str, Any], ...] = ()
    reject: str = ""

    @property
    def duplicate(self) -> bool:
        """Whether every file was loaded before."""
        return bool(self.files) and all(file.duplicate for file in self.files)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "duplicate": self.duplicate}
