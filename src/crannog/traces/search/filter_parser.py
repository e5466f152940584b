"""The filter language: text to a tree.

    filter     = all { "or" all }
    all        = one { "and" one }
    one        = "not" one | "(" filter ")" | comparison
    comparison = field ( operator value | ["not"] "in" "(" value { "," value } ")" | "exists" )
    field      = a name of `FIELDS` | [ "span" | "resource" | "scope" | "event" | "link" "." ] key
    key        = letters, digits and . _ - / : @, or anything in quotes

Words of the language are read in any case. `error` and `root` may stand alone.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc

from crannog.errors import CallerError
from crannog.traces.ids import parse_trace_id
from crannog.traces.search.filter_tokens import Token, raise_syntax_error, tokenize
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
from crannog.traces.search.times import DURATION_UNITS_NS, parse_time
from crannog.traces.span_table import SPAN_KINDS
from crannog.traces.trace import STATUS_NAMES

MAX_DEPTH, MAX_COMPARISONS, MAX_VALUES = 64, 100, 1_000
_MAX_DIGITS = 40
_RESERVED = ("and", "or", "not", "in", "exists", "contains", "is", "true", "false")
_LEVELS = {level.value: level for level in (Level.SPAN, Level.RESOURCE, Level.SCOPE, Level.EVENT, Level.LINK)}
_SYMBOL_OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "=~", "!~", "~")


def parse_filter(text: str | None) -> Filter:
    """Read a filter; without one, everything. CallerError names the place of a mistake and what was expected there."""
    if text is None:
        return MATCH_ALL
    words = tokenize(text)
    return MATCH_ALL if len(words) == 1 else _Parser(words).whole()


def checked_pattern(pattern: str) -> str:
    """Return a regular expression that RE2 takes; CallerError says what it does not like."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        said = str(error).partition(": ")[2] or str(error)
        raise CallerError(f"{pattern[:80]!r} is no regular expression (RE2's): {said[:200]}") from None
    return pattern


