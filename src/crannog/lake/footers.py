"""What a Parquet footer tells of a written file: its schema, rows, nulls, and the statistics for the Delta log.

Statistics are written as Delta's own writer does: text cut to 32 characters, instants to the millisecond.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crannog.lake.storage import Storage

_PREFIX = 32
_ASCII_LAST, _UNICODE_LAST = "\u007f", "\U0010ffff"
_NUMBER = re.compile(r'"\\u0000([^"]*?)\\u0000"')


@dataclass(frozen=True, slots=True)
class Footer:
    """One file as its own footer describes it."""

    path: str
    size: int
    rows: int
    schema: pa.Schema
    row_groups: int
    minimum: dict[str, Any]
    maximum: dict[str, Any]
    nulls: dict[str, int]

    def delta_statistics(self, columns: Sequence[str]) -> str:
        """Return the `stats` of the file's add action for the columns that prune."""
        low = {name: _cut_low(self.minimum[name]) for name in columns if name in self.minimum}
        high = {name: _cut_high(self.maximum[name]) for name in columns if name in self.maximum}
        text = json.dumps(
            {
                "numRecords": self.rows,
                "minValues": low,
                "maxValues": high,
                "nullCount": {name: self.nulls[name] for name in columns if name in self.nulls},
            },
            separators=(",", ":"),
        )
        # Decimals are JSON numbers in the log, and a float would round them.
        return _NUMBER.sub(r"\1", text)


def read_footer(storage: Storage, path: str) -> Footer:
    """Read the footer of one file; pa.ArrowException or OSError if it has none."""
    with storage.open(path) as file:
        size = file.seek(0, 2)
        parquet = pq.ParquetFile(pa.PythonFile(file, mode="r"))
        meta = parquet.metadata
        minimum: dict[str, Any] = {}
        maximum: dict[str, Any] = {}
        nulls: dict[str, int] = {}
        for index in range(meta.num_columns):
            name = meta.schema.column(index).path
            if "." in name:
                continue
            _gather(meta, index, name, minimum, maximum, nulls)
        return Footer(path, size, meta.num_rows, parquet.schema_arrow, meta.num_row_groups, minimum, maximum, nulls)


def _gather(
    meta: pq.FileMetaData, index: int, name: str, minimum: dict[str, Any], maximum: dict[str, Any], nulls: dict[str, int]
) -> None:
    lows: list[Any] = []
    highs: list[Any] = []
    empty = 0
    for group in range(meta.num_row_groups):
        chunk = meta.row_group(group).column(index)
        stats = chunk.statistics
        if stats is None or not stats.has_null_count:
            return
        empty += stats.null_count
        if stats.null_count == chunk.num_values:
            continue
        # Parquet leaves the bounds out where they would mislead (NaN) or be too long: then the file has none either.
        if not stats.has_min_max:
            lows, highs = [None], [None]
            continue
        try:
            lows.append(stats.min)
            highs.append(stats.max)
        except (ValueError, OverflowError):  # a year beyond 9999
            lows.append(None)
            highs.append(None)
    nulls[name] = empty
    if lows and None not in lows and None not in highs:
        low, high = min(lows), max(highs)
        if not (isinstance(low, float) and not (math.isfinite(low) and math.isfinite(high))):
            minimum[name], maximum[name] = low, high


def _cut_low(value: Any) -> Any:
    return value[:_PREFIX] if isinstance(value, str) else _as_json(value)


def _cut_high(value: Any) -> Any:
    if not isinstance(value, str):
        return _as_json(value)
    if len(value) <= _PREFIX:
        return value
    # Longer than the prefix: end it with a character that sorts after the one cut off.
    return value[:_PREFIX] + (_ASCII_LAST if value[_PREFIX] < _ASCII_LAST else _UNICODE_LAST)


def _as_json(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"\0{value:f}\0"
    return value
