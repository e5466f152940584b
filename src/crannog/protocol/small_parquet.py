"""A few rows as a Parquet file, written value by value.

pyarrow's writer is made for many rows: for one row of twenty columns it takes a third of a millisecond, as long as
syncing the file. What a column looks like in the schema is still taken from pyarrow, once; its one page holds plain
values. For dozens of rows pyarrow is quicker.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_MAGIC = b"PAR1"
# Thrift's compact protocol: a field is its distance from the one before and its type, in a byte.
_TEXT, _STRUCT = 8, 12
_END = b"\x00"
_VERSION = b"\x15\x04"
_ROOT = b"\x35\x00\x18\x06schema\x15"
_NO_ROWS = b"\x16\x00\x19\x0c"
_CREATED_BY = b"\x18\x11crannog version 1"
_ENCODINGS = b"\x19\x25\x00\x06"  # plain values, levels in runs
_PAGE_ENDS = b"\x15\x00\x15\x06\x15\x06\x00\x00"  # the same again, for the page


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column of the file itself, inside structs and lists or not."""

    depth: int
    """The definition level of a value that is there."""
    repeats: int
    pack: Callable[[Sequence[Any]], bytes]
    described: bytes

    def page(self, values: Sequence[Any], depths: Sequence[int], repeats: Sequence[int]) -> bytes:
        """Return the page of these values; one that is None is null at its depth."""
        there = values
        if None not in values:
            levels = _run(self.depth, len(values))
        else:
            there = [value for value in values if value is not None]
            levels = _runs(
                [depth if value is None else self.depth for value, depth in zip(values, depths, strict=True)]
            )
        content = (_runs(repeats) if self.repeats else b"") + levels + self.pack(there)
        size = _number(len(content))
        return b"\x15\x00\x15%b\x15%b\x15%b\x1c\x15%b%b%b" % (
            size, size, _signed(zlib.crc32(content)), _number(len(values)), _PAGE_ENDS, content
        )  # fmt: skip

    def chunk(self, places: int, size: int, at: int) -> bytes:
        """Return what the footer says of the page: how many places it has, how many bytes, and where they are."""
        coded = _number(size)
        return b"\x26\x00\x1c%b\x16%b\x16%b\x16%b\x26%b\x00\x00" % (
            self.described,
            _number(places),
            coded,
            coded,
            _number(at),
        )


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
    """A column of small files: its name and type. KeyError for a type that takes pyarrow."""

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self.name = name
        self.kind = kind
        self.elements, self.described = _schema_of(name, kind)
        """How many elements the column has in the file's schema, and what they are."""
        self._node = _node((name,), kind, 0, 0)

    def leaves(self, values: Sequence[Any], top: Sequence[int]) -> Iterable[_Shredded]:
        """Return each leaf with its values and their levels."""
        return _shredded(self._node, values, top, top)


@lru_cache(maxsize=256)
def column(name: str, kind: pa.DataType) -> Column:
    """Return a column, made once."""
    return Column(name, kind)


def small_file(columns: Sequence[Column], values: Sequence[Sequence[Any]], metadata: Mapping[bytes, bytes]) -> bytes:
    """Return a Parquet file of these columns, each with its values: numbers, text, dicts, lists, None.

    Dates are given in days, times in microseconds, as Parquet keeps them.
    """
    parts, chunks, at = [_MAGIC], [], len(_MAGIC)
    top = (0,) * len(values[0])
    for one, its in zip(columns, values, strict=True):
        for leaf, found, depths, repeats in one.leaves(its, top):
            page = leaf.page(found, depths, repeats)
            parts.append(page)
            chunks.append(leaf.chunk(len(found), len(page), at))
            at += len(page)
    schema = _list(1 + sum(one.elements for one in columns), _STRUCT) + _ROOT + _number(len(columns)) + _END
    rows = b"\x16" + _number(len(values[0]))
    group = b"\x19" + _list(len(chunks), _STRUCT) + b"".join(chunks) + b"\x16" + _number(at - len(_MAGIC)) + rows + _END
    notes = [b"\x18" + _text(key) + b"\x18" + _text(value) + _END for key, value in metadata.items()]
    footer = b"".join(
        (
            _VERSION, b"\x19", schema, *(one.described for one in columns), rows, b"\x19\x1c", group,
            b"\x19", _list(len(notes), _STRUCT), *notes, _CREATED_BY, _END,
        )
    )  # fmt: skip
    return b"".join((*parts, footer, struct.pack("<I", len(footer)), _MAGIC))


