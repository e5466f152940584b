"""How many messages a request of spans holds, counted in its bytes: an empty span takes two of them, and 250 once it is parsed."""

from __future__ import annotations

from typing import NamedTuple

from crannog.errors import CallerError, TooLarge
from crannog.formats.row_limits import count

ANY_BYTES = 1 << 20
"""A body of this size is not worth counting."""
_MOST, _BYTES_PER_MESSAGE = 1_000_000, 16
_LENGTH_DELIMITED, _VARINT, _FIXED = 2, 0, {1: 8, 5: 4}
_MAX_VARINT_BYTES = 10


class _Message(NamedTuple):
    """A type of message: the numbers of its fields that are messages, and their types."""

    fields: dict[int, _Message]


_ANY_VALUE = _Message({})
_KEY_VALUE = _Message({2: _ANY_VALUE})
_ANY_VALUE.fields.update({5: _Message({1: _ANY_VALUE}), 6: _Message({1: _KEY_VALUE})})
_SPAN = _Message({9: _KEY_VALUE, 11: _Message({3: _KEY_VALUE}), 13: _Message({4: _KEY_VALUE})})
_SCOPE_SPANS = _Message({1: _Message({3: _KEY_VALUE}), 2: _SPAN})
_REQUEST = _Message({1: _Message({1: _Message({1: _KEY_VALUE}), 2: _SCOPE_SPANS})})
# The bytes with which these fields begin, of all types; text has them, too.
_TAGS = tuple(bytes([number << 3 | _LENGTH_DELIMITED]) for number in (1, 2, 3, 4, 5, 6, 9, 11, 13))


def check_messages(body: bytes) -> None:
    """Raise TooLarge if a request in protobuf has more messages than may be parsed at once."""
    most = max(_MOST, len(body) // _BYTES_PER_MESSAGE)
    if sum(count(body, tag) for tag in _TAGS) <= most:
        return
    if _count(body, most) > most:
        raise TooLarge(
            f"the request has more than {most:,} spans, attributes, events and links, which is the limit for its size;"
            " send fewer spans at once"
        )


def _count(body: bytes, most: int) -> int:
    """Return the number of messages, or one that exceeds `most`. Bytes that are not valid end the count: the parser reports them."""
    found = 0
    waiting = [(0, len(body), _REQUEST)]
    try:
        while waiting and found <= most:
            at, end, kind = waiting.pop()
            while at < end and found <= most:
                tag, at = _varint(body, at)
                wire = tag & 7
                if wire == _LENGTH_DELIMITED:
                    size, at = _varint(body, at)
                    inner = kind.fields.get(tag >> 3)
                    if inner is not None:
                        found += inner is not _ANY_VALUE or kind is not _KEY_VALUE  # each attribute has one value
                        if size:
                            waiting.append((at, min(at + size, end), inner))
                    at += size
                elif wire == _VARINT:
                    _, at = _varint(body, at)
                else:
                    at += _FIXED[wire]
    except (IndexError, KeyError, CallerError):
        return found
    return found


def _varint(body: bytes, at: int) -> tuple[int, int]:
    byte = body[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for place in range(1, _MAX_VARINT_BYTES):
        byte = body[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise CallerError("a number has more than ten bytes")
