"""What changed, as server-sent events: pages that show a table or a build ask again when it did, not every second."""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from crannog.errors import Overloaded
from crannog.formats.encode import json_bytes
from crannog.server.requests import Call, call_of
from crannog.server.streaming import gone

router = APIRouter(prefix="/api/v1", tags=["state"])
_EVERY_S = 1.0
_BEAT_S = 15.0
# A client connects again by itself, and is admitted again: a revoked token is not heard for longer.
_LASTS_S = 600.0
_MOST = 200
_MEDIA = "text/event-stream"


# Not in the OpenAPI document, whose routes answer and end; docs/pages.md describes it.
@router.get("/changes", include_in_schema=False)
async def changes(request: Request) -> Response:
    """Tell of changes as they happen, at most each second, as server-sent events: `data: {"tables": ["a.b.c"]}`.

    Tables are named that the caller may read and that changed through this server since the last event; the build log is
    `crannog.builds.build_events`, the spans `crannog.traces.spans`. The stream ends after ten minutes: connect again.
    """
    call = call_of(request)
    if call.service.listeners >= _MOST:
        raise Overloaded(f"{_MOST} clients listen to changes, which is the limit; ask from time to time instead")
    return _Stream(call)


class _Stream(Response):
    """A response that goes on until the client or the server leaves."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.status_code = 200
        self.media_type = _MEDIA
        self.background = None
        self.body = b""
        self.init_headers({"Cache-Control": "no-store"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.ensure_future(gone(receive))
        self._call.service.listeners += 1
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._tell(watcher, send)
            if not watcher.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._call.service.listeners -= 1
            watcher.cancel()

    async def _tell(self, watcher: asyncio.Future[None], send: Send) -> None:
        service, may = self._call.service, self._call.caller.may
        ends, beat_at = time.monotonic() + _LASTS_S, 0.0
        known = service.lake.operations.tables.positions()
        while not watcher.done() and not service.draining and time.monotonic() < ends:
            positions = service.lake.operations.tables.positions()
            changed = [
                str(name) for name, position in positions.items() if known.get(name) != position and may("read", name)
            ]
            known, now = positions, time.monotonic()
            if changed or now >= beat_at:
                part = b"data: " + json_bytes({"tables": changed}) + b"\n\n" if changed else b": all is well\n\n"
                await send({"type": "http.response.body", "body": part, "more_body": True})
                beat_at = now + _BEAT_S
            await asyncio.wait({watcher}, timeout=_EVERY_S)
