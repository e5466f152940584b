"""Responses compressed with zstd or gzip, where the client accepts it and the body is large enough."""

from __future__ import annotations

import zlib
from typing import Any, Protocol

import anyio.to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MIN_BYTES = 1_024
_IN_A_THREAD = 1 << 16
_GZIP = 16 + zlib.MAX_WBITS


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self, mode: Any = ..., /) -> bytes: ...


class CompressionMiddleware:
    """A plain ASGI layer: decides at the first part of a body, then compresses part by part."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        encoding = _accepted_encoding(scope) if scope["type"] == "http" else None
        if encoding is None:
            await self._app(scope, receive, send)
            return
        start: Message = {}
        compressor: _Compressor | None = None
        decided = False

        async def send_compressed(message: Message) -> None:
            nonlocal compressor, decided
            if message["type"] == "http.response.start":
                start.update(message)
                return
            body, more = message.get("body", b""), message.get("more_body", False)
            if not decided:
                decided = True
                if (more or len(body) >= _MIN_BYTES) and not _is_compressed(start):
                    compressor = _compressor(encoding)
                    start["headers"] = _compressed_headers(start["headers"], encoding)
                await send(start)
            if compressor is not None:
                body = await _compress(compressor, encoding, body, more)
            await send({"type": "http.response.body", "body": body, "more_body": more})

        await self._app(scope, receive, send_compressed)


def _accepted_encoding(scope: Scope) -> str | None:
    header = next((value for name, value in scope["headers"] if name == b"accept-encoding"), b"").decode("latin-1")
    if not header:
        return None
    accepted = set()
    for item in header.lower().split(","):
        name, _, rest = item.strip().partition(";")
        if rest.replace(" ", "") not in ("q=0", "q=0.0"):
            accepted.add(name.strip())
    return next((name for name in ("zstd", "gzip") if name in accepted), None)


def _is_compressed(start: Message) -> bool:
    return any(name == b"content-encoding" for name, _ in start["headers"])


def _compressed_headers(headers: Any, encoding: str) -> list[tuple[bytes, bytes]]:
    others = [(name, value) for name, value in headers if name != b"content-length"]
    return [*others, (b"content-encoding", encoding.encode()), (b"vary", b"accept-encoding")]


def _compressor(encoding: str) -> _Compressor:
    if encoding == "zstd":
        import zstandard

        compressor: _Compressor = zstandard.ZstdCompressor(level=1).compressobj()
        return compressor
    return zlib.compressobj(1, zlib.DEFLATED, _GZIP)


async def _compress(compressor: _Compressor, encoding: str, body: bytes, more: bool) -> bytes:
    def compressed() -> bytes:
        out = compressor.compress(body)
        if not more:
            return out + compressor.flush()
        # Each part is flushed, since a client waits for the progress or the batch in it.
        return out + (compressor.flush(1) if encoding == "zstd" else compressor.flush(zlib.Z_SYNC_FLUSH))

    return compressed() if len(body) < _IN_A_THREAD else await anyio.to_thread.run_sync(compressed)
