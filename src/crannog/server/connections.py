"""Connections: whoever does not send a whole head of a request in time, or sends one without end, is cut off."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from crannog.errors import CallerError
from crannog.formats.columns import dumped

_LARGEST_HEAD = 1 << 18


def protocol(head_s: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with limits on the time and the size of a head; idle connections have uvicorn's own."""

    class Patient(AutoHTTPProtocol):  # type: ignore[misc]
        _in_head = True
        _head_bytes = 0
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(head_s, self._close_if_late)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._in_head:
                self._head_bytes += len(data)
                if self._head_bytes > _LARGEST_HEAD:
                    self.transport.abort()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._in_head, self._head_bytes = True, 0
            if self._timer is None:
                self._timer = self.loop.call_later(head_s, self._close_if_late)

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            self._in_head = False
            self._forget_timer()

        def _close_if_late(self) -> None:
            if self._in_head and (self.cycle is None or self._head_bytes):
                self.transport.close()
            self._timer = None

        def _forget_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget_timer()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            # What is no HTTP at all gets the same shape of an error as all else.
            told = {"code": CallerError.code, "message": f"this is not HTTP/1.1 as the server reads it: {msg}", "retry_after_s": None}
            body = dumped({"error": told})
            head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            self.transport.write(head % len(body) + body)
            self.transport.close()

    return Patient
