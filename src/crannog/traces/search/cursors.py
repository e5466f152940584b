"""Cursors: where a page ends, as text that only the same search takes back."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass

from crannog.errors import CallerError

_VERSION = 1
_SIGNATURE_BYTES = 8
_MAX_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class Position:
    """A place in an order: its value and the id that tells equal values apart. `backward` asks for what is before it.

    `top` is for a walk back in time: what comes after the place has no match at or after this time.
    """

    value: int
    id: bytes
    backward: bool = False
    top: int | None = None


def encode(position: Position, digest: str) -> str:
    """Return a cursor for a place in the results of the search with this digest."""
    content = json.dumps(
        [_VERSION, position.value, position.id.hex(), int(position.backward), position.top], separators=(",", ":")
    ).encode()
    return base64.urlsafe_b64encode(_signature(content, digest) + content).decode().rstrip("=")


def decode(cursor: str | None, digest: str, *, id_bytes: int) -> Position | None:
    """Return the place that a cursor tells; CallerError if it is none, or one of another search."""
    if cursor is None:
        return None
    if not isinstance(cursor, str) or not cursor or len(cursor) > _MAX_CHARACTERS:
        raise CallerError("the cursor is none that a page gave; start without one")
    try:
        data = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise CallerError("the cursor is none that a page gave; start without one") from None
    content = data[_SIGNATURE_BYTES:]
    if _signature(content, digest) != data[:_SIGNATURE_BYTES]:
        raise CallerError(
            "the cursor belongs to another search: ask with the same filters and order, or start without it"
        )
    # The signature tells searches apart and keeps no secret: what it says is checked as any text from outside.
    try:
        version, value, found, backward, top = json.loads(content)
        position = Position(value, bytes.fromhex(found), bool(backward), top)
    except (ValueError, TypeError):
        raise CallerError("the cursor is none that a page gave; start without one") from None
    if (
        version != _VERSION
        or len(position.id) != id_bytes
        or not _is_int64(value)
        or not (top is None or _is_int64(top))
    ):
        raise CallerError("the cursor is of another kind of search, or was made by another Crannog; start without it")
    return position


def _is_int64(number: object) -> bool:
    return type(number) is int and -(2**63) <= number < 2**63


def _signature(content: bytes, digest: str) -> bytes:
    return hashlib.sha256(digest.encode() + b"\0" + content).digest()[:_SIGNATURE_BYTES]
