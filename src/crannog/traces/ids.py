"""Ids of traces and spans: bytes in the table, lower-case hexadecimal for people."""

from __future__ import annotations

import binascii

from crannog.errors import CallerError
from crannog.traces.ingest.span_validation import NO_TRACE_ID, TRACE_ID_BYTES


def parse_trace_id(text: str) -> bytes:
    """Read a trace id: 32 hexadecimal digits, or the last 16 of one whose first half is zero; CallerError otherwise."""
    try:
        if not isinstance(text, str) or len(text) not in (16, 32):
            raise ValueError
        found = binascii.unhexlify(text.rjust(32, "0"))
    except ValueError:
        shown = repr(text)[:80]
        raise CallerError(f"a trace id has {2 * TRACE_ID_BYTES} hexadecimal digits (or 16), got {shown}") from None
    if found == NO_TRACE_ID:
        raise CallerError("a trace id is not all zero; such spans are never kept")
    return found


def trace_id_high(trace_id: bytes) -> int:
    """Return the first eight bytes as the signed number that `trace_hi` holds."""
    return int.from_bytes(trace_id[:8], signed=True)
