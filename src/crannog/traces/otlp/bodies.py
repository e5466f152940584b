"""The body of a request as it came over the wire: unpacked within a limit, so that no small one becomes a huge one."""

from __future__ import annotations

import io
import zlib

from crannog.errors import CallerError, TooLarge

_PLAIN = ("", "identity", "none")
_PIECE = 1024 * 1024
# Larger windows would let a few bytes ask for gigabytes; 128 MiB is what zstd's --long=27 needs.
_ZSTD_WINDOW = 2**27


def unpacked(body: bytes, encoding: str | None, limit: int) -> bytes:
    """Return the body without its content encoding.

    Raises CallerError if it is damaged or its encoding is unknown, TooLarge if it has more than `limit` bytes.
    """
    name = (encoding or "").strip().lower()
    if name in _PLAIN:
        found = body
    elif name in ("gzip", "x-gzip"):
        found = _inflated(body, 31, name, limit)
    elif name == "deflate":
        # By the standard it has zlib's header; some clients send it bare.
        has_header = len(body) > 1 and body[0] & 0x0F == 8 and int.from_bytes(body[:2]) % 31 == 0
        found = _inflated(body, 15 if has_header else -15, name, limit)
    elif name == "zstd":
        found = _zstd(body, limit)
    else:
        raise CallerError(f"content encoding {encoding!r} is not known; gzip, deflate, zstd and none are")
    if len(found) > limit:
        raise TooLarge(f"the request has more than {limit:,} bytes after unpacking, which is the most; send fewer spans at once")
    return bytes(found)


def _inflated(body: bytes, window: int, name: str, limit: int) -> bytes:
    out = bytearray()
    rest = body
    try:
        while rest:
            unpacker = zlib.decompressobj(window)
            out += unpacker.decompress(rest, limit + 1 - len(out))
            if len(out) > limit:
                return bytes(out)
            if not unpacker.eof:
                raise CallerError(f"the {name} body of {len(body):,} bytes ends too early; nothing of it was kept")
            rest = unpacker.unused_data  # gzip files may follow one another
    except zlib.error as error:
        raise CallerError(f"the body of {len(body):,} bytes is no {name} ({error}); nothing of it was kept") from None
    return bytes(out)


def _zstd(body: bytes, limit: int) -> bytes:
    import zstandard

    out = io.BytesIO()
    try:
        reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).stream_reader(body, read_across_frames=True)
        while piece := reader.read(min(_PIECE, limit + 1 - out.tell())):
            out.write(piece)
            if out.tell() > limit:
                return out.getvalue()
        # The reader is silent about an end that came too early; of what fits the limit, this is not.
        rest = body
        while rest:
            unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
            unpacker.decompress(rest)
            if not unpacker.eof:
                raise CallerError(f"the zstd body of {len(body):,} bytes ends too early; nothing of it was kept")
            rest = unpacker.unused_data
    except zstandard.ZstdError as error:
        raise CallerError(f"the body of {len(body):,} bytes is no zstd ({error}); nothing of it was kept") from None
    return out.getvalue()
