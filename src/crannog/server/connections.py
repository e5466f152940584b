"""Connections: one that does not send a whole head of a request in time is closed."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


def protocol(head_s: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a limit on the time to the first request; after that it has its own for idle ones."""

    class Patient(AutoHTTPProtocol):  # type: ignore[misc]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._head_timer = self.loop.call_later(head_s, self._close_if_silent)

        def _close_if_silent(self) -> None:
            if self.cycle is None:
                self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_timer.cancel()
            super().connection_lost(exc)

    return Patient
