"""Responses that a thread produces: streams, rows in the accepted format, and long jobs with lines of progress.

They are sent as fast as the client reads, whole if they are small, and the work is cancelled when the client disconnects.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import anyio
import anyio.from_thread
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from crannog.api.reports import Cancellation, Progress
from crannog.errors import CrannogError, TimedOut
from crannog.formats.encode import json_bytes
from crannog.server.requests import Call, call_of
from crannog.server.responses import MEDIA, NDJSON, answer, error_body, table_parts, wanted_form
from crannog.server.service import Threads

log = logging.getLogger("crannog.server")
_BUFFERED_PARTS = 2
_MAX_UNREAD_BYTES = 1 << 20
Put = Callable[[Any], None]
Make = Callable[[Put], Any]
_running: set[asyncio.Future[Any]] = set()


class ThreadOutput:
    """The output of a thread: first a head, then bytes. The thread waits while they are not taken.

    A response that is complete at once is returned by the thread instead, since each part costs a switch between threads.
    One thread does all of it, because Spark tracks a query by its thread.
    """

    def __init__(self, threads: Threads, kind: str, make: Make, *, cancel: Callable[[], None]) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[Any](_BUFFERED_PARTS)
        self._cancel = cancel
        self._work = asyncio.ensure_future(threads.endless(kind, lambda: self._run(make)))
        # A task without a reference may be garbage-collected while it runs.
        _running.add(self._work)
        self._work.add_done_callback(_running.discard)
        self._work.add_done_callback(lambda work: work.cancelled() or work.exception())
        self._work.add_done_callback(lambda work: self._send.close())

    def _run(self, make: Make) -> Any:
        try:
            return make(lambda part: anyio.from_thread.run(self._send.send, part))
        except anyio.BrokenResourceError:
            return None  # the client disconnected

    async def take(self) -> Any:
        """Return the next part, or the whole response. Raises what the work raised, and StopAsyncIteration at the end."""
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            whole = await self._work
            if whole is None:
                raise StopAsyncIteration from None
            return whole

    def close(self) -> None:
        """Let the thread end; its work is cancelled if it is not done."""
        self._receive.close()
        if not self._work.done():
            self._cancel()


async def gone(receive: Receive) -> None:
    """Return when the client disconnects, or sends a body without end; a body that counts must have been read."""
    size = 0
    while size <= _MAX_UNREAD_BYTES and (message := await receive())["type"] != "http.disconnect":
        size += len(message.get("body", b""))


async def watched(request: Request, work: Any, cancel: Callable[[], None]) -> Any:
    """Wait for work, and cancel it if the client disconnects."""
    watcher = asyncio.ensure_future(gone(request.receive))
    watcher.add_done_callback(lambda done: None if done.cancelled() else cancel())
    try:
        return await work
    finally:
        watcher.cancel()


async def given_up_after(limit_s: float | None, work: Any) -> Any:
    """Wait for work up to a limit. Raises TimedOut then; the work goes on in the background."""
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError:
        raise TimedOut(f"the query did not end within {limit_s:g} s and was given up; narrow it") from None


class ThreadResponse(Response):
    """A response whose body is the output of a thread; its head was taken already."""

    def __init__(self, output: ThreadOutput, media_type: str, headers: Mapping[str, str] | None = None) -> None:
        self._output = output
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.body = b""
        self.init_headers(headers)
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.ensure_future(gone(receive))
        watcher.add_done_callback(lambda done: None if done.cancelled() else self._output.close())
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            with suppress(StopAsyncIteration, anyio.ClosedResourceError):
                while not watcher.done():
                    part = await self._output.take()
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            if not watcher.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except CrannogError as error:
            # The head was sent: the response can only end early, which clients detect.
            call = scope["crannog.call"]
            call.error_code = error.code
            log.warning("a response was cut off: %s", error.message, extra={"request_id": call.request_id})
        finally:
            watcher.cancel()
            self._output.close()


_MAX_WHOLE_BYTES = 1 << 20
WholeResponse = tuple[dict[str, str], bytes] | None
"""The headers and bytes of a response; None if they were streamed."""


def rows_response(table: pa.Table, form: str) -> Response:
    """Return a response with a small table."""
    return Response(b"".join(table_parts(table, form)), media_type=MEDIA[form])


async def rows_answer(request: Request, read: Callable[[], tuple[pa.Table, Mapping[str, str]]]) -> Response:
    """Read rows and further headers in a thread, and respond with them."""
    form = wanted_form(request)
    call = call_of(request)

    def make(put: Put) -> WholeResponse:
        table, headers = read()
        call.rows = table.num_rows
        return send_parts(put, table.nbytes, table_parts(table, form), headers)

    return await thread_response(request, "rows", make, MEDIA[form], lambda: None)


def send_parts(put: Put, size: int, parts: Iterator[bytes], headers: Mapping[str, str] | None = None) -> WholeResponse:
    """Stream the head of a response and its parts; return both if they are small."""
    if size <= _MAX_WHOLE_BYTES:
        return dict(headers or {}), b"".join(parts)
    put((dict(headers or {}), None))
    for part in parts:
        put(part)
    return None


async def thread_response(
    request: Request,
    kind: str,
    make: Callable[[Put], WholeResponse],
    media_type: str,
    cancel: Callable[[], None],
    *,
    limit_s: float | None = None,
) -> Response:
    """Respond with what a thread returns or streams; a client that disconnects before the first byte cancels it.

    Raises TimedOut if nothing was produced after `limit_s`: the work should have ended by itself, and is given up.
    """
    output = ThreadOutput(call_of(request).service.threads, kind, make, cancel=cancel)
    try:
        headers, whole = await given_up_after(limit_s, watched(request, output.take(), cancel))
    except BaseException:
        output.close()
        raise
    if whole is not None:
        return Response(whole, headers=headers, media_type=media_type)
    return ThreadResponse(output, media_type, headers)


_HEARTBEAT_S = 0.9
Work = Callable[[Progress, Cancellation], Any]


async def long_work(request: Request, work: Work) -> Response:
    """Respond with the report of a job. The body must have been read."""
    call, cancellation = call_of(request), Cancellation()
    service = call.service

    def without_progress() -> Any:
        with service.work.job(cancellation.cancel):
            return work(lambda _step, _share: cancellation.check(), cancellation)

    if wanted_form(request, ("json", "ndjson")) == "json":
        return answer(await watched(request, service.threads.endless("job", without_progress), cancellation.cancel))

    def with_progress(put: Put) -> None:
        with service.work.job(cancellation.cancel):
            _put_progress(put, work, cancellation, call)

    output = ThreadOutput(service.threads, "job", with_progress, cancel=cancellation.cancel)
    return ThreadResponse(output, NDJSON)


def _put_progress(put: Put, work: Work, cancellation: Cancellation, call: Call) -> None:
    """Do the work in a second thread and send its progress, or an empty object each second without progress."""
    state: dict[str, Any] = {}
    changed = threading.Condition()

    def progress(step: str, share: float) -> None:
        cancellation.check()
        with changed:
            state["progress"] = {"step": step, "share": share}
            changed.notify()

    def run() -> None:
        try:
            found = {"result": work(progress, cancellation)}
        except CrannogError as error:
            call.error_code = error.code
            found = {"error": error_body(error)}
        except Exception as error:
            log.error("a job failed", exc_info=error, extra={"request_id": call.request_id})
            call.error_code = "error"
            found = {
                "error": {"code": "error", "message": f"the work failed: {type(error).__name__}", "retry_after_s": None}
            }
        with changed:
            state["last"] = found
            changed.notify()

    worker = threading.Thread(target=run, name="crannog-job", daemon=True)
    worker.start()
    try:
        while True:
            with changed:
                if not state:
                    changed.wait(_HEARTBEAT_S)
                progress_made, last = state.pop("progress", None), state.get("last")
            if progress_made is not None:
                put(json_bytes({"progress": progress_made}) + b"\n")
            elif last is not None:
                put(bytes(answer(last).body) + b"\n")
                return
            else:
                put(b"{}\n")
    except BaseException:
        cancellation.cancel()
        raise
    finally:
        worker.join()
