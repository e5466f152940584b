"""Arrow streams from clients: their rows and bytes are checked in the metadata, before Arrow allocates anything for them.

A few hundred bytes can declare billions of rows that need none (nulls), buffers that unpack to gigabytes, or rows that
all refer to one long value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from crannog.errors import CallerError, TooLarge
from crannog.formats.row_limits import RowLimit

_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2
_STRUCT_BYTES = 16  # of a FieldNode, and of a Buffer
# Rows may take more memory than they have bytes, as those of dictionaries do; beyond these bytes, at most this many times.
_ANY_RATIO_BYTES, _MAX_RATIO = 128 * 1024**2, 100
_BATCH_BYTES, _COLUMN_BYTES = 1_024, 256
_BITS = 8
_VIEW_BYTES = 16
_MAX_SCALE = 76  # as many digits as the largest decimal has


def arrow_table(data: bytes, limit: RowLimit, *, most_bytes: int, called: str = "the body") -> pa.Table:
    """Read an Arrow IPC stream. Raises CallerError if it is not valid, Overloaded and TooLarge beyond a limit."""
    most = min(most_bytes, max(_ANY_RATIO_BYTES, _MAX_RATIO * len(data)))
    batches, size = [], 0
    try:
        _check_declared(data, limit, most, called)
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            schema = reader.schema
            _check_columns(schema, called)
            for batch in reader:
                batch.validate(full=True)
                size += _BATCH_BYTES + _COLUMN_BYTES * batch.num_columns + batch.nbytes
                size += sum(map(_decoded_bytes, batch.columns))
                if size > most:
                    raise _too_large(most, called)
                if batch.num_rows:
                    batches.append(batch)
        return pa.Table.from_batches(batches, schema)
    except (pa.ArrowException, OSError, EOFError, ValueError, MemoryError, struct.error, OverflowError) as error:
        raise CallerError(f"{called} is not a valid Arrow stream: {' '.join(str(error).split())[:200]}") from None


def arrow_schema(data: bytes, called: str = "the body") -> pa.Schema:
    """Read the schema of an Arrow IPC stream."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        _check_columns(schema, called)
        return schema
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise CallerError(f"{called} is not a valid Arrow schema: {' '.join(str(error).split())[:200]}") from None


def _check_columns(schema: pa.Schema, called: str) -> None:
    """Raise CallerError unless names and time zones are UTF-8 and types are valid.

    Arrow does not check them, and fails where they are used: with a union without members, or a decimal with a scale far
    beyond its digits, it reads memory that is not its own, and the process ends.
    """
    rest: list[tuple[int, pa.Field]] = list(enumerate(schema))
    while rest:
        place, field = rest.pop()
        try:
            _ = field.name
            kind = field.type
            while pa.types.is_dictionary(kind):
                kind = kind.value_type
            _ = kind.tz if pa.types.is_timestamp(kind) else None
            if (pa.types.is_union(kind) and not kind.num_fields) or (
                pa.types.is_decimal(kind) and abs(kind.scale) > _MAX_SCALE
            ):
                raise CallerError(
                    f"column {place} of {called} (counting from 0) has the type {kind}, which no value can have"
                )
        except UnicodeDecodeError as error:
            raise CallerError(
                f"column {place} of {called} (counting from 0) has a name or a time zone that is not UTF-8: {error.object[:80]!r}"
            ) from None
        rest += [(place, kind.field(number)) for number in range(kind.num_fields)]


def _decoded_bytes(array: pa.Array) -> int:
    """Return the bytes of what rows refer to, once each has its own: several may refer to one long value."""
    kind, types = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return _decoded_bytes(array.storage)
    if types.is_dictionary(kind):
        return _dictionary_bytes(array)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _view_bytes(array)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        values = array.values
        shared = int(pc.sum(pc.list_value_length(array)).as_py() or 0) // max(1, len(values)) + 1
        return shared * (int(values.nbytes) + _decoded_bytes(values))
    if types.is_struct(kind):
        return sum(_decoded_bytes(array.field(place)) for place in range(kind.num_fields))
    if types.is_map(kind):
        return _decoded_bytes(array.keys) + _decoded_bytes(array.items)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _decoded_bytes(array.values)
    return 0


