"""Long work on a server: followed line by line while it runs, taken back by going away."""

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
# The server says something each second, if only that it still works.
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
    """Run a job and return its report; its error is raised.

    `cancellation`, looked at each second, and an error of `progress` close the connection, which takes the job back.
    """
    connection.check_open()
    if cancellation is not None:
        cancellation.check()
    asked: dict[str, Any] = {
        "params": params,
        "document": document,
        "content": content,
        "headers": {**(headers or {}), "Accept": LINES},
    }
    with connection.opened("POST", path, read_s=_SILENCE_S, **asked) as response:
        for line in response.iter_lines():
            told = json.loads(line) if line.strip() else {}
            if "error" in told:
                raise error_of(told["error"])
            if "result" in told:
                return read_as(kind, told["result"])
            if cancellation is not None:
                _check(cancellation, path)
            if progress is not None and "progress" in told:
                progress(told["progress"]["step"], told["progress"]["share"])
    raise Unavailable(
        f"the server at {connection.address} ended in the middle of POST {path}: it may be done or not; the table's history shows which"
    )


def _check(cancellation: Cancellation, path: str) -> None:
    try:
        cancellation.check()
    except Cancelled:
        # The server may have committed in this very moment: do not promise that the table is as it was.
        raise Cancelled(
            f"POST {path} was cancelled: the server takes the job back unless it had committed already; the table's history shows which"
        ) from None


def read_as(kind: type[T], document: Any) -> T:
    """Return a report as the value it was before it travelled."""
    from pydantic import TypeAdapter  # a command that reads no report need not wait for it

    return TypeAdapter(kind).validate_python(document)
