"""What the readers of files and the load share: the columns wanted, what a first look found, rows ready to keep, progress."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crannog.api.reports import BadRow, Cancellation, Progress
from crannog.engine.rows.values import BadValue, Node, exact_value, node_of, shortened
from crannog.errors import CallerError
from crannog.formats.input_files import Source

FEW = 10
_UNFIT = re.compile(r'[ ,;{}()=.`"\x00-\x1f\x7f]+')
Seen = Callable[[int, int], None]
"""Called with the bytes read so far and the number of rows read since the last call."""
_EVERY_S = 0.1
_MANY = 10 * 1024**2


@dataclass(frozen=True)
class Target:
    """The columns that rows are made for. While a file is only looked at, some may not be known yet."""

    known: pa.Schema = field(default_factory=lambda: pa.schema([]))
    required: frozenset[str] = frozenset()  # not null, known or not
    filled: frozenset[str] = frozenset()  # partitions, whose text may not be empty
    complete: bool = True  # what is not known is not wanted, unless the files may add it

    def __post_init__(self) -> None:
        fields = [f.with_nullable(f.nullable and f.name not in self.required) for f in self.known]
        object.__setattr__(self, "known", pa.schema(fields))

    def nodes(self) -> dict[str, Node]:
        return {field.name: node_of(field.name, field) for field in self.known}

    def fault(self, value: Any, name: str) -> str:
        """Say why a value cannot stand in a column for what the table is, whatever its type; empty if it can."""
        if value is None and name in self.required:
            return "the value is null or missing, and the column is not null"
        if value == "" and name in self.filled:
            return "a partition cannot be empty text, which Delta takes for null"
        return ""

    def exact(self, value: Any, node: Node) -> tuple[Any, str]:
        """Return a value made exact for its column, or why it cannot be."""
        fault = self.fault(value, node.name)
        if fault:
            return None, fault
        try:
            return exact_value(value, node), ""
        except BadValue as bad:
            return None, bad.reason if bad.path == node.path else f"{bad.path}: {bad.reason}"

    def with_all_columns(self, rows: pa.Table) -> pa.Table:
        """Return rows with exactly these columns; those that the file does not have are null."""
        have = set(rows.column_names)
        arrays = [rows.column(f.name) if f.name in have else pa.nulls(rows.num_rows, f.type) for f in self.known]
        return pa.Table.from_arrays(arrays, schema=self.known)


@dataclass(slots=True)
class Fault:
    """A row of a block that cannot be kept: its place in the block, and why."""

    place: int
    column: str
    value: Any
    reason: str


FitColumn = Callable[[pa.ChunkedArray, Node, Target, list[Fault]], pa.Array | pa.ChunkedArray]
"""Returns a column as values of a table's type, with null where a value does not fit, and adds those to the faults."""


@dataclass(slots=True)
class Block:
    """Rows ready to keep, and those of the same part of the file that cannot be, with what they say."""

    rows: pa.Table
    bad: list[tuple[BadRow, Any]]


@dataclass(slots=True)
class Survey:
    """What a look through a whole file found; `sure` if nothing else can be found wrong when it is loaded."""

    digest: str = ""
    stamp: tuple[int, int] = (0, 0)  # of the file, when the look began
    rows: int = 0
    columns: dict[str, pa.DataType | None] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    bad: int = 0
    first_bad: list[BadRow] = field(default_factory=list)
    bad_in: dict[str, int] = field(default_factory=dict)
    good_in: dict[str, int] = field(default_factory=dict)
    sure: bool = True

    def add_good(self, rows: pa.Table) -> None:
        """Count the values of each column that fit."""
        for name in rows.column_names:
            self.good_in[name] = self.good_in.get(name, 0) + rows.num_rows - rows.column(name).null_count

    def add_bad(self, found: list[BadRow]) -> None:
        self.bad += len(found)
        self.first_bad += found[: FEW - len(self.first_bad)]
        for row in found:
            self.bad_in[row.column] = self.bad_in.get(row.column, 0) + 1


