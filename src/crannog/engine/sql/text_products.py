"""Checks functions that multiply text, or make arrays, by numbers that stand in the statement.

`repeat('x', 1000000000)` takes gigabytes on Spark's driver before any row is read. A number that is computed cannot be
seen here: then the memory of Spark's process is the limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot.tokens import Token, TokenType

from crannog.engine.sql.tokens import CLOSING, OPENING, STRINGS
from crannog.errors import Refused

LARGEST = 64 * 1024**2
# The position of the number among the arguments.
_TIMES = {"repeat": 1, "array_repeat": 1}
_LENGTHS = {"space": 0, "lpad": 1, "rpad": 1, "randstr": 0}
_FORMATS = {"format_string", "printf"}
_REPLACES, _COUNTS = "replace", "sequence"
MULTIPLYING = frozenset({*_TIMES, *_LENGTHS, *_FORMATS, _REPLACES, _COUNTS})
_WIDTH = re.compile(r"%[-+ 0,#(\d$]*?(\d{5,})")


@dataclass
class _Call:
    name: str
    end: int
    arguments: list[Sequence[Token]]
    inner: int = 1


def check_products(tokens: Sequence[Token], calls: Iterator[tuple[int, str]]) -> None:
    """Raise Refused for a call that would make a value larger than the limit; `calls` are the places of all calls."""
    outer: list[_Call] = []
    for place, name in calls:
        if name in MULTIPLYING:
            _close(outer, place)
            outer.append(_Call(name, *_arguments(tokens, place + 1)))
    _close(outer, len(tokens))


def _close(calls: list[_Call], place: int) -> None:
    """Check the calls that end before a place, the innermost first."""
    while calls and calls[-1].end < place:
        call = calls.pop()
        size = _size(call)
        if size > LARGEST:
            raise Refused(
                f"{call.name} would make a value of {size:,} bytes or elements here; the maximum is {LARGEST:,}."
                " Make it smaller"
            )
        if calls:
            calls[-1].inner = max(calls[-1].inner, size)


def _size(call: _Call) -> int:
    texts = [_text(argument) for argument in call.arguments]
    base = max(call.inner, len(texts[0]) if texts else 0, 1)
    if call.name in _TIMES:
        return base * max(_number(call.arguments, _TIMES[call.name]), 1)
    if call.name in _LENGTHS:
        return max(_number(call.arguments, _LENGTHS[call.name]), call.inner)
    if call.name in _FORMATS:
        return max([base, *map(int, _WIDTH.findall(texts[0] if texts else ""))])
    if call.name == _COUNTS:
        first, last = _number(call.arguments, 0), _number(call.arguments, 1)
        step = abs(_number(call.arguments, 2)) or 1
        return max(abs(last - first) // step, call.inner) if len(call.arguments) > 1 else call.inner
    old, new = (len(text) for text in (*texts[1:3], "", "")[:2])
    return base * max(new // max(old, 1), 1)


def _number(arguments: list[Sequence[Token]], place: int) -> int:
    """Return an argument that is a whole number, with a sign or without; 0 for anything else."""
    argument = arguments[place] if place < len(arguments) else ()
    sign = -1 if len(argument) == 2 and argument[0].token_type is TokenType.DASH else 1
    if len(argument) != (1 if sign > 0 else 2) or argument[-1].token_type is not TokenType.NUMBER:
        return 0
    digits = re.match(r"\d{1,18}", str(argument[-1].text).replace("_", ""))
    return sign * int(digits[0]) if digits else 0


def _text(argument: Sequence[Token]) -> str:
    return str(argument[0].text) if len(argument) == 1 and argument[0].token_type in STRINGS else ""


def _arguments(tokens: Sequence[Token], opening: int) -> tuple[int, list[Sequence[Token]]]:
    """Return the place of the closing parenthesis of a call, and the tokens of each argument."""
    found: list[Sequence[Token]] = []
    depth, start = 0, opening + 1
    for place in range(opening, len(tokens)):
        kind = tokens[place].token_type
        depth += (kind in OPENING) - (kind in CLOSING)
        if (depth == 1 and kind is TokenType.COMMA) or not depth:
            found.append(tokens[start:place])
            start = place + 1
        if not depth:
            return place, found
    return len(tokens), found
