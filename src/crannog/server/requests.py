"""One request while it is served: its context (who sent it, what it touches, what is recorded of it), and its body.

Bodies are read within limits of size, time and memory, decompressed within the same size, and parsed by their Content-Type.
The event loop only receives them: what unpacks or parses more than a few kilobytes runs in a thread.
"""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from crannog.api.table_requests import Definition
from crannog.errors import CallerError, Cancelled, Overloaded, TimedOut, TooLarge, UnsupportedMedia
from crannog.formats.row_bodies import ENCODINGS, UNCOMPRESSED, decompressed, exact_keys, parse_document, parse_rows
from crannog.formats.row_limits import ANY_CELLS, DOCUMENT, JsonLimits, RowLimit
from crannog.names import TableName, without_raw_prefix
from crannog.server.arrow_bodies import arrow_table
from crannog.server.responses import ARROW
from crannog.server.scopes import Caller
from crannog.settings import Settings

if TYPE_CHECKING:
    from crannog.server.service import Service, Threads


@dataclass(slots=True)
class Call:
    """Lives as long as its request. `need` comes before anything is opened, so that no caller learns what it may not see.

    `headers` has lower-case names; of a header that is repeated it has the last. `held` is the bytes reserved for the body,
    `cancel` ends the query that runs for it.
    """

    service: Service
    request_id: str
    caller: Caller
    address: str
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)
    tables: tuple[TableName, ...] = ()
    rows: int | None = None
    rejected: int | None = None
    sql: str | None = None
    engine: str = ""
    error_code: str = ""
    status: int = 0
    left: bool = False
    cancel: Callable[[], object] | None = None
    held: int = 0
    ended: bool = False

    def need(self, level: str, *names: TableName) -> None:
        """Raise Forbidden unless the caller may do this on all these tables."""
        self.tables = names
        self.caller.check(level, names)

    def header(self, name: bytes) -> str:
        """Return a header by its lower-case name; empty if it was not sent."""
        return self.headers.get(name, b"").decode("latin-1")

    def named_table(self, level: str, text: str) -> TableName:
        """Check a table's name and the right to it; return the name without the prefix of its raw form."""
        name = TableName.parse(without_raw_prefix(text)[0])
        self.need(level, name)
        return name

    @property
    def elapsed_ms(self) -> float:
        return (time.perf_counter() - self.started) * 1000


def call_of(request: Request) -> Call:
    """Return the context of a request."""
    call: Call = request.scope["crannog.call"]
    return call


_SMALL_DOCUMENT = 1 << 13
# As JSON, a statement takes a few times its bytes: text that is not ASCII is escaped.
_STATEMENTS_PER_DOCUMENT = 4
_LEAST_DOCUMENT = 1 << 20
_MOST_NAMES = 100
T = TypeVar("T")


def check_message(body: bytes, headers: Mapping[str, str]) -> None:
    """Raise CallerError if there is no body at all; a declared empty one is an OTLP message without spans."""
    if not body and "content-length" not in headers and "transfer-encoding" not in headers:
        raise CallerError("the request has no body; send Content-Length: 0 for a message without spans")


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """The largest body of a kind of request, and the setting that says so."""

    bytes: int
    setting: str = ""

    def exceeded(self) -> TooLarge:
        """Return the error for a body that has more bytes."""
        advice = f"; send it in parts, or raise {self.setting}" if self.setting else ""
        return TooLarge(f"the body has more than {self.bytes:,} bytes, which is the limit{advice}")


class Holder(Protocol):
    """A request, and the bytes held for it until it ends."""

    held: int
    ended: bool


