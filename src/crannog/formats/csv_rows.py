"""Reads CSV, which starts with a line of column names: whole bodies for a schema, and files of any size as text columns.

Of a file it also finds the ragged rows and the line numbers of records.
"""

from __future__ import annotations

import csv as plain_csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import csv

from crannog.errors import CallerError
from crannog.formats.input_files import BOM, Bytes, Source
from crannog.formats.json_rows import (
    LARGEST_ARROW_BLOCK,
    STRADDLES,
    InexactValue,
    Number,
    check_numbers,
    exact_value,
    is_calendar,
    is_scalar,
)
from crannog.names import first_repeated

_INTEGER = re.compile(r"[+-]?[0-9]+")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
BLOCK_BYTES = 1024**2  # Arrow reads some thirty blocks ahead
_LARGEST_BLOCK = 1 << 30
_HEADER_RECORD = 1
_MOST_COLUMNS = 20_000


def parse_csv_rows(data: bytes, schema: pa.Schema, source_name: str) -> pa.Table | list[Any]:
    if not data.strip():
        raise CallerError(f"{source_name} is empty: a CSV file starts with a line of column names")
    types = {field.name: field.type for field in schema}
    try:
        if not all(
            pa.types.is_decimal(kind) or pa.types.is_string(kind) or is_scalar(kind) or is_calendar(kind)
            for kind in types.values()
        ):
            raise InexactValue
        table = _csv_by_arrow(data, types)
        for column in table.columns:
            check_numbers(column)
        return table
    except (InexactValue, pa.ArrowException):
        pass
    try:
        table = _csv_by_arrow(data, dict.fromkeys(_header(data), pa.string()))
    except pa.ArrowException as error:
        raise CallerError(f"{source_name} is not valid CSV: {' '.join(str(error).split())[:200]}") from None
    if len(set(table.column_names)) < len(table.column_names) or not set(types).issuperset(table.column_names):
        return table  # the engine reports the wrong column
    columns = [
        [cell_value(text, types[name]) for text in table.column(name).to_pylist()] for name in table.column_names
    ]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _csv_by_arrow(data: bytes, types: dict[str, pa.DataType]) -> pa.Table:
    return csv.read_csv(
        io.BytesIO(data),
        # One block: a row may be of any length.
        read_options=csv.ReadOptions(block_size=min(len(data) + 1, LARGEST_ARROW_BLOCK)),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=_conversion(types),
    )


def _conversion(types: dict[str, pa.DataType]) -> csv.ConvertOptions:
    # Nothing between two commas is null, "" is an empty string, and NA is a country.
    return csv.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )


def _header(data: bytes) -> list[str]:
    return list(csv.open_csv(io.BytesIO(data), parse_options=csv.ParseOptions(newlines_in_values=True)).schema.names)


def cell_value(text: str | None, kind: pa.DataType) -> Any:
    """Parse a cell; text that is not of the type is returned unchanged, for the engine to refuse."""
    if text is None or pa.types.is_string(kind):
        return text
    try:
        if pa.types.is_boolean(kind):
            return _BOOLEANS.get(text.strip().lower(), text)
        if pa.types.is_integer(kind):
            return int(text) if _INTEGER.fullmatch(text.strip()) else text
        if pa.types.is_floating(kind):
            return text if "_" in text else float(text)
        if pa.types.is_decimal(kind) or is_calendar(kind):
            return text.strip()
        if pa.types.is_binary(kind):
            return exact_value(text, kind)
        return exact_value(json.loads(text, parse_float=Number), kind)
    except (ValueError, RecursionError):
        return text


@dataclass(frozen=True, slots=True)
class RaggedRecord:
    """A row with another number of values than the header."""

    record: int
    text: str
    wanted: int
    found: int


@dataclass(slots=True)
class CsvBlock:
    """Some rows, all columns as text; `numbers` gives the record number of each."""

    rows: pa.Table
    ragged: list[RaggedRecord]
    numbers: RecordNumbers


@dataclass(slots=True)
class RecordNumbers:
    """The record numbers (the header is 1) of rows counted without the ragged ones; queried in ascending order."""

    ragged: list[int] = field(default_factory=list)
    _passed: int = 0

    def of(self, place: int) -> int:
        """Return the record number of the row at `place` (from 0) among the rows that are not ragged."""
        while (
            self._passed < len(self.ragged) and self.ragged[self._passed] <= place + _HEADER_RECORD + 1 + self._passed
        ):
            self._passed += 1
        return place + _HEADER_RECORD + 1 + self._passed


