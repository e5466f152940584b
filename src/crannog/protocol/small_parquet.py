"""A few rows as columns of Python values, and writing them as a Parquet file, value by value.

pyarrow's writer is built for many rows: one row of twenty columns takes it a third of a millisecond, as long as
syncing the file. A column's schema elements still come from pyarrow, once; its single page holds plain values. For
dozens of rows pyarrow is faster.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

# pyarrow writes the file of more rows in less time.
MAX_ROWS = 16


class RowBuffer:
    """Rows with typed columns; the values are in the form that `small_file` takes."""

    def __init__(self, columns: Sequence[Column], values: Sequence[Sequence[Any]]) -> None:
        self.columns = columns
        self.values = values
        self.num_rows = len(values[0])

    @cached_property
    def nbytes(self) -> int:
        """The approximate size of the rows in Arrow's format."""
        return len(repr(self.values))

    @cached_property
    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        arrays = [pa.array(values, column.kind) for column, values in zip(self.columns, self.values, strict=True)]
        return pa.Table.from_arrays(arrays, names=[column.name for column in self.columns])

    def with_columns(self, columns: Sequence[Column], values: Sequence[Sequence[Any]]) -> RowBuffer:
        """Return the rows with additional columns."""
        return RowBuffer([*self.columns, *columns], [*self.values, *values])

    def fits(self, columns: Mapping[str, pa.DataType]) -> bool:
        """Tell whether the rows match these column types without a conversion."""
        return all(columns.get(column.name) == column.kind for column in self.columns)

    def to_parquet(self, metadata: Mapping[bytes, bytes]) -> bytes:
        """Return the rows as a Parquet file."""
        return small_file(self.columns, self.values, metadata)


def buffered(rows: Sequence[Sequence[Any]], kind: pa.StructType) -> pa.Table | RowBuffer:
    """Return rows, whose values are in the order of the fields of `kind`, in the form that is staged in the least time."""
    if len(rows) > MAX_ROWS:
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array(rows, kind))])
    return RowBuffer(_columns(kind), list(zip(*rows, strict=True)))


@lru_cache(maxsize=256)
def _columns(kind: pa.StructType) -> list[Column]:
    return [column(field.name, field.type) for field in kind]


def merged_buffers(rows: Sequence[RowBuffer]) -> RowBuffer:
    """Return the rows of several buffers in one; a column that one of them lacks is null there."""
    if len(rows) == 1:
        return rows[0]
    columns = {column.name: column for some in rows for column in some.columns}
    values: dict[str, list[Any]] = {name: [] for name in columns}
    for some in rows:
        given = {column.name: its for column, its in zip(some.columns, some.values, strict=True)}
        nothing = [None] * some.num_rows
        for name, its in values.items():
            its += given.get(name, nothing)
    return RowBuffer(list(columns.values()), list(values.values()))