def _dictionary_bytes(array: pa.Array) -> int:
    values, types = array.dictionary, pa.types
    kind = values.type
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        return int(pc.sum(pc.take(pc.cast(pc.binary_length(values), pa.int64()), array.indices)).as_py() or 0)
    if types.is_primitive(kind) or types.is_fixed_size_binary(kind) or types.is_decimal(kind):
        return len(array) * (int(kind.bit_width) // _BITS + 1)
    # Of views and nested values the longest is not known: each row may mean all of them.
    return len(array) * (int(values.nbytes) + _decoded_bytes(values))


def _view_bytes(array: pa.Array) -> int:
    """Return the bytes of the texts that views refer to; a view begins with its length."""
    if not len(array):
        return 0
    words = _VIEW_BYTES // 4
    first = array.offset * words
    numbers = pa.Array.from_buffers(pa.uint32(), first + len(array) * words, [None, array.buffers()[1]])
    lengths = numbers.take(pa.array(range(first, first + len(array) * words, words), pa.int64()))
    return int(pc.sum(pc.cast(lengths, pa.int64())).as_py() or 0)


def _too_large(most: int, called: str) -> TooLarge:
    return TooLarge(
        f"{called} holds more than {most:,} bytes of rows, which is the limit for one call of its size: send them in parts"
    )


class _Batch(NamedTuple):
    """What the metadata of a batch declares: its rows, the lengths of all its arrays, and its compressed buffers."""

    is_dictionary: bool
    rows: int
    lengths: list[int]
    compressed: list[tuple[int, int]]


def _check_declared(data: bytes, limit: RowLimit, most: int, called: str) -> None:
    """Refuse a stream that declares too many rows, values or bytes: Arrow would allocate them first."""
    rows = size = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(data)):
        if message.type not in ("record batch", "dictionary"):
            continue
        body = memoryview(message.body) if message.body is not None else memoryview(b"")
        batch = _declared(memoryview(message.metadata))
        unpacked = len(body)
        for offset, length in batch.compressed:
            if length >= 8 and offset >= 0 and offset + 8 <= len(body):
                # -1 means that the buffer is not compressed.
                unpacked += max(0, struct.unpack_from("<q", body, offset)[0])
        size += unpacked
        if not batch.is_dictionary:
            rows += batch.rows
        # Only nulls take no bytes: others take a bit at least.
        plain = min(batch.rows, limit.rows) * len(batch.lengths) + _BITS * unpacked
        if size > most + len(data) or (not rows > limit.rows and sum(batch.lengths) > plain):
            raise _too_large(most, called)
    limit.check(rows)


def _declared(metadata: memoryview) -> _Batch:
    """Read the metadata of a batch, which is a flatbuffer."""
    message = _Table(metadata, struct.unpack_from("<I", metadata, 0)[0])
    [kind] = struct.unpack_from("<B", metadata, message.field(1)) if message.field(1) else [0]
    header = message.table(2)
    batch = header.table(1) if kind == _DICTIONARY_BATCH and header else header if kind == _RECORD_BATCH else None
    if batch is None:
        return _Batch(kind == _DICTIONARY_BATCH, 0, [], [])
    [rows] = struct.unpack_from("<q", metadata, batch.field(0)) if batch.field(0) else [0]
    lengths = [length for length, _ in _pairs(metadata, batch.field(1))]
    compressed = list(_pairs(metadata, batch.field(2))) if batch.field(3) else []
    return _Batch(kind == _DICTIONARY_BATCH, max(0, rows), lengths, compressed)


def _pairs(metadata: memoryview, place: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of a list: length and number of nulls of an array, or offset and length of a buffer."""
    if not place:
        return
    start = place + struct.unpack_from("<I", metadata, place)[0]
    [count] = struct.unpack_from("<I", metadata, start)
    for number in range(min(count, len(metadata) // _STRUCT_BYTES)):
        yield struct.unpack_from("<qq", metadata, start + 4 + number * _STRUCT_BYTES)


class _Table:
    """A table of a flatbuffer: the positions of its fields by number, 0 for an absent one."""

    def __init__(self, data: memoryview, start: int) -> None:
        self._data = data
        self._start = start
        [back] = struct.unpack_from("<i", data, start)
        self._fields = start - back
        if self._fields < 0:
            raise ValueError("its metadata is damaged")
        [self._size] = struct.unpack_from("<H", data, self._fields)

    def field(self, number: int) -> int:
        place = 4 + 2 * number
        if place + 2 > self._size:
            return 0
        [offset] = struct.unpack_from("<H", self._data, self._fields + place)
        return self._start + offset if offset else 0

    def table(self, number: int) -> _Table | None:
        place = self.field(number)
        return _Table(self._data, place + struct.unpack_from("<I", self._data, place)[0]) if place else None
