"""Arrow in requests and responses: tables and schemas as IPC streams, read batch by batch if they are large."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from crannog.errors import Unavailable
from crannog.remote.errors import error_of

_ERROR = b"crannog-error"
# Smaller tables fit in a packet or two.
_WORTH_COMPRESSING = 64 * 1024


def packed(table: pa.Table) -> bytes:
    """Return a table as an IPC stream."""
    sink = io.BytesIO()
    codec = "lz4" if table.nbytes > _WORTH_COMPRESSING else None
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def packed_schema(schema: pa.Schema) -> bytes:
    """Return a schema as an IPC stream without batches."""
    return packed(schema.empty_table())


def schema_of(body: bytes) -> pa.Schema:
    """Read the schema of an IPC stream."""
    return pa.ipc.open_stream(body).schema


def table_of(body: bytes) -> pa.Table:
    """Read a whole IPC stream; raises the error that it contains if the server failed midway."""
    reader = pa.ipc.open_stream(body)
    return pa.Table.from_batches(list(batches_of(reader)), reader.schema)


def batches_of(reader: Any) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream; raises the error that it contains if the server failed midway."""
    while True:
        try:
            batch, notes = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        except pa.ArrowException as error:
            raise Unavailable(f"the response ended early: {' '.join(str(error).split())}; try again") from None
        error_body = dict(notes.items()).get(_ERROR) if notes is not None else None
        if error_body is not None:
            raise error_of(json.loads(error_body))
        yield batch


class Incoming(io.RawIOBase):
    """The body of a response as a file that Arrow reads while it arrives."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