class _Parser:
    def __init__(self, words: list[Token]) -> None:
        self._words = words
        self._place = 0
        self._terms = 0
        self._depth = 0

    @property
    def _now(self) -> Token:
        return self._words[self._place]

    def _next(self) -> Token:
        token = self._now
        self._place += 1
        return token

    def _is(self, word: str) -> bool:
        return self._now.kind == "name" and self._now.text.lower() == word

    def _take(self, kind: str, text: str) -> bool:
        token = self._now
        if token.kind == kind and (token.text.lower() if kind == "name" else token.text) == text:
            self._place += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._take("sign", sign):
            raise_syntax_error(self._now.place, repr(sign), self._now.shown)

    # -- logic -----------------------------------------------------------------------------------------------------

    def whole(self) -> Filter:
        found = self._any()
        if self._now.kind != "end":
            raise_syntax_error(self._now.place, "and, or, or the end", self._now.shown)
        return found

    def _any(self) -> Filter:
        terms = [self._all()]
        while self._take("name", "or"):
            terms.append(self._all())
        return terms[0] if len(terms) == 1 else Or(tuple(terms))

    def _all(self) -> Filter:
        terms = [self._one()]
        while self._take("name", "and"):
            terms.append(self._one())
        return terms[0] if len(terms) == 1 else And(tuple(terms))

    def _one(self) -> Filter:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CallerError(f"the filter is nested deeper than {MAX_DEPTH}, at character {self._now.place + 1}")
        try:
            if self._take("name", "not"):
                return Not(self._one())
            if self._take("sign", "("):
                inner = self._any()
                self._expect(")")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    # -- comparisons -----------------------------------------------------------------------------------------------

    def _comparison(self) -> Filter:
        self._terms += 1
        if self._terms > MAX_COMPARISONS:
            raise CallerError(f"the filter has more than {MAX_COMPARISONS:,} comparisons")
        field = self._field()
        token = self._now
        operator = self._operator(field)
        if operator == "exists":
            return Exists(field)
        if operator in ("in", "not in"):
            return OneOf(field, self._list(field), operator == "not in")
        if operator == "":
            return Compare(field, "=", True)
        if operator in ("<", "<=", ">", ">=") and self._is_truth():
            raise_syntax_error(token.place, "= or != before true and false", repr(operator))
        value_at = self._now
        value = self._value(field, operator)
        if operator in ("=~", "!~"):
            try:
                checked_pattern(str(value))
            except CallerError as error:
                raise CallerError(f"the filter is wrong at character {value_at.place + 1}: {error.message}") from None
        return Compare(field, operator, value)

    def _field(self) -> Field:
        token = self._next()
        if token.kind == "text":
            return Field(Level.ANY, token.text)
        if token.kind != "name" or token.text.lower() in _RESERVED:
            raise_syntax_error(token.place, "a field, an attribute's key, not or (", token.shown)
        level, dot, key = token.text.partition(".")
        if not dot and level in _LEVELS and self._take("sign", "."):  # span."any key"
            quoted = self._next()
            if quoted.kind != "text":
                raise_syntax_error(quoted.place, f"an attribute's key after {level}.", quoted.shown)
            key, dot = quoted.text, "."
        elif token.text == "event.name":
            return EVENT_NAME
        elif dot and not key:
            raise_syntax_error(token.place + len(level) + 1, f"an attribute's key after {level}.", self._now.shown)
        if dot and level in _LEVELS:
            return Field(_LEVELS[level], key)
        return FIELDS.get(token.text) or Field(Level.ANY, token.text)

    def _operator(self, field: Field) -> str:
        token = self._now
        alone = field.type is Type.TRUTH
        if alone and (token.kind == "end" or token.text == ")" or self._is("and") or self._is("or")):
            return ""
        self._place += 1
        word = token.text.lower() if token.kind == "name" else token.text
        if token.kind == "name" and word == "not":
            if not self._take("name", "in"):
                raise_syntax_error(self._now.place, "in after not", self._now.shown)
            word = "not in"
        known = token.kind in ("name", "sign") and (
            word in _SYMBOL_OPERATORS or word in ("in", "not in", "exists", "contains", "is")
        )
        if not known or word not in OPERATORS[field.type]:
            what = f"an operator that goes with {field.name}: " if known else "an operator: "
            raise_syntax_error(token.place, what + " ".join(OPERATORS[field.type]), token.shown)
        return word

    def _list(self, field: Field) -> tuple[Value, ...]:
        self._expect("(")
        values = [self._value(field, "in")]
        while self._take("sign", ","):
            values.append(self._value(field, "in"))
            if len(values) > MAX_VALUES:
                raise CallerError(f"a list of the filter has more than {MAX_VALUES:,} values")
        self._expect(")")
        return tuple(values)

    # -- values ----------------------------------------------------------------------------------------------------

    def _is_truth(self) -> bool:
        return self._is("true") or self._is("false")

    def _value(self, field: Field, operator: str) -> Value:
        token = self._now
        value = self._value_of(field, operator, token)
        if value is None:
            expected = (
                Type.TEXT.value + " in quotes" if operator in ("=~", "!~", "contains", "is") else field.type.value
            )
            raise_syntax_error(token.place, expected + (" in quotes" if expected == "text" else ""), token.shown)
        self._place += 1
        return value

    def _value_of(self, field: Field, operator: str, token: Token) -> Value | None:
        text = token.text if token.kind == "text" else None
        match field.type:
            case Type.TEXT | Type.WORDS:
                return text
            case Type.ATTRIBUTE if operator in ("=~", "!~", "contains", "is"):
                return text
            case Type.ATTRIBUTE:
                return text if text is not None else self._truth() if self._is_truth() else _number(token)
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
        return self._truth() if self._is_truth() else None

    def _truth(self) -> bool:
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
    found = token.text.upper() if token.kind in ("text", "name") else ""
    return found if found in names else None
