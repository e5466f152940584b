"""Answers packed with zstd or gzip where the client takes that and it pays."""

from __future__ import annotations

import zlib
from typing import Any, Protocol

import anyio.to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SMALLEST = 1_024
_IN_A_THREAD = 1 << 16
_GZIP = 16 + zlib.MAX_WBITS


class _Packer(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self, mode: Any = ..., /) -> bytes: ...


class Packing:
    """A plain ASGI layer: decides at the first part of a body, then packs part by part."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        encoding = _wanted(scope) if scope["type"] == "http" else None
        if encoding is None:
            await self._app(scope, receive, send)
            return
        start: Message = {}
        packer: _Packer | None = None
        decided = False

        async def packed(message: Message) -> None:
            nonlocal packer, decided
            if message["type"] == "http.response.start":
                start.update(message)
                return
            body, more = message.get("body", b""), message.get("more_body", False)
            if not decided:
                decided = True
                if (more or len(body) >= _SMALLEST) and not _is_packed(start):
                    packer = _packer(encoding)
                    start["headers"] = _relabelled(start["headers"], encoding)
                await send(start)
            if packer is not None:
                body = await _step(packer, encoding, body, more)
            await send({"type": "http.response.body", "body": body, "more_body": more})

        await self._app(scope, receive, packed)


def _wanted(scope: Scope) -> str | None:
    accepted = (
        next((value for name, value in scope["headers"] if name == b"accept-encoding"), b"").decode("latin-1").lower()
    )
    if not accepted:
        return None
    taken = set()
    for item in accepted.split(","):
        name, _, rest = item.strip().partition(";")
        if rest.replace(" ", "") not in ("q=0", "q=0.0"):
            taken.add(name.strip())
    return next((name for name in ("zstd", "gzip") if name in taken), None)


def _is_packed(start: Message) -> bool:
    return any(name == b"content-encoding" for name, _ in start["headers"])


def _relabelled(headers: Any, encoding: str) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name != b"content-length"]
    return [*kept, (b"content-encoding", encoding.encode()), (b"vary", b"accept-encoding")]


def _packer(encoding: str) -> _Packer:
    if encoding == "zstd":
        import zstandard

        packer: _Packer = zstandard.ZstdCompressor(level=1).compressobj()
        return packer
    return zlib.compressobj(1, zlib.DEFLATED, _GZIP)


async def _step(packer: _Packer, encoding: str, body: bytes, more: bool) -> bytes:
    def pack() -> bytes:
        out = packer.compress(body)
        if not more:
            return out + packer.flush()
        # Each part goes out whole: a client waits for the line of progress or the batch in it.
        return out + (packer.flush(1) if encoding == "zstd" else packer.flush(zlib.Z_SYNC_FLUSH))

    return pack() if len(body) < _IN_A_THREAD else await anyio.to_thread.run_sync(pack)
