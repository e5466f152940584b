"""What the connections of the gRPC receiver share: its calls, counted among all requests of the server, and their limits."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from crannog.errors import Overloaded
from crannog.server.otlp import grpc_messages as messages
from crannog.server.scopes import Caller
from crannog.server.service import Service

if TYPE_CHECKING:
    from crannog.server.otlp.grpc_calls import GrpcConnection

# Bytes of all bodies whose callers are not known yet, because the tokens are being read again.
_MAX_UNADMITTED_BYTES = 32 * 1024**2


class GrpcCall:
    """One call, and the memory held for it."""

    __slots__ = (
        "address",
        "body_bytes",
        "caller",
        "ended",
        "head",
        "held",
        "is_writing",
        "started",
        "unadmitted_bytes",
    )

    def __init__(self, head: messages.CallHead, address: str) -> None:
        self.head, self.address = head, address
        self.caller: Caller | None = None
        self.body_bytes = self.unadmitted_bytes = self.held = 0
        self.is_writing = self.ended = False
        self.started = time.perf_counter()


class GrpcState:
    """State that all connections share. Used by the thread of the event loop only."""

    def __init__(self, service: Service, threads: ThreadPoolExecutor) -> None:
        self.service, self.threads = service, threads
        self.limit = service.settings.otlp_request_bytes
        self.calls = 0
        self.connections: set[GrpcConnection] = set()
        self.stopping = False
        self._unadmitted_bytes = 0
        self._refresh: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Count a call. Raises Overloaded if too many requests are being served; it counts nevertheless until `end`."""
        self.calls += 1
        with self.service.requests_lock:
            self.service.requests += 1
            running = self.service.requests
        if running > self.service.settings.http_requests:
            raise Overloaded(
                f"{running - 1:,} requests are being served, which is the limit; try again shortly", retry_after_s=1
            )

    def end(self, call: GrpcCall) -> None:
        """Count a call that ended, and release its memory."""
        self.calls -= 1
        with self.service.requests_lock:
            self.service.requests -= 1
        self.admit(call, call.caller)
        self.service.bodies.release(call)

    def hold(self, call: GrpcCall, size: int) -> None:
        """Count what the body of a call has now. Raises Overloaded if too much is held for all."""
        more, call.body_bytes = size - call.body_bytes, size
        self.service.bodies.hold(call, more)
        if call.caller is None:
            call.unadmitted_bytes += more
            self._unadmitted_bytes += more
            if self._unadmitted_bytes > _MAX_UNADMITTED_BYTES:
                raise Overloaded("the tokens are being read; try again shortly", retry_after_s=1)

    def admit(self, call: GrpcCall, caller: Caller | None) -> None:
        """Note who sends a call."""
        call.caller = caller
        self._unadmitted_bytes -= call.unadmitted_bytes
        call.unadmitted_bytes = 0

    def refreshed_tokens(self) -> asyncio.Future[None]:
        """Read the tokens again in a thread, once for all calls that wait for it."""
        if self._refresh is None or self._refresh.done():
            loop = asyncio.get_running_loop()
            self._refresh = loop.run_in_executor(self.threads, self.service.tokens.refresh)
        return self._refresh
