"""Responses that are read while the server still produces them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack
from io import BufferedReader
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from crannog.api.result import Stream
from crannog.errors import Unavailable
from crannog.remote.arrow_bodies import Incoming, batches_of
from crannog.remote.connection import ARROW, NDJSON, Connection

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
    connection: Connection, path: str, document: dict[str, Any], headers: Mapping[str, str]
) -> Generator[str, None, None]:
    """Request lines and return them as they arrive; closing the generator cancels the request on the server."""
    lines = _lines(connection, path, document, headers)
    next(lines)  # raises the server's error, if any
    return lines


def _lines(
    connection: Connection, path: str, document: dict[str, Any], headers: Mapping[str, str]
) -> Generator[str, None, None]:
    """Yield an empty line once the server answers, then the lines."""
    with connection.opened(
        "POST", path, document=document, headers={**headers, "Accept": NDJSON}, read_s=None
    ) as response:
        kind = response.headers.get("Content-Type", "")
        if not kind.startswith(NDJSON):
            raise Unavailable(
                f"the server at {connection.address} sent {kind or 'no content type'} instead of lines; it may be an older version"
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
