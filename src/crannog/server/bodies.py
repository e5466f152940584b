"""Bodies of requests: read within limits of size, time and memory, and unpacked within the same size."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from starlette.requests import ClientDisconnect, Request

from crannog.errors import CallerError, Overloaded, TimedOut, TooLarge, UnsupportedMedia
from crannog.formats.compression import ENCODINGS, PLAIN, unpacked
from crannog.server.request_context import Call, call_of
from crannog.server.threads import Threads
from crannog.settings import Settings

_IN_A_THREAD = 1 << 16


def check_length(size: int, headers: Mapping[str, str]) -> None:
    """Raise CallerError unless a body has as many bytes as its Content-Length says."""
    announced = headers.get("content-length", "")
    if announced.isdigit() and int(announced) != size:
        raise CallerError(
            f"the body has {size:,} bytes and Content-Length says {int(announced):,}; nothing of it was kept"
        )


def check_message(body: bytes, headers: Mapping[str, str]) -> None:
    """Raise CallerError if there is no body at all; an empty one that is declared is an OTLP message without spans."""
    if not body and "content-length" not in headers and "transfer-encoding" not in headers:
        raise CallerError("the request has no body; a message without spans says Content-Length: 0")


class Bodies:
    """Reads bodies, and knows how many bytes of them are held."""

    def __init__(self, settings: Settings, threads: Threads) -> None:
        self._most = settings.http_body_bytes
        self._most_held = settings.http_bodies_bytes
        self._stall_s = settings.http_stall_s
        self._time_s = settings.http_request_s
        self._threads = threads
        self.held = 0

    async def read(self, request: Request) -> bytes:
        """Return the whole body, unpacked; what is held for it is given back when the request ends.

        Raises TooLarge, TimedOut if the client stalls, Overloaded if too much is held for others, UnsupportedMedia for
        an encoding that is not known and CallerError for one that is broken or for a body that is not as long as it says.
        A client that goes away is ClientDisconnect.
        """
        call, headers = call_of(request), request.headers
        encoding = headers.get("content-encoding", "").strip().lower()
        if encoding not in (*PLAIN, *ENCODINGS):
            raise UnsupportedMedia(f"the body's encoding is {encoding[:60]!r}; gzip, deflate and zstd are known")
        self._check_announced(headers.get("content-length", "0"))
        data = await self._received(request, call)
        check_length(len(data), headers)
        if encoding in PLAIN or not data:
            return data
        self._hold(call, min(self._most, 8 * len(data)))
        if len(data) <= _IN_A_THREAD:
            return unpacked(data, encoding, self._most)
        return await self._threads.run("read", lambda: unpacked(data, encoding, self._most))

    async def _received(self, request: Request, call: Call) -> bytes:
        parts: list[bytes] = []
        size, deadline = 0, time.monotonic() + self._time_s
        while True:
            try:
                async with asyncio.timeout(self._stall_s):
                    message = await request.receive()
            except TimeoutError:
                raise TimedOut(
                    f"the client sent nothing for {self._stall_s:g} s in the middle of a body; nothing of it was kept"
                ) from None
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            if part := message.get("body", b""):
                size += len(part)
                self._hold(call, len(part))
                if size > self._most:
                    raise self._too_large()
                parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)
            if time.monotonic() > deadline:
                raise TimedOut(f"the body did not arrive within {self._time_s:g} s; nothing of it was kept")

    def _check_announced(self, length: str) -> None:
        if length.isdigit() and int(length) > self._most:
            raise self._too_large()

    def _hold(self, call: Call, size: int) -> None:
        if self.held + size > self._most_held and self.held:
            raise Overloaded(
                f"bodies of {self.held:,} bytes are being worked on and {self._most_held:,} is the most; try again shortly",
                retry_after_s=1,
            )
        self.held += size
        call.held += size

    def give_back(self, call: Call) -> None:
        """Count the body of a request that ended as gone."""
        self.held -= call.held
        call.held = 0

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"the body has more than {self._most:,} bytes, which is the most; send it in parts, or raise CRANNOG_HTTP_BODY_BYTES"
        )
