"""Cursors: the position where a page ends, as text that only the same search accepts."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from crannog.errors import CallerError

T = TypeVar("T")
_VERSION = 1
_SIGNATURE_BYTES = 8
_MAX_CHARACTERS = 2_000
_INVALID = "the cursor is not valid: use next_cursor or previous_cursor of a page, or start without a cursor"


@dataclass(frozen=True, slots=True)
class Position:
    """A position in sorted results: the sort value, and the id that separates equal values.

    `backward` asks for the results before it. `search_before` is for newest-first searches: no result after this
    position has a match that starts at or after that time.
    """

    value: int
    id: bytes
    backward: bool = False
    search_before: int | None = None


def encode(position: Position, digest: str) -> str:
    """Return a cursor for a position in the results of the search with this digest."""
    content = json.dumps(
        [_VERSION, position.value, position.id.hex(), int(position.backward), position.search_before],
        separators=(",", ":"),
    ).encode()
    return base64.urlsafe_b64encode(_signature(content, digest) + content).decode().rstrip("=")


def decode(cursor: str | None, digest: str, *, id_bytes: int) -> Position | None:
    """Return the position in a cursor. Raises CallerError if it is invalid or belongs to another search."""
    if cursor is None:
        return None
    if not isinstance(cursor, str) or not cursor or len(cursor) > _MAX_CHARACTERS:
        raise CallerError(_INVALID)
    try:
        data = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise CallerError(_INVALID) from None
    content = data[_SIGNATURE_BYTES:]
    if _signature(content, digest) != data[:_SIGNATURE_BYTES]:
        raise CallerError(
            "the cursor belongs to another search: repeat the search with the same filters and order,"
            " or start without a cursor"
        )
    # The signature only separates searches; it is no secret, so the content is checked like any other input.
    try:
        version, value, position_id, backward, search_before = json.loads(content)
        position = Position(value, bytes.fromhex(position_id), bool(backward), search_before)
    except (ValueError, TypeError, RecursionError):
        raise CallerError(_INVALID) from None
    if (
        version != _VERSION
        or len(position.id) != id_bytes
        or not _is_int64(value)
        or not (search_before is None or _is_int64(search_before))
    ):
        raise CallerError(
            "the cursor belongs to another kind of search or another version of Crannog; start without a cursor"
        )
    return position


def page_of(
    found: Sequence[T],
    limit: int,
    position: Position | None,
    position_of: Callable[[T], Position],
    digest: str,
    search_before: int | None = None,
) -> tuple[list[T], str | None, str | None]:
    """Return a page in its order, and the cursors of the next and the previous page, None where there is no such page.

    `found` has up to `limit + 1` results from `position` on, nearest first; `position_of` returns the position of one.
    """
    listed, has_more = list(found[:limit]), len(found) > limit
    backward = position is not None and position.backward
    if backward:
        listed.reverse()
    first, last = (position_of(listed[0]), position_of(listed[-1])) if listed else (position, position)
    next_cursor = previous_cursor = None
    if last is not None and (has_more or backward):
        next_cursor = encode(replace(last, backward=False, search_before=search_before), digest)
    if first is not None and (has_more if backward else position is not None):
        previous_cursor = encode(replace(first, backward=True, search_before=None), digest)
    return listed, next_cursor, previous_cursor


def _is_int64(number: object) -> bool:
    return type(number) is int and -(2**63) <= number < 2**63


def _signature(content: bytes, digest: str) -> bytes:
    return hashlib.sha256(digest.encode() + b"\0" + content).digest()[:_SIGNATURE_BYTES]
