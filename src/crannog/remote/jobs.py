"""Long-running jobs on a server: progress is read line by line; closing the connection cancels the job."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from crannog.api.cancellation import Cancellation
from crannog.api.reports import Progress
from crannog.errors import Cancelled, Unavailable
from crannog.remote.connection import Connection, Params
from crannog.remote.errors import error_of

T = TypeVar("T")

LINES = "application/x-ndjson"
# The server sends a line each second, at least a heartbeat.
_SILENCE_S = 60.0


def run_job(
    connection: Connection,
    path: str,
    kind: type[T],
    *,
    params: Params | None = None,
    document: Any = None,
    content: bytes | None = None,
    headers: dict[str, str] | None = None,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
) -> T:
    """Run a job and return its report; raises its error.

    A cancellation, checked each second, or an error raised by `progress` closes the connection, which cancels the job.
    """
    connection.check_open()
    if cancellation is not None:
        cancellation.check()
    request: dict[str, Any] = {
        "params": params,
        "document": document,
        "content": content,
        "headers": {**(headers or {}), "Accept": LINES},
    }
    with connection.opened("POST", path, read_s=_SILENCE_S, **request) as response:
        for line in response.iter_lines():
            message = json.loads(line) if line.strip() else {}
            if "error" in message:
                raise error_of(message["error"])
            if "result" in message:
                return read_as(kind, message["result"])
            if cancellation is not None:
                _check(cancellation, path)
            if progress is not None and "progress" in message:
                progress(message["progress"]["step"], message["progress"]["share"])
    raise Unavailable(
        f"the server at {connection.address} closed the connection during POST {path}; check the history of the table to see whether the job was committed"
    )


def _check(cancellation: Cancellation, path: str) -> None:
    try:
        cancellation.check()
    except Cancelled:
        # The server may have just committed, so do not claim that the table is unchanged.
        raise Cancelled(
            f"POST {path} was cancelled; the server stops the job unless it was already committed, which the history of the table shows"
        ) from None


def read_as(kind: type[T], document: Any) -> T:
    """Return the value that a JSON document encodes."""
    from pydantic import TypeAdapter  # slow to import, and not needed by most commands

    return TypeAdapter(kind).validate_python(document)
