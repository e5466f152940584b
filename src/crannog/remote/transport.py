"""Declared operations over HTTP: encodes requests, decodes responses, and runs long jobs with their progress."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Generator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast
from urllib.parse import quote

from crannog.api.operations import AnyOperation, Operation, Q, R, Route
from crannog.api.reports import Cancellation, Progress
from crannog.api.traces import requests as ops
from crannog.api.traces.columns import TraceColumns
from crannog.api.traces.requests import PROTOBUF, WriteSpans
from crannog.api.traces.spans import TraceView, view_document
from crannog.errors import CallerError, Cancelled, Unavailable
from crannog.formats.json_values import from_lossless_json
from crannog.remote.connection import (
    ARROW,
    ONE_TRY,
    READ_S,
    READ_TRIES,
    WRITE_TRIES,
    Connection,
    RequestParts,
    error_of,
)

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

LINES = "application/x-ndjson"
JSON = "application/json"
# The server sends a line each second, at least a heartbeat.
_SILENCE_S = 60.0


def run_job(
    connection: Connection,
    path: str,
    kind: type[T],
    *,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
    **parts: Unpack[RequestParts],
) -> T:
    """Run a job and return its report; raises its error.

    A cancellation, checked each second, or an error raised by `progress` closes the connection, which cancels the job.
    """
    connection.check_open()
    if cancellation is not None:
        cancellation.check()
    parts["headers"] = {**(parts.get("headers") or {}), "Accept": LINES}
    parts["read_s"] = _SILENCE_S
    with connection.opened("POST", path, **parts) as response:
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
    """Return the value of a declared type that plain JSON encodes: dataclasses by their fields, tuples, times, enums by value.

    Fields that are missing have their defaults, unknown ones are ignored. A class whose JSON has another form reads it in
    `__get_pydantic_core_schema__`.
    """
    found: T = _adapter(cast(Any, kind)).validate_python(document)
    return found


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter  # slow to import, and not needed by most commands

    return TypeAdapter(kind)  # takes milliseconds for a large type


class HttpTransport:
    """Carries out operations on a server."""

    read_s: float | None = READ_S
    """How long to wait for a result."""
    queries = "/sql"
    """The path of running queries."""

    def __init__(self, connection: Connection, *, timeout_s: float | None = None, query_id: str | None = None) -> None:
        self.connection = connection
        # A call with an id is sent once: a retry could conflict with the first try, which may still run.
        self._tries = READ_TRIES if query_id is None else ONE_TRY
        self.headers = {"Crannog-Query-Id": quote(query_id)} if query_id is not None else {}
        if timeout_s is not None:
            self.headers["Crannog-Timeout-S"] = repr(timeout_s)

    def within(self, timeout_s: float | None, query_id: str | None) -> HttpTransport:
        return type(self)(self.connection, timeout_s=timeout_s, query_id=query_id)

    def call(self, operation: Operation[Q, R], request: Q) -> R:
        answer = self.send(operation, request, headers=self.headers, tries=self._tries, read_s=self.read_s)
        return self.decoded(operation.result, answer.json())

    def send(
        self, operation: AnyOperation, request: Any, *, tries: int = ONE_TRY, **parts: Unpack[RequestParts]
    ) -> httpx.Response:
        """Send a request by the first route of its operation, and return the response."""
        route = operation.routes[0]
        all_parts: RequestParts = {**_arguments(route, request), **parts}
        return self.connection.ask(route.method, path_of(route, request), tries=tries, **all_parts)

    def run(
        self, operation: Operation[Q, R], request: Q, progress: Progress | None, cancellation: Cancellation | None
    ) -> R:
        [route] = operation.routes
        return run_job(
            self.connection,
            path_of(route, request),
            operation.result,
            progress=progress,
            cancellation=cancellation,
            **_arguments(route, request),
        )

    def lines(self, operation: Operation[Q, str], request: Q) -> Generator[str, None, None]:
        from crannog.remote.streaming import opened_lines

        [route] = operation.routes
        kind = JSON if operation is ops.DOWNLOAD else LINES
        parts: RequestParts = {**_arguments(route, request), "headers": self.headers}
        return opened_lines(self.connection, route.method, path_of(route, request), kind, **parts)

    def cancel(self, query_id: str) -> None:
        self.connection.ask("DELETE", f"{self.queries}/{quote(str(query_id), safe='')}")

    def decoded(self, kind: type[R], document: Any) -> R:
        """Return the result that a server encoded as JSON."""
        return read_as(kind, document)


def _arguments(route: Route, request: Any) -> RequestParts:
    """Return the arguments of a request that are not in the path."""
    in_path = re.findall(r"{(\w+)", route.path)
    if route.method != "GET":
        document = {name: value for name, value in document_of(request).items() if name not in in_path}
        return {"document": document} if document or route.method == "POST" else {}
    params: dict[str, Any] = {}
    for field in fields(request):
        value = getattr(request, field.name)
        if value is not None and field.name not in in_path:
            params[field.metadata.get("query", field.name)] = (
                [str(item) for item in value] if isinstance(value, (list, tuple)) else str(_json_value(value))
            )
    return {"params": params}


def document_of(request: Any) -> dict[str, Any]:
    """Return the arguments of a request that differ from their defaults."""
    found = {}
    for field in fields(request):
        value = getattr(request, field.name)
        default = None if field.default is MISSING else field.default
        if value is not default and (field.default is MISSING or value != default):
            found[field.name] = _json_value(value)
    return found


def _json_value(value: Any) -> Any:
    """Return an argument as a JSON value; times as text, with microseconds."""
    if isinstance(value, Mapping):
        return {key: _json_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json_value(inner) for inner in value]
    return value.isoformat() if isinstance(value, dt.date) else value


def path_of(route: Route, request: Any) -> str:
    path = route.path
    for name in re.findall(r"{(\w+)", path):
        value = getattr(request, name)
        if name == "trace_id" and not (isinstance(value, str) and re.fullmatch(r"([0-9a-fA-F]{16}){1,2}", value)):
            # Checked here, since another word in the path would select another route.
            raise CallerError(f"a trace id must have 32 (or 16) hexadecimal digits, got {value!r}"[:120])
        path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
    return path


class TraceTransport(HttpTransport):
    """Carries out the operations on traces on a server. Their values are exact: see `crannog.formats.json_values`."""

    read_s = None  # a query may run for hours
    queries = "/traces/questions"

    def call(self, operation: Operation[Q, R], request: Q) -> R:
        if isinstance(request, WriteSpans):
            return self.decoded(operation.result, self._write(request))
        if operation.result is bytes:
            headers = {**self.headers, "Accept": PROTOBUF}
            return cast(R, self.send(operation, request, headers=headers, tries=self._tries, read_s=None).content)
        if isinstance(operation.result, type) and issubclass(operation.result, TraceColumns):
            from crannog.remote.streaming import table_of

            headers = {**self.headers, "Accept": ARROW}
            answer = self.send(operation, request, headers=headers, tries=self._tries, read_s=None)
            return cast(R, operation.result(table_of(answer.content)))
        return super().call(operation, request)

    def decoded(self, kind: type[R], document: Any) -> R:
        values = from_lossless_json(document)
        return read_as(kind, view_document(values) if kind is TraceView else values)

    def _write(self, request: WriteSpans) -> Any:
        headers = {"Content-Type": request.content_type}
        if request.encoding:
            headers["Content-Encoding"] = request.encoding
        # A request is stored once by its content, so one without a response may be sent again.
        answer = self.connection.ask(
            "POST", ops.WRITE.routes[0].path, content=bytes(request.body), headers=headers, tries=WRITE_TRIES
        )
        return answer.json()
