"""Trace ids: bytes in the table, hexadecimal text for callers."""

from __future__ import annotations

import binascii

from crannog.errors import CallerError
from crannog.traces.ingest.span_validation import NO_TRACE_ID, TRACE_ID_BYTES


def parse_trace_id(text: str) -> bytes:
    """Parse a trace id of 32 hexadecimal digits, or of 16 if its first half is zero. Raises CallerError if it is invalid."""
    try:
        if not isinstance(text, str) or len(text) not in (16, 32):
            raise ValueError
        trace_id = binascii.unhexlify(text.rjust(32, "0"))
    except ValueError:
        raise CallerError(
            f"a trace id must have {2 * TRACE_ID_BYTES} (or 16) hexadecimal digits, got {repr(text)[:80]}"
        ) from None
    if trace_id == NO_TRACE_ID:
        raise CallerError("a trace id cannot be all zeros: such spans are rejected")
    return trace_id


def trace_id_high(trace_id: bytes) -> int:
    """Return the first eight bytes as a signed integer, as in the column `trace_hi`."""
    return int.from_bytes(trace_id[:8], signed=True)
