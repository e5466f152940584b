"""Arrow in requests and responses, and responses that are read while the server still produces them."""

from __future__ import annotations

import io
import json
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from io import BufferedReader
from typing import Any, Unpack
from urllib.parse import unquote

import pyarrow as pa

from crannog.api.result import Stream
from crannog.errors import Unavailable
from crannog.remote.connection import ARROW, Connection, RequestParts, error_of

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


_AT_ONCE = 1 << 16


def opened_stream(connection: Connection, document: dict[str, Any]) -> Stream:
    """Run a query and return its batches as they arrive; closing the stream cancels the query on the server."""
    with ExitStack() as opening:
        response = opening.enter_context(
            connection.opened("POST", "/sql/stream", document=document, headers={"Accept": ARROW}, read_s=None)
        )
        try:
            reader = pa.ipc.open_stream(BufferedReader(Incoming(response.iter_bytes()), _AT_ONCE))
        except pa.ArrowException as error:
            raise Unavailable(
                f"the server at {connection.address} sent no Arrow stream: {' '.join(str(error).split())}"
            ) from None
        headers = response.headers
        return Stream(
            reader.schema,
            headers["Crannog-Engine"],
            unquote(headers["Crannog-Query-Id"]),
            _Batches(reader, opening.pop_all()),
        )


def opened_lines(
    connection: Connection, method: str, path: str, kind: str, **parts: Unpack[RequestParts]
) -> Generator[str, None, None]:
    """Request lines and return them as they arrive; closing the generator cancels the request on the server."""
    lines = _lines(connection, method, path, kind, **parts)
    next(lines)  # raises the server's error, if any
    return lines


def _lines(
    connection: Connection, method: str, path: str, wanted: str, **parts: Unpack[RequestParts]
) -> Generator[str, None, None]:
    """Yield an empty line once the server answers, then the lines."""
    parts["headers"] = {**(parts.get("headers") or {}), "Accept": wanted}
    parts["read_s"] = None
    with connection.opened(method, path, **parts) as response:
        kind = response.headers.get("Content-Type", "")
        if not kind.startswith(wanted):
            raise Unavailable(
                f"the server at {connection.address} sent {kind or 'no content type'} instead of {wanted}; it may be an older version"
            )
        yield ""
        for line in BufferedReader(Incoming(response.iter_bytes()), _AT_ONCE):
            yield line.rstrip(b"\n").decode()


class _Batches:
    """The batches of an open response, which is closed at its end, at an error, or by `close`."""

    def __init__(self, reader: Any, held: ExitStack) -> None:
        self._batches = batches_of(reader)
        self._held = held

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> pa.RecordBatch:
        with ExitStack() as ending:
            ending.push(self._held)  # which also translates network errors
            batch = next(self._batches)
            ending.pop_all()
            return batch

    def close(self) -> None:
        self._held.close()
