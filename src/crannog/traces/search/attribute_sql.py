"""DuckDB SQL that compares one attribute value, stored as JSON text (see `crannog.traces.attribute_values`).

Each function takes the SQL of that text, which is null if there is no such attribute, and returns an expression that is
true if the value meets the comparison, and false or null otherwise. Equal values have equal texts.
Integers and doubles are compared by value, as in Python, and never rounded: the bound to compare stored numbers with is
computed here, once, instead of for each row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from fractions import Fraction

from crannog.engine.duckdb.engine import literal
from crannog.traces.attribute_values import attribute_word, double_json, text_json
from crannog.traces.search.filter_tree import NEGATED_OPERATORS, Value

_REPEATED_KEY_PREFIX = '{"$each":['
_SCALAR_TEXT = re.compile(r"true|false|-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
_INTEGER_TEXT = re.compile(r"-?[0-9]+")
_MAX_WORDS = 8
_EXACT_INTEGERS_BELOW = 2**53
"""Doubles represent all integers below this exactly, and integers above it stay above it when rounded."""
_INFINITY = {True: '{"$double":"Infinity"}', False: '{"$double":"-Infinity"}'}


def text_literal(value: str) -> str:
    """Return a text as SQL. A NUL, which would end the statement, is written as its code."""
    if "\0" not in value:
        return literal(value)
    return "(" + " || chr(0) || ".join(map(literal, value.split("\0"))) + ")"


def comparison(stored: str, operator: str, value: Value) -> str:
    """Return the SQL that compares a stored value with `value`."""
    if operator in NEGATED_OPERATORS:
        return present_and_not(stored, comparison(stored, NEGATED_OPERATORS[operator], value))
    if operator == "=":
        return is_one_of(stored, [value])
    if operator == "is":
        texts = _text_literals(_stored_texts_read_as(str(value)))
        return _with_repeated_key(stored, f"{stored} IN ({texts})", lambda last: _reads_as(last, str(value)))

    def compare(text: str) -> str:
        return (
            _compared_text(text, operator, value) if isinstance(value, str) else _compared_number(text, operator, value)
        )

    return _with_repeated_key(stored, compare(stored), compare)


def is_one_of(stored: str, values: Iterable[Value]) -> str:
    """Return the SQL that is true if the stored value equals one of the values."""
    wanted = list(values)
    texts = [text for value in wanted for text in _stored_texts(value)]
    equals = f"{stored} IN ({_text_literals(texts)})" if texts else "false"
    if len(texts) == 1:
        equals = f"{stored} = {text_literal(texts[0])}"
    return _with_repeated_key(stored, equals, lambda last: _equals_one(last, wanted))


def one_of_prefilter(stored: str, operator: str, values: Iterable[Value]) -> str:
    """Return a cheaper condition that is true wherever `=`, `in` or `is` is true: it accepts every repeated key."""
    texts = [
        text
        for value in values
        for text in (_stored_texts_read_as(str(value)) if operator == "is" else _stored_texts(value))
    ]
    return f"{stored} IN ({_text_literals(texts)}) OR starts_with({stored}, {literal(_REPEATED_KEY_PREFIX)})"


def search_text_words(key: str, operator: str, values: Iterable[Value]) -> list[str] | None:
    """Return words of which the search text has one if the span has an attribute that meets `=`, `in` or `is`.

    None if the search text does not help: for other operators, or for too many words.
    """
    if operator == "is":
        return [attribute_word(key, str(value)) for value in values]
    if operator not in ("=", "in"):
        return None
    found = [
        attribute_word(key, value if isinstance(value, str) else text)
        for value in values
        for text in ([value] if isinstance(value, str) else _stored_texts(value))
    ]
    return found if 0 < len(found) <= _MAX_WORDS else None


def present_and_not(stored: str, condition: str) -> str:
    return f"({stored} IS NOT NULL AND NOT coalesce({condition}, false))"


def _text_literals(values: Iterable[str]) -> str:
    return ", ".join(map(text_literal, values))


def _stored_texts(value: Value) -> list[str]:
    """Return every text as which a value may be stored."""
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, str):
        return [text_json(value)]
    found = []
    match integer_comparison("=", value):
        case "=", integer:
            found.append(str(integer))
    match double_comparison("=", value):
        case "=", double:
            found.append(double_json(double))
            if double == 0:
                found += [double_json(-math.copysign(0.0, double))]
    return found


def _stored_texts_read_as(value: str) -> list[str]:
    """Return the texts as which a value that reads as `value` may be stored."""
    return [text_json(value), *([value] if _SCALAR_TEXT.fullmatch(value) else [])]


# -- repeated keys: the last value counts ----------------------------------------------------------------------------


def _is_repeated_key(stored: str) -> str:
    return f"(starts_with({stored}, {literal(_REPEATED_KEY_PREFIX)}) AND len(json_keys({stored})) = 1)"


def _last_value(stored: str) -> str:
    return f"CAST(json_extract({stored}, '$.\"$each\"[#-1]') AS VARCHAR)"


def _with_repeated_key(stored: str, condition: str, last_value_condition: Callable[[str], str]) -> str:
    return f"({condition} OR (CASE WHEN {_is_repeated_key(stored)} THEN {last_value_condition(_last_value(stored))} ELSE false END))"


# -- values inside a repeated key may be written in another way, so they are compared by meaning ---------------------


def _string(stored: str) -> str:
    return f"(CASE WHEN starts_with({stored}, '\"') THEN json_extract_string({stored}, '$') END)"


def _equals_one(stored: str, values: list[Value]) -> str:
    terms = []
    booleans = [str(value).lower() for value in values if isinstance(value, bool)]
    if booleans:
        terms.append(f"{stored} IN ({_text_literals(booleans)})")
    texts = [value for value in values if isinstance(value, str)]
    if texts:
        terms.append(f"{_string(stored)} IN ({_text_literals(texts)})")
    numbers = [value for value in values if not isinstance(value, (bool, str))]
    if numbers:
        as_integer = _is_number_in(stored, "BIGINT", [integer_comparison("=", value) for value in numbers])
        as_double = _is_number_in(stored, "DOUBLE", [double_comparison("=", value) for value in numbers])
        terms.append(
            f"({_is_number(stored)} AND CASE WHEN {_is_double(stored)} THEN {as_double} ELSE {as_integer} END)"
        )
    return "(" + " OR ".join(terms) + ")"


def _is_number_in(stored: str, kind: str, comparisons: Iterable[tuple[str, int | float] | bool]) -> str:
    listed = [_number_literal(found[1], kind) for found in comparisons if not isinstance(found, bool)]
    return f"TRY_CAST({stored} AS {kind}) IN ({', '.join(listed)})" if listed else "false"


def _is_number(stored: str) -> str:
    # Of all stored values, only numbers begin with a minus sign or a digit.
    return f"({stored} >= '-' AND {stored} < ':')"


def _is_double(stored: str) -> str:
    return f"regexp_matches({stored}, '[.eE]')"


def _reads_as(stored: str, value: str) -> str:
    alike = f"{_string(stored)} = {text_literal(value)}"
    if not _SCALAR_TEXT.fullmatch(value):
        return f"({alike})"
    if value in ("true", "false") or _INTEGER_TEXT.fullmatch(value):
        return f"({alike} OR {stored} = {text_literal(value)})"
    if not math.isfinite(float(value)) or double_json(float(value)) != value:
        return f"({alike})"
    sign = f"starts_with({stored}, '-') = {'true' if value.startswith('-') else 'false'}"
    return f"({alike} OR ({_is_double(stored)} AND {sign} AND {_compared_number(stored, '=', float(value))}))"


def _compared_text(stored: str, operator: str, value: str) -> str:
    found = _string(stored)
    if operator == "=~":
        return f"regexp_matches({found}, {text_literal(value)})"
    if operator == "contains":
        return f"contains({found}, {text_literal(value)})"
    return f"({found} {operator} {text_literal(value)})"


def _compared_number(stored: str, operator: str, value: Value) -> str:
    assert not isinstance(value, str)
    if -_EXACT_INTEGERS_BELOW < value < _EXACT_INTEGERS_BELOW:
        compared = _number_comparison(stored, "DOUBLE", (operator, float(value)))
    else:
        as_integer = _number_comparison(stored, "BIGINT", integer_comparison(operator, value))
        as_double = _number_comparison(stored, "DOUBLE", double_comparison(operator, value))
        compared = f"CASE WHEN {_is_double(stored)} THEN {as_double} ELSE {as_integer} END"
    parts = [f"WHEN {_is_number(stored)} THEN {compared}"]
    for positive, texts in _INFINITY.items():
        if infinity_matches(operator, positive=positive):
            parts.append(f"WHEN {stored} = {literal(texts)} THEN true")
    return f"(CASE {' '.join(parts)} ELSE false END)"


def _number_comparison(stored: str, kind: str, comparison: tuple[str, int | float] | bool) -> str:
    if isinstance(comparison, bool):
        return str(comparison).lower()
    operator, bound = comparison
    return f"TRY_CAST({stored} AS {kind}) {operator} {_number_literal(bound, kind)}"


def _number_literal(number: float, kind: str) -> str:
    # As text: the lowest 64-bit integer is not the negation of one.
    return f"CAST('{number!r}' AS {kind})"


_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
Number = int | float | Fraction


def integer_comparison(operator: str, number: Number) -> tuple[str, int] | bool:
    """Return the equivalent comparison with a 64-bit integer; True or False if all integers compare the same."""
    exact = Fraction(number)
    low, high = math.floor(exact), math.ceil(exact)
    if operator in ("=", "!="):
        if low != high or not _MIN_INT64 <= low <= _MAX_INT64:
            return operator == "!="
        return operator, low
    bound = low if operator in ("<=", ">") else high
    if bound > _MAX_INT64:
        return operator in ("<", "<=")
    if bound < _MIN_INT64:
        return operator in (">", ">=")
    return operator, bound


def double_comparison(operator: str, number: Number) -> tuple[str, float] | bool:
    """Return the equivalent comparison with a double; True or False if all finite doubles compare the same."""
    exact = Fraction(number)
    try:
        nearest = float(exact)
    except OverflowError:
        return operator == "!=" or (operator != "=" and (operator in ("<", "<=")) == (exact > 0))
    if Fraction(nearest) == exact:
        return operator, nearest
    if operator in ("=", "!="):
        return operator == "!="
    below = Fraction(nearest) < exact
    # The nearest double is on one side of the exact number, which decides whether it is included.
    if operator in ("<", "<="):
        return ("<=" if below else "<"), nearest
    return (">" if below else ">="), nearest


def infinity_matches(operator: str, *, positive: bool) -> bool:
    """Return whether an infinity meets a comparison with a finite number."""
    return operator == "!=" or (operator in (">", ">=") if positive else operator in ("<", "<="))
