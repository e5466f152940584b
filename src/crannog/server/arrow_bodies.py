"""Arrow streams from clients: read within limits, and validated before use."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from crannog.errors import CallerError, TooLarge

_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2
_STRUCT_BUFFER = 16


def arrow_table(data: bytes, *, most_rows: int, most_bytes: int, called: str = "the body") -> pa.Table:
    """Read an Arrow IPC stream. Raises CallerError if it is not valid, and TooLarge beyond a limit."""
    batches, rows, size = [], 0, 0
    try:
        _check_decompressed(data, most_bytes, called)
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            schema = reader.schema
            _check_texts(schema, called)
            for batch in reader:
                rows += batch.num_rows
                if rows > most_rows:
                    raise TooLarge(
                        f"{called} has more than {most_rows:,} rows, which is the limit for one call: send them in parts"
                    )
                batch.validate(full=True)
                size += batch.nbytes + sum(map(_decoded_bytes, batch.columns))
                if size > most_bytes:
                    raise _too_large(most_bytes, called)
                batches.append(batch)
        return pa.Table.from_batches(batches, schema)
    except (pa.ArrowException, OSError, EOFError, ValueError, MemoryError, struct.error, OverflowError) as error:
        raise CallerError(f"{called} is not a valid Arrow stream: {' '.join(str(error).split())[:200]}") from None


def arrow_schema(data: bytes, called: str = "the body") -> pa.Schema:
    """Read the schema of an Arrow IPC stream."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        _check_texts(schema, called)
        return schema
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise CallerError(f"{called} is not a valid Arrow schema: {' '.join(str(error).split())[:200]}") from None


def _check_texts(schema: pa.Schema, called: str) -> None:
    """Raise CallerError unless names and time zones are UTF-8: Arrow does not check them, and fails where they are used."""
    rest: list[tuple[int, pa.Field]] = list(enumerate(schema))
    while rest:
        place, field = rest.pop()
        try:
            _ = field.name
            kind = field.type
            while pa.types.is_dictionary(kind):
                kind = kind.value_type
            _ = kind.tz if pa.types.is_timestamp(kind) else None
        except UnicodeDecodeError as error:
            raise CallerError(
                f"column {place} of {called} (counting from 0) has a name or a time zone that is not UTF-8: {error.object[:80]!r}"
            ) from None
        rest += [(place, kind.field(number)) for number in range(kind.num_fields)]


def _decoded_bytes(array: pa.Array) -> int:
    """Return the bytes of text after dictionaries are decoded: every row may refer to one long value."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        values = array.dictionary
        if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
            return 0
        return int(pc.sum(pc.take(pc.cast(pc.binary_length(values), pa.int64()), array.indices)).as_py() or 0)
    if pa.types.is_struct(kind):
        return sum(_decoded_bytes(array.field(place)) for place in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _decoded_bytes(array.keys) + _decoded_bytes(array.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _decoded_bytes(array.values)
    return 0


def _too_large(most: int, called: str) -> TooLarge:
    return TooLarge(
        f"{called} holds more than {most:,} bytes of rows, which is the limit for one call: send them in parts"
    )


def _check_decompressed(data: bytes, most: int, called: str) -> None:
    """Refuse a stream whose compressed buffers declare too large a size: Arrow would allocate it first."""
    view, total = memoryview(data), 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(data)):
        if message.type not in ("record batch", "dictionary"):
            continue
        body = memoryview(message.body) if message.body is not None else view[:0]
        for offset, length in _compressed_buffers(memoryview(message.metadata)):
            if length >= 8 and offset >= 0 and offset + 8 <= len(body):
                # -1 means that the buffer is not compressed.
                total += max(0, struct.unpack_from("<q", body, offset)[0])
                if total > most:
                    raise _too_large(most, called)


def _compressed_buffers(metadata: memoryview) -> Iterator[tuple[int, int]]:
    """Yield offset and length of the compressed buffers of a batch; the metadata is a flatbuffer."""
    message = _Table(metadata, struct.unpack_from("<I", metadata, 0)[0])
    [kind] = struct.unpack_from("<B", metadata, message.field(1)) if message.field(1) else [0]
    header = message.table(2)
    batch = header.table(1) if kind == _DICTIONARY_BATCH and header else header if kind == _RECORD_BATCH else None
    if batch is None or not batch.field(3):
        return
    place = batch.field(2)
    if not place:
        return
    start = place + struct.unpack_from("<I", metadata, place)[0]
    [count] = struct.unpack_from("<I", metadata, start)
    for number in range(min(count, len(metadata) // _STRUCT_BUFFER)):
        yield struct.unpack_from("<qq", metadata, start + 4 + number * _STRUCT_BUFFER)


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
