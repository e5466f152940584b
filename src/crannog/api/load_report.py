"""The options and the report of loading files."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


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