class Reader(ABC):
    """One file, in one form."""

    def __init__(self, source: Source) -> None:
        self.source = source
        # The name of each column in the file, and in a table.
        self._names: dict[str, str] = {}

    def _name_columns(self, names: list[str]) -> None:
        """Give each column its name in a table: characters that none may have become _, a leading _ goes."""
        self._names = {}
        taken: dict[str, str] = {}
        for number, name in enumerate(names, 1):
            fit = _UNFIT.sub("_", name.strip()).lstrip("_")
            if fit != name or not fit:
                fit = fit.rstrip("_") or f"column_{number}"
            if fit in taken:
                raise CallerError(
                    f"{self.source.name}: columns {taken[fit]!r} and {name!r} would both be {fit} in a table; rename one"
                )
            self._names[name], taken[fit] = fit, name

    def _bad_row(self, line: int, column: str, value: Any, reason: str) -> BadRow:
        text = value if isinstance(value, str) else "" if value is None else repr(value)
        return BadRow(self.source.name, line, column, shortened(text), reason)

    @property
    def _renamed(self) -> dict[str, str]:
        return {old: new for old, new in self._names.items() if old != new}

    @abstractmethod
    def survey(self, target: Target, seen: Seen) -> Survey:
        """Read the whole file: its hash, its rows, the types of columns that `target` does not know, and what does not fit it."""

    @abstractmethod
    def blocks(self, target: Target, seen: Seen) -> Iterator[Block]:
        """Yield rows with exactly the columns of `target`; other columns of the file are left out."""


def fit_columns(rows: pa.Table, target: Target, nodes: dict[str, Node], fit: FitColumn) -> tuple[pa.Table, list[Fault]]:
    """Return the known columns as values, and the first fault of each row that cannot be kept, in the order of rows."""
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    faults: list[Fault] = []
    for name in rows.column_names:
        column = rows.column(name)
        if name in nodes:
            column = columns[name] = fit(column, nodes[name], target, faults)
        if name in target.required and column.null_count:
            faults += [Fault(place, name, None, target.fault(None, name)) for place in _places(column.is_null())]
        if name in target.filled and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            faults += [Fault(place, name, "", target.fault("", name)) for place in _places(pc.equal(column, ""))]
    first: dict[int, Fault] = {}
    for fault in faults:
        first.setdefault(fault.place, fault)
    return pa.table(columns) if columns else rows.select([]), [first[place] for place in sorted(first)]


def _places(mask: pa.Array | pa.ChunkedArray) -> list[int]:
    return list(pc.indices_nonzero(mask).to_pylist())


def without(rows: pa.Table, faults: list[Fault]) -> pa.Table:
    """Return the rows that have no fault."""
    if not faults:
        return rows
    bad = pa.array([fault.place for fault in faults], pa.int64())
    return rows.filter(pc.invert(pc.is_in(pa.array(range(rows.num_rows), pa.int64()), bad)))


def whole_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


class Meter:
    """Tells progress as the share of bytes, each file being read twice: looked through, then loaded."""

    def __init__(self, progress: Progress | None, cancellation: Cancellation | None, total: int) -> None:
        self._progress = progress
        self._cancellation = cancellation or Cancellation()
        self._total = max(1, total)
        self._reported_at = 0.0
        self._done = 0
        self._rows = 0
        self._step = ""
        self._since = time.perf_counter()

    def begin(self, step: str) -> None:
        """Start reading all files, from the first."""
        self._step, self._done, self._rows, self._since = step, 0, 0, time.perf_counter()

    def finished(self, size: int) -> None:
        """One file is read."""
        self._done += size

    def check(self) -> None:
        """Raise Cancelled if the load was taken back."""
        self._cancellation.check()

    def seen(self, consumed: int, rows: int) -> None:
        """Tell how far the present file is; raises Cancelled if the load was taken back."""
        self.check()
        self._rows += rows
        now = time.perf_counter()
        if self._progress is None or now - self._reported_at < _EVERY_S:
            return
        self._reported_at = now
        done = min(self._total, self._done + consumed)
        speed = self._rows / max(now - self._since, 1e-6)
        half = 0.5 if self._step == "load" else 0.0
        mib, digits = 1024**2, 1 if self._total < _MANY else 0
        self._progress(
            f"{self._step} {done / mib:,.{digits}f} of {self._total / mib:,.{digits}f} MiB, {speed:,.0f} rows/s",
            round(half + 0.5 * done / self._total, 3),
        )