class Bodies:
    """Reads bodies, and counts the bytes held for those of all requests. Safe for several event loops."""

    def __init__(self, settings: Settings, threads: Threads) -> None:
        self._limit = BodyLimit(settings.http_body_bytes, "CRANNOG_HTTP_BODY_BYTES")
        self._documents = BodyLimit(
            min(max(_STATEMENTS_PER_DOCUMENT * settings.sql_text_bytes, _LEAST_DOCUMENT), settings.http_body_bytes),
            "CRANNOG_SQL_TEXT_BYTES",
        )
        self.spans = BodyLimit(settings.otlp_request_bytes, "CRANNOG_OTLP_REQUEST_BYTES")
        self._max_held = settings.http_bodies_bytes
        self._stall_s = settings.http_stall_s
        self._time_s = settings.http_request_s
        self._threads = threads
        self._lock = threading.Lock()
        self.held = 0

    async def document(self, request: Request, parse: Callable[[bytes], T], limit: BodyLimit | None = None) -> T:
        """Return what `parse` makes of a document, such as the arguments of an operation; it is called in a thread if that takes long.

        Raises what `read` and `parse` raise.
        """
        data = await self.read(request, limit or self._documents)
        return parse(data) if len(data) <= _SMALL_DOCUMENT else await self._threads.run("read", lambda: parse(data))

    async def read(self, request: Request, limit: BodyLimit | None = None) -> bytes:
        """Return the whole body, decompressed; the memory held for it is released when the request ends.

        Raises what `receive` raises, UnsupportedMedia for an unknown encoding and CallerError for a damaged body.
        """
        call = call_of(request)
        encoding = call.header(b"content-encoding").strip().lower()
        if encoding not in (*UNCOMPRESSED, *ENCODINGS):
            raise UnsupportedMedia(f"content encoding {encoding[:60]!r} is not supported; send gzip, deflate or zstd")
        limit = self._limit if limit is None or limit.bytes > self._limit.bytes else limit
        data = await self.receive(call, request.receive, limit)
        if encoding in UNCOMPRESSED or not data:
            return data
        return await self._threads.run("read", lambda: self.decompressed(call, data, encoding, limit))

    async def receive(self, call: Call, receive: Receive, limit: BodyLimit) -> bytes:
        """Return the whole body as it was sent.

        Raises TooLarge, TimedOut if the client stalls, Overloaded if too much is held for other requests, CallerError if
        the length is not the declared one, and ClientDisconnect if the client closes the connection.
        """
        length = call.headers.get(b"content-length", b"")
        declared = int(length) if length.isdigit() else None
        if declared is not None and declared > limit.bytes:
            raise limit.exceeded()
        first, rest = b"", io.BytesIO()  # a body that came in one part needs no copy, others get one
        size, deadline = 0, time.monotonic() + self._time_s
        more = True
        while more:
            try:
                async with asyncio.timeout(self._stall_s):
                    message = await receive()
            except TimeoutError:
                raise TimedOut(
                    f"the client sent nothing for {self._stall_s:g} s in the middle of a body; nothing of it was kept"
                ) from None
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            more = message.get("more_body", False)
            if part := message.get("body", b""):
                size += len(part)
                self.hold(call, len(part))
                if size > limit.bytes:
                    raise limit.exceeded()
                if size == len(part):
                    first = part
                else:
                    rest.write(first)
                    rest.write(part)
                    first = b""
            if more and time.monotonic() > deadline:
                raise TimedOut(f"the body did not arrive within {self._time_s:g} s; nothing of it was kept")
        if declared is not None and declared != size:
            raise CallerError(
                f"the body has {size:,} bytes and Content-Length says {declared:,}; nothing of it was kept"
            )
        return first or rest.getvalue()

    def decompressed(self, call: Holder, data: bytes, encoding: str, limit: BodyLimit) -> bytes:
        """Decompress a body, in a thread, and hold memory for it as it grows. Raises Overloaded if too much is held."""
        return decompressed(data, encoding, limit.bytes, grows=partial(self.hold, call))

    def hold(self, call: Holder, size: int) -> None:
        """Hold memory for a request. Raises Overloaded if too much is held for all."""
        with self._lock:
            if call.ended:
                raise Cancelled("the client no longer waits for its request")
            if self.held + size > self._max_held and self.held:
                raise Overloaded(
                    f"request bodies of {self.held:,} bytes are being processed, and the limit is {self._max_held:,};"
                    " try again shortly",
                    retry_after_s=1,
                )
            self.held += size
            call.held += size

    def release(self, call: Holder) -> None:
        """Release what is held for a request that ended."""
        call.ended = True
        if call.held:
            with self._lock:
                self.held -= call.held
                call.held = 0


_FORMS = {
    "": "json",
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "text/csv": "csv",
    "application/csv": "csv",
    ARROW: "arrow",
}
BODY = "the body"


def form_of(request: Request, forms: tuple[str, ...] = ("json", "ndjson", "csv", "arrow")) -> str:
    """Return the format of the body by its Content-Type. Raises UnsupportedMedia, which lists the supported ones."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    form = _FORMS.get(media)
    if form not in forms:
        known = ", ".join(name for name, of in _FORMS.items() if name and of in forms)
        raise UnsupportedMedia(f"content type {media[:80]!r} is not supported; send one of {known}")
    return form


def rows_from(data: bytes, form: str, name: TableName, table: Definition, settings: Settings) -> pa.Table | list[Any]:
    """Read rows for a table. Raises Overloaded or TooLarge if there are too many, mostly before they are built."""
    limit, columns = RowLimit(settings.max_rows_per_call, str(name)), len(table.user_schema)
    if form == "arrow":
        found = arrow_table(data, limit, most_bytes=settings.http_body_bytes)
    else:
        found = parse_rows(data, form, table.user_schema, BODY, strict=True, limit=limit)
    if len(found) * columns > ANY_CELLS:
        limit.check_cells(len(found), columns, len(data))
    return found


def json_document(data: bytes, limits: JsonLimits = DOCUMENT) -> Any:
    """Read a JSON document. Raises TooLarge, before it is parsed, if it holds more than the limits."""
    if len(data) > _SMALL_DOCUMENT:
        limits.check(data, BODY)
    return parse_document(data, BODY, strict=True)


def document(data: bytes, shape: TypeAdapter[Any], limits: JsonLimits = DOCUMENT) -> Any:
    """Read a JSON document of a shape. Raises CallerError, which names the fields that do not fit, and TooLarge."""
    found = json_document(data, limits)
    if isinstance(found, dict) and len(found) > _MOST_NAMES:
        # Each name that does not fit would be an error of its own.
        raise CallerError(f"{BODY} does not fit: an object with {len(found):,} names")
    try:
        return shape.validate_python(found, strict=True)
    except ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, item['loc'])) or BODY}: {item['msg'][:1].lower()}{item['msg'][1:]}"
            for item in error.errors()[:5]
        ]
        raise CallerError(f"{BODY} does not fit: {'; '.join(wrong)}") from None


def keys_from(values: list[Any], table: Definition) -> list[Any]:
    """Return keys of a JSON document in the form that the engine expects."""
    return exact_keys(values, table.schema, table.key) if table.key else values
