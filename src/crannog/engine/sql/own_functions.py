"""Crannog's own SQL functions: plain SQL around the arguments, each used once, so that every engine runs the same.

`match_attr(search_blob, key, value)` tells whether a span has an attribute with this very value, as text: the blob
holds it as `|key=value|`, where a bar is written `\\p`, a backslash `\\\\`, and an equals sign in the key `\\e`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

# chr() instead of quoted backslashes, which the dialects read differently.
_BAR, _SLASH = "chr(124)", "chr(92)"
_ESCAPED = f"), {_SLASH}, {_SLASH} || {_SLASH}), {_BAR}, {_SLASH} || 'p')"

PIECES: Mapping[str, tuple[str, ...]] = {
    "match_attr": (
        "contains((",
        f"), {_BAR} || replace(replace(replace((",
        f"{_ESCAPED}, '=', {_SLASH} || 'e') || '=' || replace(replace((",
        f"{_ESCAPED} || {_BAR})",
    ),
}
"""The SQL before the first argument of each function, between the arguments, and after the last."""


def written(name: str, arguments: Sequence[str]) -> str:
    """Return the SQL of a call."""
    return "".join(part for pair in zip_longest(PIECES[name], arguments, fillvalue="") for part in pair)
