"""Long answers: made in one thread, sent as fast as the client takes them, ended when it goes away."""

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
_AHEAD = 2
Put = Callable[[Any], None]
Make = Callable[[Put], Any]
_at_work: set[asyncio.Future[Any]] = set()


class Outflow:
    """What a thread makes: first a head, then bytes. The thread waits while nobody takes them.

    An answer that is whole at once the thread returns instead: each part that is put costs a turn of both sides.
    One thread from beginning to end: Spark keeps what belongs to a query by the thread that asked.
    """

    def __init__(self, threads: Threads, kind: str, make: Make, *, cancel: Callable[[], None]) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[Any](_AHEAD)
        self._cancel = cancel
        self._work = asyncio.ensure_future(threads.endless(kind, lambda: self._run(make)))
        # A task that nobody holds may be collected in the middle of its work.
        _at_work.add(self._work)
        self._work.add_done_callback(_at_work.discard)
        self._work.add_done_callback(lambda work: work.cancelled() or work.exception())
        self._work.add_done_callback(lambda work: self._send.close())

    def _run(self, make: Make) -> Any:
        try:
            return make(lambda part: anyio.from_thread.run(self._send.send, part))
        except anyio.BrokenResourceError:
            return None  # the client went away

    async def take(self) -> Any:
        """Return the next part, or the whole; raises what the work raised, and StopAsyncIteration at the end."""
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            whole = await self._work
            if whole is None:
                raise StopAsyncIteration from None
            return whole

    def close(self) -> None:
        """Let the thread end; its work is taken back if it is not done."""
        self._receive.close()
        if not self._work.done():
            self._cancel()


async def gone(receive: Receive) -> None:
    """Return when the client has gone away; its body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def watched(request: Request, work: Any, cancel: Callable[[], None]) -> Any:
    """Wait for work; a client that goes away meanwhile takes it back."""
    watcher = asyncio.ensure_future(gone(request.receive))
    watcher.add_done_callback(lambda done: None if done.cancelled() else cancel())
    try:
        return await work
    finally:
        watcher.cancel()


class FlowResponse(Response):
    """An answer from an outflow whose head was taken already."""

    def __init__(self, flow: Outflow, media_type: str, headers: Mapping[str, str] | None = None) -> None:
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
            # The head is out: all that is left is an answer that ends too early, which clients notice.
            call = scope["crannog.call"]
            call.error_code = error.code
            log.warning("an answer was cut off: %s", error.message, extra={"request_id": call.request_id})
        finally:
            watcher.cancel()
            self._flow.close()
