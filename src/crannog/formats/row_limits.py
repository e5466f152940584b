"""How much a body holds: rows, lists, objects and values, counted in its bytes before anything is built from them.

A million empty lists are three megabytes of JSON and a hundred of Python, so counting what was built would come too late.
Every step looks at a small block, so that other threads run in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from crannog.errors import Overloaded, SchemaMismatch, TooLarge

_BLOCK_BYTES = 1 << 18
_BACKSLASH, _BACKSLASHES = 0x5C, re.compile(rb"\\*")
# Of what has nested lists: how many values each row may have, for each of its columns.
_VALUES_IN_LISTS = 8
# A few that do not fit are an error of their row, which the engine reports.
_ANY_LISTS, _ANY_OBJECTS = 200_000, 500_000
_SURPLUS_COLUMNS = 1_000
ANY_CELLS, _CELLS_PER_BYTE = 16_000_000, 4
_DOCUMENT_LISTS, _DOCUMENT_OBJECTS, _DOCUMENT_VALUES = 50_000, 100_000, 1_000_000


@dataclass(frozen=True, slots=True)
class RowLimit:
    """The most rows of one call, and the table that they are for."""

    rows: int
    table: str

    def check(self, count: int) -> None:
        """Raise Overloaded if there are more rows."""
        if count > self.rows:
            raise Overloaded(
                f"{count:,} rows in one call to {self.table}; {self.rows:,} is the most: send them in parts"
            )

    def check_cells(self, rows: int, columns: int, size: int) -> None:
        """Raise TooLarge if a body of `size` bytes has rows with far more columns than it has values for them."""
        if rows * columns > max(ANY_CELLS, _CELLS_PER_BYTE * size):
            raise TooLarge(
                f"{rows:,} rows with {columns:,} columns, most of them null, in one call to {self.table}; send them in parts"
            )


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """The most lists, objects and values that JSON may hold."""

    lists: int
    objects: int
    values: int
    rows: RowLimit | None = None
    """Where every object is a row, so that their number is the number of rows."""

    @classmethod
    def of_rows(cls, schema: pa.Schema, limit: RowLimit) -> JsonLimits:
        """Return the limits of rows for a table: what that number of rows of its types can hold."""
        lists, objects, leaves = _nodes(pa.struct(list(schema)))
        values = limit.rows * (leaves + 1)
        return cls(
            lists=_ANY_LISTS + limit.rows * lists,
            objects=limit.rows * objects,
            values=values * _VALUES_IN_LISTS if lists or objects > 1 else values,
            rows=limit if objects == 1 else None,
        )

    @classmethod
    def of_size(cls, size: int) -> JsonLimits:
        """Return the limits of JSON that has this many bytes and no schema: empty lists and objects take the most memory."""
        return cls(_ANY_LISTS + size // 32, _ANY_OBJECTS + size // 32, _DOCUMENT_VALUES + size // 8)

    def check(self, data: bytes, source_name: str) -> None:
        """Raise TooLarge, or Overloaded for too many rows, if JSON holds more. What is not valid JSON may be counted wrongly."""
        # Characters in strings count too here, which is faster and mostly enough.
        if not self._is_within(*(count(data, byte) for byte in (b"[", b"{", b","))):
            lists, objects, commas = _outside_strings(data)
            if self._is_within(lists, objects, commas):
                return
            if self.rows is not None:
                self.rows.check(objects)
            raise TooLarge(
                f"{source_name} has {commas + 1:,} values in {lists:,} lists and {objects:,} objects;"
                f" {self.values:,} values in {self.lists:,} lists and {self.objects:,} objects are the most: send it in parts"
            )

    def _is_within(self, lists: int, objects: int, commas: int) -> bool:
        return lists <= self.lists and objects <= self.objects and commas < self.values


DOCUMENT = JsonLimits(_DOCUMENT_LISTS, _DOCUMENT_OBJECTS, _DOCUMENT_VALUES)
"""What the arguments of an operation may hold."""


def count(data: bytes, byte: bytes) -> int:
    """Return how often a byte occurs."""
    return sum(data.count(byte, at, at + _BLOCK_BYTES) for at in range(0, len(data), _BLOCK_BYTES))


def check_lines(data: bytes, limit: RowLimit) -> None:
    """Raise Overloaded if text has more lines than there may be rows."""
    limit.check(count(data, b"\n") + (not data.endswith(b"\n")))


def check_csv(data: bytes, columns: int, limit: RowLimit, source_name: str) -> None:
    """Raise Overloaded if CSV has too many rows, SchemaMismatch if its first line names far more columns."""
    lines = count(data, b"\n")
    if lines > limit.rows:  # unless some are line breaks inside values
        lines = sum(part.count(b"\n") for part in _unquoted(data, escapes=False))
    limit.check(lines - data.endswith(b"\n"))
    names = 1
    for part in _unquoted(data, escapes=False):
        head, end, _ = part.lstrip(b"\r\n").partition(b"\n") if names == 1 else part.partition(b"\n")
        names += head.count(b",")
        if end:
            break
    if names > columns + _SURPLUS_COLUMNS:
        raise SchemaMismatch(f"{source_name} names {names:,} columns in its first line, the table has {columns:,}")


def _nodes(kind: pa.DataType) -> tuple[int, int, int]:
    """Return how many lists, objects and plain values a type has, each nested one once."""
    types = pa.types
    below = [_nodes(kind.field(place).type) for place in range(kind.num_fields)]
    lists, objects, leaves = (sum(counts) for counts in zip(*below, strict=True)) if below else (0, 0, 1)
    is_list = not types.is_map(kind) and (types.is_list(kind) or types.is_large_list(kind))
    return lists + is_list, objects + (types.is_struct(kind) or types.is_map(kind)), leaves


def _outside_strings(data: bytes) -> tuple[int, int, int]:
    """Return how many lists and objects begin in JSON, and how many commas it has."""
    lists = objects = commas = 0
    for part in _unquoted(data, escapes=True):
        lists, objects, commas = lists + part.count(b"["), objects + part.count(b"{"), commas + part.count(b",")
    return lists, objects, commas


def _unquoted(data: bytes, *, escapes: bool) -> Iterator[bytes]:
    """Yield what stands outside of quotation marks, block by block; with `escapes`, a backslash may precede one."""
    at, inside = 0, 0
    while at < len(data):
        end = min(at + _BLOCK_BYTES, len(data))
        # A block does not end between a backslash and what it escapes.
        if escapes and data[end - 1] == _BACKSLASH and (more := _BACKSLASHES.match(data, end)):
            end = min(more.end() + 1, len(data))
        block = data[at:end]
        if escapes and b"\\" in block:
            block = block.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = block.split(b'"')
        yield b"".join(parts[inside::2])
        inside ^= (len(parts) - 1) & 1
        at = end