def concat_buffers(rows: Sequence[RowBuffer], wanted: pa.Schema) -> pa.Table:
    """Concatenate buffers into an Arrow table with the schema `wanted`; missing columns are null."""
    columns: dict[str, list[Any]] = {name: [] for name in wanted.names}
    for some in rows:
        given = {column.name: values for column, values in zip(some.columns, some.values, strict=True)}
        nothing = [None] * some.num_rows
        for name, values in columns.items():
            values += given.get(name, nothing)
    arrays = [pa.array(values, kind) for values, kind in zip(columns.values(), wanted.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=wanted)


_MAGIC = b"PAR1"
# Thrift's compact protocol: a field header is one byte, the difference to the previous field id and the type.
_TEXT, _STRUCT = 8, 12
_END = b"\x00"
_VERSION = b"\x15\x04"
_ROOT = b"\x35\x00\x18\x06schema\x15"
_NO_ROWS = b"\x16\x00\x19\x0c"
_CREATED_BY = b"\x18\x11crannog version 1"
_ENCODINGS = b"\x19\x25\x00\x06"  # plain values, levels in runs
_PAGE_ENDS = b"\x15\x00\x15\x06\x15\x06\x00\x00"  # the same encodings, in the page header


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf column of the file, at the top level or inside structs and lists."""

    depth: int
    """The definition level of a value that is not null."""
    repeats: int
    pack: Callable[[Sequence[Any]], bytes]
    schema_elements: bytes

    def written(
        self, values: Sequence[Any], depths: Sequence[int], repeats: Sequence[int], at: int
    ) -> tuple[bytes, bytes]:
        """Return the page of these values, where None is null at its depth, and its entry in the footer.

        `at` is where the page begins in the file.
        """
        there = values
        if None not in values:
            levels = _run(self.depth, len(values))
        else:
            there = [value for value in values if value is not None]
            levels = _runs(
                [depth if value is None else self.depth for value, depth in zip(values, depths, strict=True)]
            )
        content = (_runs(repeats) if self.repeats else b"") + levels + self.pack(there)
        checksum = zlib.crc32(content)
        # 32 bits as a signed number in zigzag form, always in five bytes.
        n = checksum << 1 if checksum < 1 << 31 else ((1 << 32) - checksum << 1) - 1
        coded = bytes((n & 127 | 128, n >> 7 & 127 | 128, n >> 14 & 127 | 128, n >> 21 & 127 | 128, n >> 28))
        size, count = _number(len(content)), _number(len(values))
        page = b"\x15\x00\x15%b\x15%b\x15%b\x1c\x15%b%b%b" % (size, size, coded, count, _PAGE_ENDS, content)
        size = _number(len(page))
        return page, b"\x26\x00\x1c%b\x16%b\x16%b\x16%b\x26%b\x00\x00" % (
            self.schema_elements, count, size, size, _number(at)
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Struct:
    depth: int
    fields: tuple[tuple[str, _Node], ...]


@dataclass(frozen=True, slots=True)
class _List:
    depth: int
    repeats: int
    item: _Node


_Node = _Leaf | _Struct | _List
_Shredded = tuple[_Leaf, Sequence[Any], Sequence[int], Sequence[int]]


class Column:
    """A column of small files: its name and type. Raises KeyError for a type that needs pyarrow."""

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self.name = name
        self.kind = kind
        self.elements, self.schema_elements = _schema_of(name, kind)
        """The number of elements that the column has in the file's schema, and their bytes."""
        self.node = _node((name,), kind, 0, 0)


@lru_cache(maxsize=4_096)
def column(name: str, kind: pa.DataType) -> Column:
    """Return the column; cached."""
    return Column(name, kind)


def small_file(columns: Sequence[Column], values: Sequence[Sequence[Any]], metadata: Mapping[bytes, bytes]) -> bytes:
    """Return a Parquet file of these columns and their values: numbers, text, dicts, lists, None.

    Dates are in days and times in microseconds since the epoch, as Parquet stores them.
    """
    parts, chunks, at = [_MAGIC], [], len(_MAGIC)
    top = (0,) * len(values[0])
    for one, its in zip(columns, values, strict=True):
        node = one.node
        leaves = ((node, its, top, top),) if isinstance(node, _Leaf) else _shredded(node, its, top, top)
        for leaf, found, depths, repeats in leaves:
            page, chunk = leaf.written(found, depths, repeats, at)
            parts.append(page)
            chunks.append(chunk)
            at += len(page)
    schema = _list(1 + sum(one.elements for one in columns), _STRUCT) + _ROOT + _number(len(columns)) + _END
    rows = b"\x16" + _number(len(values[0]))
    group = b"\x19" + _list(len(chunks), _STRUCT) + b"".join(chunks) + b"\x16" + _number(at - len(_MAGIC)) + rows + _END
    notes = [b"\x18" + _text(key) + b"\x18" + _text(value) + _END for key, value in metadata.items()]
    footer = b"".join(
        (
            _VERSION, b"\x19", schema, *(one.schema_elements for one in columns), rows, b"\x19\x1c", group,
            b"\x19", _list(len(notes), _STRUCT), *notes, _CREATED_BY, _END,
        )
    )  # fmt: skip
    return b"".join((*parts, footer, struct.pack("<I", len(footer)), _MAGIC))


def _shredded(node: _Node, values: Sequence[Any], depths: Sequence[int], repeats: Sequence[int]) -> Sequence[_Shredded]:
    """Return the values of each leaf with their definition and repetition levels (see the Dremel paper)."""
    if isinstance(node, _Leaf):
        return ((node, values, depths, repeats),)
    if isinstance(node, _Struct):
        inside = [depth if value is None else node.depth for value, depth in zip(values, depths, strict=True)]
        found: list[_Shredded] = []
        for name, field in node.fields:
            its = [None if value is None else value[name] for value in values]
            if isinstance(field, _Leaf):
                found.append((field, its, inside, repeats))
            else:
                found += _shredded(field, its, inside, repeats)
        return found
    items: list[Any] = []
    inside, again = [], []
    for value, depth, repeat in zip(values, depths, repeats, strict=True):
        items += value or (None,)
        inside += [node.depth + 1] * len(value) if value else [depth if value is None else node.depth]
        again += [repeat, *[node.repeats] * (len(value) - 1)] if value else [repeat]
    return _shredded(node.item, items, inside, again)


def _node(path: tuple[str, ...], kind: pa.DataType, depth: int, repeats: int) -> _Node:
    """Build the node of a column; every column of a staged file is nullable."""
    if pa.types.is_struct(kind):
        return _Struct(
            depth + 1,
            tuple((field.name, _node((*path, field.name), field.type, depth + 1, repeats)) for field in kind.fields),
        )
    if pa.types.is_list(kind):
        return _List(depth + 1, repeats + 1, _node((*path, "list", "element"), kind.value_type, depth + 2, repeats + 1))
    number, pack = _TYPES[kind]
    names = _list(len(path), _TEXT) + b"".join(_text(name.encode()) for name in path)
    return _Leaf(depth + 1, repeats, pack, b"\x15" + _number(number) + _ENCODINGS + b"\x19" + names + b"\x15\x00")


def _schema_of(name: str, kind: pa.DataType) -> tuple[int, bytes]:
    """Return the schema elements that pyarrow writes for a column, taken from a file without rows."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, pa.schema([pa.field(name, kind)]), store_schema=False).close()
    data = sink.getvalue().to_pybytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    elements, found, _ = footer.partition(_ROOT + _number(1) + _END)[2].rpartition(_NO_ROWS)
    assert found, "the footer of a file without rows has an empty list of row groups"
    return _elements(kind), elements


def _elements(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return 1 + sum(_elements(field.type) for field in kind.fields)
    return 2 + _elements(kind.value_type) if pa.types.is_list(kind) else 1


# -- values ----------------------------------------------------------------------------------------------------------


def _number_encoder(code: str) -> Callable[[Sequence[Any]], bytes]:
    return lambda values: struct.pack(f"<{len(values)}{code}", *values)


def _texts(values: Sequence[str]) -> bytes:
    return b"".join([struct.pack("<I", len(coded)) + coded for coded in map(str.encode, values)])


def _bits(values: Sequence[bool]) -> bytes:
    return sum(value << place for place, value in enumerate(values)).to_bytes((len(values) + 7) // 8, "little")


_TYPES: dict[pa.DataType, tuple[int, Callable[[Sequence[Any]], bytes]]] = {
    pa.bool_(): (0, _bits),
    pa.int8(): (1, _number_encoder("i")),
    pa.int32(): (1, _number_encoder("i")),
    pa.int64(): (2, _number_encoder("q")),
    pa.float64(): (5, _number_encoder("d")),
    pa.string(): (6, _texts),
    pa.date32(): (1, _number_encoder("i")),
    pa.timestamp("us", "UTC"): (2, _number_encoder("q")),
}


def _runs(levels: Sequence[int]) -> bytes:
    if len(set(levels)) == 1:
        return _run(levels[0], len(levels))
    coded = b"".join([_number(len(list(run))) + bytes((level,)) for level, run in groupby(levels)])
    return struct.pack("<I", len(coded)) + coded


@lru_cache(maxsize=4_096)
def _run(level: int, length: int) -> bytes:
    coded = _number(length) + bytes((level,))
    return struct.pack("<I", len(coded)) + coded


# -- Thrift ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8_192)
def _varint(number: int) -> bytes:
    coded = bytearray()
    while number > 127:
        coded.append(number & 127 | 128)
        number >>= 7
    coded.append(number)
    return bytes(coded)


@lru_cache(maxsize=8_192)
def _number(value: int) -> bytes:
    """Encode a number that is not negative in zigzag form; the length of a run has the same encoding."""
    return _varint(value << 1)


def _text(value: bytes) -> bytes:
    return _varint(len(value)) + value


@lru_cache(maxsize=1_024)
def _list(size: int, kind: int) -> bytes:
    return bytes((size << 4 | kind,)) if size < 15 else bytes((0xF0 | kind,)) + _varint(size)
