"""The parser of the filter language.

    filter     = and { "or" and }
    and        = term { "and" term }
    term       = "not" term | "(" filter ")" | comparison
    comparison = field ( operator value | ["not"] "in" "(" value { "," value } ")" | "exists" )
    field      = a name in `FIELDS` | [ "span" | "resource" | "scope" | "event" | "link" "." ] key
    key        = letters, digits and . _ - / : @, or anything in quotes

Keywords are case-insensitive. `error` and `root` need no operator.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from crannog.errors import CallerError
from crannog.traces.search.filter_tree import (
    EVENT_NAME,
    FIELDS,
    MATCH_ALL,
    OPERATORS,
    And,
    Compare,
    Exists,
    Field,
    Filter,
    Level,
    Not,
    OneOf,
    Or,
    Type,
    Value,
)
from crannog.traces.span_table import SPAN_KINDS, parse_trace_id
from crannog.traces.times import DURATION_UNITS_NS, parse_time
from crannog.traces.trace import STATUS_NAMES

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


MAX_DEPTH, MAX_COMPARISONS, MAX_VALUES = 64, 100, 1_000
_MAX_DIGITS = 40
_RESERVED = ("and", "or", "not", "in", "exists", "contains", "is", "true", "false")
_LEVELS = {level.value: level for level in (Level.SPAN, Level.RESOURCE, Level.SCOPE, Level.EVENT, Level.LINK)}
_SYMBOL_OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "=~", "!~", "~")


def parse_filter(text: str | None) -> Filter:
    """Parse a filter; None matches everything. Raises CallerError with the position of a mistake and what to put there."""
    if text is None:
        return MATCH_ALL
    tokens = tokenize(text)
    return MATCH_ALL if len(tokens) == 1 else _Parser(tokens).parse()


def checked_pattern(pattern: str) -> str:
    """Return the pattern. Raises CallerError if RE2 does not accept it."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).partition(": ")[2] or str(error)
        raise CallerError(f"{pattern[:80]!r} is not a valid RE2 regular expression: {reason[:200]}") from None
    return pattern


