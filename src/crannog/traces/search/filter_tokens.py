"""The tokens of a filter, with their positions in its text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from crannog.errors import CallerError

MAX_CHARACTERS = 65_536
_EXCERPT_CHARACTERS = 30

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)(?P<unit>[a-zA-Zµμ]+)?
    | (?P<name>[^\W\d](?:[\w\-/:@]|\.(?!["']))*)
    | (?P<symbol>!=|!~|=~|<=|>=|[=<>~(),.])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPED_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is text, number, name, symbol or end; `unit` is the unit after a number."""

    kind: str
    text: str
    position: int
    unit: str = ""

    @property
    def description(self) -> str:
        if self.kind == "end":
            return "the end"
        return repr(self.text[:_EXCERPT_CHARACTERS] + self.unit)


def raise_syntax_error(position: int, expected: str, found: str) -> NoReturn:
    """Raise a CallerError that names the position of a mistake in a filter."""
    raise CallerError(f"syntax error in the filter at character {position + 1}: expected {expected}, found {found}")


def tokenize(text: str) -> list[Token]:
    """Split a filter into tokens, the last of kind end. Raises CallerError at text that is no token."""
    if not isinstance(text, str):
        raise CallerError(f"a filter must be text, got {type(text).__name__}")
    if len(text) > MAX_CHARACTERS:
        raise CallerError(f"the filter has {len(text):,} characters; the limit is {MAX_CHARACTERS:,}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise_syntax_error(error.start, "text that UTF-8 can encode", "an unpaired surrogate")
    tokens = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            position = end - len(text[position:end].lstrip())
            if text[position] in "\"'":
                raise_syntax_error(position, f"a closing {text[position]}", "the end")
            raise_syntax_error(
                position, "a field, a value or an operator", repr(text[position : position + _EXCERPT_CHARACTERS])
            )
        kind = str(match.lastgroup if match.lastgroup != "unit" else "number")
        content = match[kind]
        tokens.append(
            Token(kind, _unquoted(content) if kind == "text" else content, match.start(kind), match["unit"] or "")
        )
        position = match.end()
    tokens.append(Token("end", "", len(text)))
    return tokens


def _unquoted(literal: str) -> str:
    r"""Remove the quotes and resolve escapes. A backslash that begins no known escape stays, as in "\d+"."""

    def unescaped(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) > 1:
            number = int(code[1:], 16)
            return match[0] if 0xD800 <= number < 0xE000 or number > 0x10FFFF else chr(number)
        return _ESCAPED_CHARACTERS.get(code, match[0])

    return _ESCAPE.sub(unescaped, literal[1:-1])
