"""The words of a filter, with their places in its text."""

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
    | (?P<sign>!=|!~|=~|<=|>=|[=<>~(),.])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPED_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is text, number, name, sign or end; `text` is what it says, `unit` what follows a number."""

    kind: str
    text: str
    place: int
    unit: str = ""

    @property
    def shown(self) -> str:
        if self.kind == "end":
            return "the end"
        return repr(self.text[:_EXCERPT_CHARACTERS] + self.unit)


def raise_syntax_error(place: int, expected: str, found: str) -> NoReturn:
    """Raise what is wrong with a filter, and where."""
    raise CallerError(f"the filter is wrong at character {place + 1}: expected {expected}, found {found}")


def tokenize(text: str) -> list[Token]:
    """Split a filter into its words, the end last; CallerError names the place of what is none."""
    if not isinstance(text, str):
        raise CallerError(f"a filter is text, got {type(text).__name__}")
    if len(text) > MAX_CHARACTERS:
        raise CallerError(f"the filter has {len(text):,} characters; {MAX_CHARACTERS:,} is the most")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise_syntax_error(error.start, "text that UTF-8 can write", "half of a surrogate pair")
    found = []
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            place = end - len(text[place:end].lstrip())
            if text[place] in "\"'":
                raise_syntax_error(place, f"a closing {text[place]}", "the end")
            raise_syntax_error(
                place, "a field, a value or an operator", repr(text[place : place + _EXCERPT_CHARACTERS])
            )
        kind = str(match.lastgroup if match.lastgroup != "unit" else "number")
        word = match[kind]
        found.append(Token(kind, _unquoted(word) if kind == "text" else word, match.start(kind), match["unit"] or ""))
        place = match.end()
    found.append(Token("end", "", len(text)))
    return found


def _unquoted(word: str) -> str:
    r"""Take the quotes off. A backslash before anything but a quote, itself, n, t, r, u or U stands for itself: "\d+"."""

    def meant(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) > 1:
            number = int(code[1:], 16)
            return match[0] if 0xD800 <= number < 0xE000 or number > 0x10FFFF else chr(number)
        return _ESCAPED_CHARACTERS.get(code, match[0])

    return _ESCAPE.sub(meant, word[1:-1])