def _raise_unexpected(token: Token, expected: str) -> NoReturn:
    raise_syntax_error(token.position, expected, token.description)


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._comparisons = 0
        self._depth = 0

    @property
    def _current(self) -> Token:
        return self._tokens[self._position]

    def _advance(self) -> Token:
        token = self._current
        self._position += 1
        return token

    def _is(self, word: str) -> bool:
        return self._current.kind == "name" and self._current.text.lower() == word

    def _take(self, kind: str, text: str) -> bool:
        token = self._current
        if token.kind == kind and (token.text.lower() if kind == "name" else token.text) == text:
            self._position += 1
            return True
        return False

    def _expect(self, symbol: str) -> None:
        if not self._take("symbol", symbol):
            _raise_unexpected(self._current, repr(symbol))

    # -- logic -----------------------------------------------------------------------------------------------------

    def parse(self) -> Filter:
        tree = self._disjunction()
        if self._current.kind != "end":
            _raise_unexpected(self._current, "and, or, or the end")
        return tree

    def _disjunction(self) -> Filter:
        terms = [self._conjunction()]
        while self._take("name", "or"):
            terms.append(self._conjunction())
        return terms[0] if len(terms) == 1 else Or(tuple(terms))

    def _conjunction(self) -> Filter:
        terms = [self._term()]
        while self._take("name", "and"):
            terms.append(self._term())
        return terms[0] if len(terms) == 1 else And(tuple(terms))

    def _term(self) -> Filter:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CallerError(
                f"the filter is nested more than {MAX_DEPTH} levels deep, at character {self._current.position + 1}"
            )
        try:
            if self._take("name", "not"):
                return Not(self._term())
            if self._take("symbol", "("):
                inner = self._disjunction()
                self._expect(")")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    # -- comparisons -----------------------------------------------------------------------------------------------

    def _comparison(self) -> Filter:
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            raise CallerError(f"the filter has more than {MAX_COMPARISONS:,} comparisons, which is the limit")
        field = self._field()
        token = self._current
        operator = self._operator(field)
        if operator == "exists":
            return Exists(field)
        if operator in ("in", "not in"):
            return OneOf(field, self._list(field), operator == "not in")
        if operator == "":
            return Compare(field, "=", True)
        if operator in ("<", "<=", ">", ">=") and self._is_boolean():
            raise_syntax_error(token.position, "= or != before true and false", repr(operator))
        value_token = self._current
        value = self._value(field, operator)
        if operator in ("=~", "!~"):
            try:
                checked_pattern(str(value))
            except CallerError as error:
                raise CallerError(
                    f"syntax error in the filter at character {value_token.position + 1}: {error.message}"
                ) from None
        return Compare(field, operator, value)

    def _field(self) -> Field:
        token = self._advance()
        if token.kind == "text":
            return Field(Level.ANY, token.text)
        if token.kind != "name" or token.text.lower() in _RESERVED:
            _raise_unexpected(token, "a field, an attribute key, not or (")
        level, dot, key = token.text.partition(".")
        if not dot and level in _LEVELS and self._take("symbol", "."):  # span."any key"
            quoted = self._advance()
            if quoted.kind != "text":
                _raise_unexpected(quoted, f"an attribute key after {level}.")
            key, dot = quoted.text, "."
        elif token.text == "event.name":
            return EVENT_NAME
        elif dot and not key:
            raise_syntax_error(
                token.position + len(level) + 1, f"an attribute key after {level}.", self._current.description
            )
        if dot and level in _LEVELS:
            return Field(_LEVELS[level], key)
        return FIELDS.get(token.text) or Field(Level.ANY, token.text)

    def _operator(self, field: Field) -> str:
        token = self._current
        needs_no_operator = field.type is Type.BOOLEAN
        if needs_no_operator and (token.kind == "end" or token.text == ")" or self._is("and") or self._is("or")):
            return ""
        self._position += 1
        word = token.text.lower() if token.kind == "name" else token.text
        if token.kind == "name" and word == "not":
            if not self._take("name", "in"):
                _raise_unexpected(self._current, "in after not")
            word = "not in"
        known = token.kind in ("name", "symbol") and (
            word in _SYMBOL_OPERATORS or word in ("in", "not in", "exists", "contains", "is")
        )
        if not known or word not in OPERATORS[field.type]:
            what = f"an operator for {field.name}: " if known else "an operator: "
            _raise_unexpected(token, what + " ".join(OPERATORS[field.type]))
        return word

    def _list(self, field: Field) -> tuple[Value, ...]:
        self._expect("(")
        values = [self._value(field, "in")]
        while self._take("symbol", ","):
            values.append(self._value(field, "in"))
            if len(values) > MAX_VALUES:
                raise CallerError(f"a list in the filter has more than {MAX_VALUES:,} values, which is the limit")
        self._expect(")")
        return tuple(values)

    # -- values ----------------------------------------------------------------------------------------------------

    def _is_boolean(self) -> bool:
        return self._is("true") or self._is("false")

    def _value(self, field: Field, operator: str) -> Value:
        token = self._current
        value = self._value_of(field, operator, token)
        if value is None:
            expected = (
                Type.TEXT.value + " in quotes" if operator in ("=~", "!~", "contains", "is") else field.type.value
            )
            _raise_unexpected(token, expected + (" in quotes" if expected == "text" else ""))
        self._position += 1
        return value

    def _value_of(self, field: Field, operator: str, token: Token) -> Value | None:
        text = token.text if token.kind == "text" else None
        match field.type:
            case Type.TEXT | Type.WORDS:
                return text
            case Type.ATTRIBUTE if operator in ("=~", "!~", "contains", "is"):
                return text
            case Type.ATTRIBUTE:
                return text if text is not None else self._boolean() if self._is_boolean() else _number(token)
            case Type.NUMBER:
                return _number(token)
            case Type.DURATION:
                return _duration(token)
            case Type.TIME:
                return parse_time(text, "a time in a filter") if text is not None else _integer(token)
            case Type.ID:
                return _id(field, text)
            case Type.KIND:
                return _enum_name(token, SPAN_KINDS)
            case Type.STATUS:
                return _enum_name(token, STATUS_NAMES)
        return self._boolean() if self._is_boolean() else None

    def _boolean(self) -> bool:
        return self._is("true")


def _number(token: Token) -> int | float | None:
    if token.kind != "number" or token.unit or len(token.text) > _MAX_DIGITS:
        return None
    if token.text.lstrip("+-").isdigit():
        return int(token.text)
    number = float(token.text)
    return number if math.isfinite(number) else None


def _integer(token: Token) -> int | None:
    number = _number(token)
    return number if isinstance(number, int) else None


def _duration(token: Token) -> int | Fraction | None:
    if token.kind != "number" or token.unit not in DURATION_UNITS_NS or len(token.text) > _MAX_DIGITS:
        return None
    number = Decimal(token.text)
    if abs(number.adjusted()) > _MAX_DIGITS:
        return None
    exact = Fraction(number) * DURATION_UNITS_NS[token.unit]
    return int(exact) if exact.denominator == 1 else exact


def _id(field: Field, text: str | None) -> str | None:
    if text is None:
        return None
    if field.name == "trace_id":
        return parse_trace_id(text).hex()
    try:
        return bytes.fromhex(text).hex() if len(text) == 16 else None
    except ValueError:
        return None


def _enum_name(token: Token, names: tuple[str, ...]) -> str | None:
    name = token.text.upper() if token.kind in ("text", "name") else ""
    return name if name in names else None