class CsvFile:
    """One CSV file. The first line names the columns."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.block_bytes = BLOCK_BYTES
        self.digest = ""  # of the whole file, once it was read to the end
        self._blank_lines = self._count_blank_lines()
        self.names = self._header()

    def _count_blank_lines(self) -> int:
        """Return how many lines before the header are empty."""
        with self.source.open(text=True) as data:
            head = data.read(BLOCK_BYTES).removeprefix(BOM)
        return len(head[: len(head) - len(head.lstrip(b"\r\n"))].splitlines())

    def _header(self) -> list[str]:
        while True:
            with self.source.open(text=True) as data:
                try:
                    reader = self._reader(data, {}, True, None)
                    names = list(reader.schema.names)
                    reader.close()
                    break
                except (pa.ArrowException, UnicodeDecodeError) as error:
                    data.check()
                    if not self._grow(error):
                        raise self._error(error, data) from None
        if len(names) > _MOST_COLUMNS:
            raise CallerError(
                f"{self.source.name} names {len(names):,} columns in its first line; {_MOST_COLUMNS:,} is the most"
            )
        twice = first_repeated(names)
        if twice is not None:
            raise CallerError(
                f"{self.source.name} has column {twice or '(without a name)'} twice; rename one in its first line"
            )
        return names

    def _grow(self, error: Exception) -> bool:
        """Use larger blocks if a row did not fit into one; return False if that was not the reason."""
        if STRADDLES not in str(error) or self.block_bytes >= _LARGEST_BLOCK:
            return False
        self.block_bytes *= 4
        return True

    def _error(self, error: Exception, data: Bytes) -> CallerError:
        if not data.count:
            return CallerError(f"{self.source.name} is empty: a CSV file starts with a line of column names")
        if "cannot infer number of columns" in str(error):
            return CallerError(f"{self.source.name} has no line of column names that ends: a CSV file starts with one")
        return CallerError(f"{self.source.name} is not valid CSV: {' '.join(str(error).split())[:200]}")

    def blocks_growing(self) -> Iterator[tuple[CsvBlock | None, Bytes]]:
        """Yield the blocks; after (None, …) everything starts again with larger ones."""
        while True:
            with self.source.open(text=True) as data:
                try:
                    for block in self.blocks(data):
                        yield block, data
                    self.digest = data.digest()
                    return
                except pa.ArrowException as error:
                    data.check()
                    if not self._grow(error):
                        raise self._error(error, data) from None
                    yield None, data

    def blocks(self, data: Bytes) -> Iterator[CsvBlock]:
        """Yield the blocks. Raises ArrowInvalid if the data is not CSV."""
        found: list[RaggedRecord] = []
        numbers = RecordNumbers()

        def skip(row: Any) -> str:
            found.append(RaggedRecord(row.number, row.text, row.expected_columns, row.actual_columns))
            numbers.ragged.append(row.number)
            return "skip"

        # In a file with one column an empty line is a row; with more columns it is skipped.
        types = dict.fromkeys(self.names, pa.string())
        for batch in self._reader(data, types, len(self.names) > 1, skip):
            ragged, found[:] = list(found), []
            yield CsvBlock(pa.Table.from_batches([batch]), ragged, numbers)
        if found:
            empty = pa.schema([pa.field(name, pa.string()) for name in self.names]).empty_table()
            yield CsvBlock(empty, found, numbers)

    def _reader(self, data: Bytes, types: dict[str, pa.DataType], skip_empty: bool, handler: Any) -> Any:
        return csv.open_csv(
            pa.PythonFile(data, mode="r"),
            # Without threads Arrow reports the number of a row that it skips.
            read_options=csv.ReadOptions(
                block_size=self.block_bytes, use_threads=False, skip_rows=0 if skip_empty else self._blank_lines
            ),
            parse_options=csv.ParseOptions(
                delimiter=self.source.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=skip_empty,
                invalid_row_handler=handler or (lambda _row: "skip"),
            ),
            convert_options=_conversion(types),
        )


class LineNumbers:
    """Finds the lines on which records start: they differ where a value has line breaks or lines are empty.

    Reads the file again, record by record, only as far as needed.
    """

    def __init__(self, file: CsvFile) -> None:
        self._file = file
        self._record = self._line = 0
        self._places: Iterator[int] | None = None

    def of(self, record: int) -> int:
        """Return the line of a record; call it in ascending order."""
        if self._places is None:
            self._places = self._walk()
        while self._record < record:
            self._line = next(self._places, self._line)
            self._record += 1
        return self._line

    def _walk(self) -> Iterator[int]:
        with self._file.source.open(text=True) as data:
            text = io.TextIOWrapper(io.BufferedReader(data), encoding="utf-8-sig", errors="replace", newline="")
            # Without it a value longer than 128 KiB would be an error.
            before = plain_csv.field_size_limit((1 << 31) - 1)
            try:
                reader = plain_csv.reader(text, delimiter=self._file.source.delimiter)
                start, named, is_one_column = 1, False, len(self._file.names) == 1
                for record in reader:
                    if record or (is_one_column and named):
                        named = True
                        yield start
                    start = reader.line_num + 1
            except plain_csv.Error:
                return
            finally:
                plain_csv.field_size_limit(before)
