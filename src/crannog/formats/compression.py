"""Decompresses bodies within a limit, so that a small body cannot become a huge one in memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from crannog.errors import CallerError, TooLarge
from crannog.missing import needed_for

ENCODINGS = ("gzip", "x-gzip", "deflate", "zstd")
UNCOMPRESSED = ("", "identity")

_OUTPUT_BYTES = 1 << 20
# In zstd a block of 128 KiB can take four bytes: small input chunks bound the output of each.
_INPUT_BYTES = 1 << 10
# With larger windows a few bytes could allocate gigabytes; zstd's --long=27 needs 128 MiB.
_MAX_WINDOW = 1 << 27


def decompressed(data: bytes, encoding: str, max_bytes: int) -> bytes:
    """Decompress one of ENCODINGS. Raises CallerError if it is damaged or truncated, TooLarge as soon as it exceeds the limit."""
    if not data:
        raise CallerError(f"the body is empty, which is not valid {encoding}; nothing of it was kept")
    steps = _from_zstd(data) if encoding == "zstd" else _from_zlib(data, encoding)
    out: list[bytes] = []
    size = 0
    try:
        for step in steps:
            size += len(step)
            if size > max_bytes:
                raise TooLarge(
                    f"the decompressed body has more than {max_bytes:,} bytes, which is the maximum; send it in parts"
                )
            out.append(step)
    except (zlib.error, EOFError, ValueError) as error:
        raise CallerError(
            f"the body of {len(data):,} bytes is not valid {encoding}: {str(error)[:100]}; nothing of it was kept"
        ) from None
    return b"".join(out)


def _from_zlib(data: bytes, encoding: str) -> Iterator[bytes]:
    window = 16 + zlib.MAX_WBITS
    if encoding == "deflate":
        # The standard means the zlib format, some clients send raw deflate: the first bytes tell.
        has_header = len(data) > 1 and data[0] & 0x0F == 8 and int.from_bytes(data[:2]) % 31 == 0
        window = zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS
    while data:
        unpacker = zlib.decompressobj(window)
        while not unpacker.eof:
            step = unpacker.decompress(data, _OUTPUT_BYTES)
            data = unpacker.unconsumed_tail
            if not step and not data and not unpacker.eof:
                raise EOFError("it ends in the middle")
            yield step
        data = unpacker.unused_data  # several compressed streams may follow one another


def _from_zstd(data: bytes) -> Iterator[bytes]:
    with needed_for("zstd"):
        import zstandard

    view, place = memoryview(data), 0
    try:
        while place < len(view):
            unpacker = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()
            while not unpacker.eof:
                if place >= len(view):
                    raise EOFError("it ends in the middle")
                bite = view[place : place + _INPUT_BYTES]
                place += len(bite)
                yield unpacker.decompress(bite)
            place -= len(unpacker.unused_data)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
