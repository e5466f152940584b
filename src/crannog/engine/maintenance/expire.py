"""Expire: drop rows before a date; whole files by partition or statistics, the rest by one verified rewrite."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from crannog.api.reports import Cancellation, ExpireReport, Progress
from crannog.delta.log import Base
from crannog.engine.columnar.tasks import NotBefore
from crannog.engine.duckdb.engine import quoted
from crannog.engine.maintenance.fold import fold
from crannog.engine.maintenance.job import Job, progress_range
from crannog.engine.maintenance.rewrite_without import counted_by_file, rewrite_without
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.errors import CallerError
from crannog.protocol.staged_files import CREATED_AT, DATE

Values = Mapping[str, Sequence[Any]]


def expire(
    table: OpenTable,
    before: dt.date,
    *,
    column: str | None = None,
    only: Values | None = None,
    besides: Values | None = None,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
) -> ExpireReport:
    """Drop the rows whose `column` (by default the date partition, else the write time) is before a UTC date.

    `only` limits this to rows with one of the given values in each column; `besides` spares such rows.
    """
    if isinstance(before, dt.datetime) or not isinstance(before, dt.date):
        raise CallerError(f"expire takes a date, like datetime.date(2026, 1, 31), got {before!r}")
    chosen = _column(table, column)
    _check_values(table, only or {}, besides or {})
    fold(table, progress=progress_range(progress, 0, 0.5), cancellation=cancellation)
    values = {name: list(listed) for name, listed in (("only", only), ("besides", besides)) if listed}
    dropped = rewrite_without(
        table,
        "EXPIRE",
        lambda _: _Before(chosen, before, only or {}, besides or {}),
        parameters={"column": chosen.name, "before": before.isoformat(), **values},
        progress=progress_range(progress, 0.5, 1),
        cancellation=cancellation,
    )
    base = dropped.snapshot.base
    removed = sum(file.size for file in (*dropped.whole, *dropped.rewritten))
    return ExpireReport(
        column=chosen.name,
        before=before,
        rows_dropped=dropped.rows,
        rows_kept=base.rows - dropped.rows,
        files_dropped=len(dropped.whole),
        files_rewritten=len(dropped.rewritten),
        files_before=len(base.files),
        files_after=len(base.files) - len(dropped.whole) - len(dropped.rewritten) + len(dropped.added),
        bytes_before=base.bytes,
        bytes_after=base.bytes - removed + sum(file.size for file in dropped.added),
        seconds=dropped.seconds,
        version=dropped.version,
    )


def may_contain_older(base: Base, before: dt.date) -> bool:
    """Tell from the log alone whether an expiry may find rows to drop; staged rows count once they are folded."""
    name = _chosen(base, None)
    if name in (CREATED_AT, DATE):
        return dt.datetime.fromtimestamp(base.created_ms / 1000, dt.UTC).date() < before
    days = [file.partition[name] for file in base.files.values()]
    return any(day is not None and day < before for day in days)


def _chosen(base: Base, requested: str | None) -> str:
    dates = [name for name in base.partition_by if pa.types.is_date(base.schema.field(name).type)]
    return requested or (dates[0] if dates else CREATED_AT)


def _column(table: OpenTable, requested: str | None) -> pa.Field:
    base = table.snapshot().base
    name = _chosen(base, requested)
    if name not in base.schema.names:
        raise CallerError(f"cannot expire {table.name} by {name}: it has no such column")
    field = base.schema.field(name)
    if not (pa.types.is_date(field.type) or pa.types.is_timestamp(field.type)):
        raise CallerError(f"cannot expire {table.name} by {name}: it is {field.type}, not a date or a time")
    return field


def _check_values(table: OpenTable, *chosen: Values) -> None:
    base = table.snapshot().base
    for name in (name for values in chosen for name in values):
        if name not in base.schema.names or name in base.partition_by:
            raise CallerError(f"cannot expire {table.name} by values of {name}: it is no column of its files")


@dataclass(frozen=True)
class _Before:
    """Selects the rows before a date: all of them, only those with some values, or all but those."""

    column: pa.Field
    before: dt.date
    only: Values
    besides: Values

    @property
    def _limit(self) -> dt.date | dt.datetime:
        if pa.types.is_date(self.column.type):
            return self.before
        return dt.datetime(self.before.year, self.before.month, self.before.day, tzinfo=dt.UTC)

    def counts(self, table: OpenTable, snapshot: Snapshot) -> dict[str, int]:
        base = snapshot.base
        files = list(base.files.values())
        if self.column.name in base.partition_by:
            days = [(file, file.partition[self.column.name]) for file in files]
            files = [file for file, day in days if day is not None and day < self.before]
            if not self.only and not self.besides:
                return {file.path: file.rows for file in files}
        tables = {"expiry": pa.table({"before": pa.array([self._limit], self.column.type)})}
        parts = []
        if self.column.name not in base.partition_by:
            parts.append(f"t.{quoted(self.column.name)} < (SELECT before FROM expiry)")
        for chosen, word in ((self.only, ""), (self.besides, "NOT ")):
            for name, values in chosen.items():
                listed = f"values_{len(tables)}"
                tables[listed] = pa.table({"value": pa.array(values, base.schema.field(name).type)})
                parts.append(f"{word}COALESCE(t.{quoted(name)} IN (SELECT value FROM {listed}), false)")
        columns = [self.column.name, *self.only, *self.besides]
        columns = [name for name in dict.fromkeys(columns) if name not in base.partition_by]
        return counted_by_file(table, snapshot, [file.path for file in files], columns, " AND ".join(parts), tables)

    def remaining(self, job: Job) -> NotBefore:
        return NotBefore(self.column.name, self._limit, self.only, self.besides)
