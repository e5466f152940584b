"""Streamed responses: produced in one thread, sent as fast as the client reads, ended when it disconnects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
import anyio.from_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from crannog.errors import CrannogError
from crannog.server.threads import Threads

log = logging.getLogger("crannog.server")
_BUFFERED_PARTS = 2
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
    """Return when the client disconnects; its body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def watched(request: Request, work: Any, cancel: Callable[[], None]) -> Any:
    """Wait for work, and cancel it if the client disconnects."""
    watcher = asyncio.ensure_future(gone(request.receive))
    watcher.add_done_callback(lambda done: None if done.cancelled() else cancel())
    try:
        return await work
    finally:
        watcher.cancel()


class FlowResponse(Response):
    """A response from an outflow whose head was taken already."""

    def __init__(self, flow: ThreadOutput, media_type: str, headers: Mapping[str, str] | None = None) -> None:
        self._flow = flow
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.body = b""
        self.init_headers(headers)
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.ensure_future(gone(receive))
        watcher.add_done_callback(lambda done: None if done.cancelled() else self._flow.close())
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            with suppress(StopAsyncIteration, anyio.ClosedResourceError):
                while not watcher.done():
                    part = await self._flow.take()
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
            self._flow.close()