def padded(file: bytes, size: int) -> bytes:
    """Return a Parquet file with nothing between its pages and its footer, so that it has this size, unless it is larger."""
    footer = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    return file[:footer] + bytes(max(size - len(file), 0)) + file[footer:]


def _shredded(node: _Node, values: Sequence[Any], depths: Sequence[int], repeats: Sequence[int]) -> Iterable[_Shredded]:
    """Return the values of each leaf with their levels, as Dremel's paper has them."""
    if isinstance(node, _Leaf):
        return ((node, values, depths, repeats),)
    if isinstance(node, _Struct):
        inside = [depth if value is None else node.depth for value, depth in zip(values, depths, strict=True)]
        fields = ((field, [None if value is None else value[name] for value in values]) for name, field in node.fields)
        return chain.from_iterable([_shredded(field, its, inside, repeats) for field, its in fields])
    items: list[Any] = []
    inside, again = [], []
    for value, depth, repeat in zip(values, depths, repeats, strict=True):
        items += value or (None,)
        inside += [node.depth + 1] * len(value) if value else [depth if value is None else node.depth]
        again += [repeat, *[node.repeats] * (len(value) - 1)] if value else [repeat]
    return _shredded(node.item, items, inside, again)


def _node(path: tuple[str, ...], kind: pa.DataType, depth: int, repeats: int) -> _Node:
    """Everything may be null, as everything in a staged file may."""
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
    """Return how pyarrow describes a column, cut out of a file without rows."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, pa.schema([pa.field(name, kind)]), store_schema=False).close()
    data = sink.getvalue().to_pybytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    elements, found, _ = footer.partition(_ROOT + _number(1) + _END)[2].rpartition(_NO_ROWS)
    assert found, "a footer without rows says so"
    return _elements(kind), elements


def _elements(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return 1 + sum(_elements(field.type) for field in kind.fields)
    return 2 + _elements(kind.value_type) if pa.types.is_list(kind) else 1


# -- values ----------------------------------------------------------------------------------------------------------


def _packed(code: str) -> Callable[[Sequence[Any]], bytes]:
    return lambda values: struct.pack(f"<{len(values)}{code}", *values)


def _texts(values: Sequence[str]) -> bytes:
    return b"".join([struct.pack("<I", len(coded)) + coded for coded in map(str.encode, values)])


_TYPES: dict[pa.DataType, tuple[int, Callable[[Sequence[Any]], bytes]]] = {
    pa.int8(): (1, _packed("i")),
    pa.int32(): (1, _packed("i")),
    pa.int64(): (2, _packed("q")),
    pa.float64(): (5, _packed("d")),
    pa.string(): (6, _texts),
    pa.date32(): (1, _packed("i")),
    pa.timestamp("us", "UTC"): (2, _packed("q")),
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


def _varint(number: int) -> bytes:
    coded = bytearray()
    while number > 127:
        coded.append(number & 127 | 128)
        number >>= 7
    coded.append(number)
    return bytes(coded)


def _signed(number: int) -> bytes:
    """Code 32 bits as the signed number that they are, folded so that small ones of either sign are alike; always in five bytes."""
    n = number << 1 if number < 1 << 31 else ((1 << 32) - number << 1) - 1
    return bytes((n & 127 | 128, n >> 7 & 127 | 128, n >> 14 & 127 | 128, n >> 21 & 127 | 128, n >> 28))


def _number(value: int) -> bytes:
    """Code a number that is not negative; a run's length is coded alike."""
    return _SHORT[value] if value < len(_SHORT) else _varint(value << 1)


_SHORT = [_varint(value << 1) for value in range(2_048)]


def _text(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _list(size: int, kind: int) -> bytes:
    return bytes((size << 4 | kind,)) if size < 15 else bytes((0xF0 | kind,)) + _varint(size)
