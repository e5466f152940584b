"""Shell patterns as PostgreSQL's regular expressions, meaning exactly what SQLite's GLOB means by them."""

from __future__ import annotations

_NOTHING = "$.^"  # no text matches
_SPECIAL = frozenset("\\^$.|?*+()[]{}")


def glob_to_regex(pattern: str) -> str:
    """Return the expression that matches whole texts as the pattern does: * any letters, ? one, […] one of a set."""
    found, place = ["^"], 0
    while place < len(pattern):
        letter = pattern[place]
        place += 1
        if letter == "*":
            found.append(".*")
        elif letter == "?":
            found.append(".")
        elif letter == "[":
            end, expression = _set(pattern, place)
            if end is None:
                return _NOTHING  # a set that never ends matches nothing
            found.append(expression)
            place = end
        else:
            found.append(f"\\{letter}" if letter in _SPECIAL else letter)
    return "".join(found) + "$"


def _set(pattern: str, start: int) -> tuple[int | None, str]:
    """Read a set from after its bracket; return where it ends and its expression."""
    place = start
    negated = pattern[place : place + 1] in ("^", "!")
    place += negated
    first = place
    # A bracket that comes first stands for itself.
    end = pattern.find("]", first + 1)
    if first >= len(pattern) or end < 0:
        return None, ""
    inside = pattern[first:end]
    escaped = "".join(f"\\{letter}" if letter in "\\[]^" else letter for letter in inside)
    return end + 1, f"[{'^' if negated else ''}{escaped}]"
