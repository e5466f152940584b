"""A statement as tokens: how Spark SQL is tokenized, and which tokens may be passed to Spark.

Spark is never given the caller's text, only the tokens that were checked here, so that a comment or a quote that two
lexers read differently cannot smuggle anything past the checks.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from crannog.errors import CallerError, Refused

MAX_NESTING = 200
MAX_TOKENS = 500_000
# A parser that goes back and tries again at every level takes exponential time; one that does not needs three steps a token.
_STEPS_PER_TOKEN, _FREE_STEPS = 40, 20_000
STRINGS = frozenset({TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.NATIONAL_STRING})
OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE})
CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END})
_STRING = re.compile(r"""[xXnN]?'(?:[^'\\]|\\.|'')*'|[xXnN]?"(?:[^"\\]|\\.|"")*"|[rR]'[^']*'|[rR]"[^"]*\"""", re.DOTALL)
# Texts count as one token each; a comment is counted by its words.
_ROUGH_TOKENS = re.compile(r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|\w++|[^\w\s]""", re.DOTALL)
_QUOTED_NAME = re.compile(r"`(?:[^`]|``)+`")
_PLAIN = re.compile(r"[^'\"`;\\]+")
_HINT = re.compile(r"/\*\+[\w\s,.()]*\*/", re.ASCII)
_WORD = re.compile(r"[^\W\d]\w*(?: [^\W\d]\w*)*")
# sqlglot prints what it cannot parse; the caller gets an error instead.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


class TooManySteps(Exception):
    """The parser goes back again and again: what it reads is not meant to be read."""


class CrannogSpark(Spark):  # type: ignore[misc]
    """Spark's dialect without translation: a call keeps its name and arguments, whatever they mean elsewhere."""

    class Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
        # A quote inside a string is doubled, or follows a backslash.
        STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]

    class Parser(Spark.Parser):  # type: ignore[misc]
        FUNCTIONS: ClassVar[dict[str, object]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, object]] = {
            **Spark.Parser.FUNCTION_PARSERS,
            "SUBSTR": lambda self: _substr(self),
        }
        steps = 0

        def _advance(self, times: int = 1) -> None:
            self.steps += 1
            if self.steps > _STEPS_PER_TOKEN * self._tokens_size + _FREE_STEPS:
                raise TooManySteps
            super()._advance(times)


def _substr(parser: Any) -> exp.Expression:
    """Keep how it was written: Spark shows `substr(x, 2)` as that, but `substr(x FROM 2)` as substring."""
    start = parser._index
    node: exp.Expression = parser._parse_substring()
    if not any(token.token_type is TokenType.FROM for token in parser._tokens[start : parser._index]):
        node.meta["name"] = "substr"
    return node


DIALECT = CrannogSpark()


def tokenize(text: str) -> tuple[Token, ...]:
    """Split a statement into tokens. Raises CallerError if that fails, Refused if they are too many or nested too deep."""
    # Takes a twentieth of the time that the tokens themselves take.
    if len(text) > MAX_TOKENS and sum(1 for _ in _ROUGH_TOKENS.finditer(text)) > MAX_TOKENS:
        raise Refused(
            f"the statement has more than {MAX_TOKENS:,} words, numbers and signs; put the values into a table and join it"
        )
    try:
        found = tuple(DIALECT.tokenize(text))
    except SqlglotError as error:
        raise CallerError(f"cannot read the statement: {first_line(error)}") from None
    while found and found[-1].token_type is TokenType.SEMICOLON:
        found = found[:-1]
    _check_depth(found)
    if any(token.token_type is TokenType.SEMICOLON for token in found):
        raise Refused("the text has several statements; send one at a time")
    return found


def _check_depth(found: Sequence[Token]) -> None:
    depth = 0
    for token in found:
        if token.token_type in OPENING:
            depth += 1
            if depth > MAX_NESTING:
                raise Refused(f"the statement is nested deeper than {MAX_NESTING} levels; use WITH to name its parts")
        elif token.token_type in CLOSING:
            depth = max(depth - 1, 0)


def word(token: Token) -> str:
    """Return a keyword or an unquoted name in upper case; empty for anything else."""
    if token.token_type in STRINGS or token.token_type is TokenType.IDENTIFIER:
        return ""
    text = str(token.text).upper()
    return text if _WORD.fullmatch(text) else ""


def is_name(token: Token) -> bool:
    """Whether a token may be (part of) a name: quoted, or a word."""
    return token.token_type is TokenType.IDENTIFIER or bool(word(token))


def checked_slice(text: str, token: Token) -> str:
    """Return a token's text. Raises Refused if it could be read in another way."""
    piece = text[token.start : token.end + 1]
    if token.token_type in STRINGS:
        right = _STRING.fullmatch(piece)
    elif token.token_type is TokenType.HINT:
        right = _HINT.fullmatch(piece)
    elif piece.startswith("`"):
        right = _QUOTED_NAME.fullmatch(piece)
    else:
        right = _PLAIN.fullmatch(piece) if "--" not in piece and "/*" not in piece else None
    if right is None:
        raise Refused(f"{piece[:60]!r} is ambiguous; write it in another way")
    return piece


def first_line(error: Exception) -> str:
    """Return the message of a parser error, without colours and excerpts."""
    message = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines()
    return (message[0] if message else "not SQL")[:300].rstrip(". ")
