"""Reads Parquet footers: the schema, rows and nulls of a file, and the statistics for the Delta log.

Statistics are written as Delta's own writer does: text truncated to 32 characters, timestamps to the millisecond.
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
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crannog.storage.interface import Storage

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
    minimum: dict[str, Any]
    maximum: dict[str, Any]
    nulls: dict[str, int]

    def delta_statistics(self, columns: Sequence[str]) -> str:
        """Return the `stats` of the file's add action for the columns used for pruning."""
        low = {name: _cut_low(self.minimum[name]) for name in columns if name in self.minimum}
        high = {name: _cut_high(self.maximum[name]) for name in columns if name in self.maximum}
        text = json.dumps(
            {
                "numRecords": self.rows,
                "minValues": low,
                "maxValues": high,
                # Some readers take a null count without bounds to mean that all values are null.
                "nullCount": {
                    name: self.nulls[name] for name in columns if name in low or self.nulls.get(name) == self.rows
                },
            },
            separators=(",", ":"),
            ensure_ascii=False,
        )
        # Decimals are JSON numbers in the log; a float would round them.
        return _NUMBER.sub(r"\1", text)


def read_footer(storage: Storage, path: str, statistics_columns: Sequence[str] = ()) -> Footer:
    """Read the footer of one file. Raises pa.ArrowException or OSError if it has none.

    Footer bounds leave out NaN, which Spark sorts after every number, and are missing for very long text. Such columns
    among `statistics_columns` are scanned: some readers take a column without bounds to have only nulls.
    """
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
            _collect_statistics(meta, index, name, minimum, maximum, nulls)
        for name in set(statistics_columns).intersection(parquet.schema_arrow.names):
            if isinstance(minimum.get(name), float) or (name not in minimum and nulls.get(name) != meta.num_rows):
                low, high, nulls[name] = _bounds_by_scan(parquet, name)
                if low is not None:
                    minimum[name], maximum[name] = low, high
        return Footer(path, size, meta.num_rows, parquet.schema_arrow, minimum, maximum, nulls)


def _bounds_by_scan(parquet: pq.ParquetFile, name: str) -> tuple[Any, Any, int]:
    lows, highs, nan, empty = [], [], False, 0
    for batch in parquet.iter_batches(batch_size=1_000_000, columns=[name]):
        column = batch.column(0)
        empty += column.null_count
        if pa.types.is_floating(column.type):
            is_nan = pc.is_nan(column)
            nan = nan or bool(pc.any(is_nan).as_py())
            column = column.filter(pc.invert(is_nan))
        found = pc.min_max(column)
        lows.append(found["min"].as_py())
        highs.append(found["max"].as_py())
    lows, highs = [low for low in lows if low is not None], [high for high in highs if high is not None]
    low, high = min(lows, default=None), max(highs, default=None)
    if nan:
        return (math.nan if low is None else low), math.nan, empty
    return low, high, empty


def _collect_statistics(
    meta: pq.FileMetaData,
    index: int,
    name: str,
    minimum: dict[str, Any],
    maximum: dict[str, Any],
    nulls: dict[str, int],
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
        # Parquet leaves out bounds that would be too long.
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
        minimum[name], maximum[name] = min(lows), max(highs)


def _cut_low(value: Any) -> Any:
    return _prefix(value) if isinstance(value, str) else _as_json(value)


def _cut_high(value: Any) -> Any:
    if not isinstance(value, str):
        return _as_json(value)
    cut = _prefix(value)
    # Longer than the prefix: end with a character that sorts after the first one cut off.
    for letter in value[len(cut) :]:
        if letter < _ASCII_LAST:
            return cut + _ASCII_LAST
        if letter < _UNICODE_LAST:
            return cut + _UNICODE_LAST
        cut += letter
    return cut


def _prefix(value: str) -> str:
    """Truncate to 32 UTF-16 code units; a character beyond the basic plane takes two."""
    if len(value) <= _PREFIX // 2:
        return value
    taken = 0
    for place, letter in enumerate(value, start=1):
        taken += 2 if letter > "\uffff" else 1
        if taken >= _PREFIX:
            return value[:place]  # a surrogate pair at the end stays whole
    return value


def _as_json(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return f"\0{value:f}\0"
    return value
