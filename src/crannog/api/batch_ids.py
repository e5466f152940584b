"""Batch ids: a batch that was already stored is recognized by its id, from any sender."""

from __future__ import annotations

import os
import time

from crannog.errors import CallerError

_LONGEST = 256


def new_batch_id() -> str:
    """Return a UUIDv7: unique, and later ones sort later."""
    stamp = time.time_ns() // 1_000_000
    value = stamp << 80 | 0x7 << 76 | int.from_bytes(os.urandom(10)) & 0x0FFF_3FFF_FFFF_FFFF_FFFF | 0x8 << 60
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def checked_batch_id(batch_id: str | None) -> str:
    """Return the batch id, or a new one if none is given. Raises CallerError if it is invalid."""
    if batch_id is None:
        return new_batch_id()
    if not isinstance(batch_id, str) or not batch_id or len(batch_id) > _LONGEST:
        raise CallerError(f"a batch id is text of 1 to {_LONGEST} characters, got {str(batch_id)[:80]!r}")
    return batch_id
