"""Comparisons of one attribute value, kept as JSON text (see `crannog.traces.attribute_values`), as DuckDB's SQL.

Each function takes the SQL of the text, null if there is none, and gives an expression that is true if it meets the
comparison; anything else, null too, means no. Equality compares texts, which are written one way only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

from crannog.engine.duckdb.engine import literal
from crannog.traces.attribute_values import double_json, text_json
from crannog.traces.search.filter_tree import NEGATED_OPERATORS, Value
from crannog.traces.search.number_comparison import double_comparison, infinity_matches, integer_comparison
from crannog.traces.search_text import attribute_word

_REPEATED_KEY_PREFIX = '{"$each":['
_SCALAR_TEXT = re.compile(r"true|false|-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
_INTEGER_TEXT = re.compile(r"-?[0-9]+")
_MAX_WORDS = 8
_EXACT_INTEGERS_BELOW = 2**53
"""Below this a double tells whole numbers apart, and those beyond it stay beyond it."""
_INFINITY = {True: '{"$double":"Infinity"}', False: '{"$double":"-Infinity"}'}


def text_literal(value: str) -> str:
    """Return a text as SQL; a NUL, which would end the statement, as its number."""
    if "\0" not in value:
        return literal(value)
    return "(" + " || chr(0) || ".join(map(literal, value.split("\0"))) + ")"


def comparison(stored: str, operator: str, value: Value) -> str:
    """Return the comparison of a stored value with one that was asked for."""
    if operator in NEGATED_OPERATORS:
        return present_and_not(stored, comparison(stored, NEGATED_OPERATORS[operator], value))
    if operator == "=":
        return is_one_of(stored, [value])
    if operator == "is":
        return _with_repeated_key(
            stored,
            f"{stored} IN ({_text_literals(_stored_texts_read_as(str(value)))})",
            lambda last: _reads_as(last, str(value)),
        )
    request = value  # the closures below are called at once
    if isinstance(request, str):
        return _with_repeated_key(
            stored, _text_comparison(stored, operator, request), lambda last: _text_comparison(last, operator, request)
        )
    return _with_repeated_key(
        stored, _number_comparison(stored, operator, request), lambda last: _number_comparison(last, operator, request)
    )


def is_one_of(stored: str, values: Iterable[Value]) -> str:
    """Tell whether the stored value equals one of those asked for."""
    request = list(values)
    kept = [written for value in request for written in _stored_texts(value)]
    plain = (
        f"{stored} IN ({_text_literals(kept)})"
        if len(kept) > 1
        else f"{stored} = {text_literal(kept[0])}"
        if kept
        else "false"
    )
    return _with_repeated_key(stored, plain, lambda last: _equals_one(last, request))


def one_of_prefilter(stored: str, operator: str, values: Iterable[Value]) -> str:
    """Return a condition that holds wherever `=`, `in` or `is` does, and is cheap: what a key sent twice says is not read."""
    kept = [
        written
        for value in values
        for written in (_stored_texts_read_as(str(value)) if operator == "is" else _stored_texts(value))
    ]
    return f"{stored} IN ({_text_literals(kept)}) OR starts_with({stored}, {literal(_REPEATED_KEY_PREFIX)})"


def search_text_words(key: str, operator: str, values: Iterable[Value]) -> list[str] | None:
    """Return words of which a search blob holds one if its span has an attribute that meets `=`, `in` or `is`; None if none help."""
    if operator == "is":
        return [attribute_word(key, str(value)) for value in values]
    if operator not in ("=", "in"):
        return None
    found = [
        attribute_word(key, value if isinstance(value, str) else written)
        for value in values
        for written in ([value] if isinstance(value, str) else _stored_texts(value))
    ]
    return found if 0 < len(found) <= _MAX_WORDS else None


def present_and_not(stored: str, condition: str) -> str:
    return f"({stored} IS NOT NULL AND NOT coalesce({condition}, false))"


def _text_literals(values: Iterable[str]) -> str:
    return ", ".join(map(text_literal, values))


def _stored_texts(value: Value) -> list[str]:
    """Return every text that a value may be kept as."""
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, str):
        return [text_json(value)]
    found = []
    match integer_comparison("=", value):
        case "=", whole:
            found.append(str(whole))
    match double_comparison("=", value):
        case "=", double:
            found.append(double_json(double))
            if double == 0:
                found += [double_json(-math.copysign(0.0, double))]
    return found


def _stored_texts_read_as(value: str) -> list[str]:
    """Return the texts that a value which reads as `value` may be kept as."""
    return [text_json(value), *([value] if _SCALAR_TEXT.fullmatch(value) else [])]


# -- a key that was sent more than once: its last value counts -------------------------------------------------------


def _is_repeated_key(stored: str) -> str:
    return f"(starts_with({stored}, {literal(_REPEATED_KEY_PREFIX)}) AND len(json_keys({stored})) = 1)"


def _last_value(stored: str) -> str:
    return f"CAST(json_extract({stored}, '$.\"$each\"[#-1]') AS VARCHAR)"


def _with_repeated_key(stored: str, plain: str, of_last: Callable[[str], str]) -> str:
    return f"({plain} OR (CASE WHEN {_is_repeated_key(stored)} THEN {of_last(_last_value(stored))} ELSE false END))"


# -- values whose text another writer may have written, so they are compared by what they mean -----------------------


def _string(stored: str) -> str:
    return f"(CASE WHEN starts_with({stored}, '\"') THEN json_extract_string({stored}, '$') END)"


def _equals_one(stored: str, values: list[Value]) -> str:
    terms = []
    truths = [str(value).lower() for value in values if isinstance(value, bool)]
    if truths:
        terms.append(f"{stored} IN ({_text_literals(truths)})")
    texts = [value for value in values if isinstance(value, str)]
    if texts:
        terms.append(f"{_string(stored)} IN ({_text_literals(texts)})")
    numbers = [value for value in values if not isinstance(value, (bool, str))]
    if numbers:
        wholes = [
            found[1] for found in (integer_comparison("=", value) for value in numbers) if not isinstance(found, bool)
        ]
        doubles = [
            found[1] for found in (double_comparison("=", value) for value in numbers) if not isinstance(found, bool)
        ]
        as_whole = f"TRY_CAST({stored} AS BIGINT) IN ({', '.join(map(_bigint_literal, wholes))})" if wholes else "false"
        as_double = (
            f"TRY_CAST({stored} AS DOUBLE) IN ({', '.join(map(_double_literal, doubles))})" if doubles else "false"
        )
        terms.append(f"({_is_number(stored)} AND CASE WHEN {_is_double(stored)} THEN {as_double} ELSE {as_whole} END)")
    return "(" + " OR ".join(terms) + ")"


def _is_number(stored: str) -> str:
    # Numbers, and nothing else that is kept, begin with a minus or a digit.
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
    return f"({alike} OR ({_is_double(stored)} AND {sign} AND {_number_comparison(stored, '=', float(value))}))"


def _text_comparison(stored: str, operator: str, value: str) -> str:
    found = _string(stored)
    if operator == "=~":
        return f"regexp_matches({found}, {text_literal(value)})"
    if operator == "contains":
        return f"contains({found}, {text_literal(value)})"
    return f"({found} {operator} {text_literal(value)})"


def _number_comparison(stored: str, operator: str, value: Value) -> str:
    assert not isinstance(value, str)
    if -_EXACT_INTEGERS_BELOW < value < _EXACT_INTEGERS_BELOW:
        compared = f"TRY_CAST({stored} AS DOUBLE) {operator} {_double_literal(float(value))}"
    else:
        whole, double = integer_comparison(operator, value), double_comparison(operator, value)
        as_whole = (
            str(whole).lower()
            if isinstance(whole, bool)
            else f"TRY_CAST({stored} AS BIGINT) {whole[0]} {_bigint_literal(whole[1])}"
        )
        as_double = (
            str(double).lower()
            if isinstance(double, bool)
            else f"TRY_CAST({stored} AS DOUBLE) {double[0]} {_double_literal(double[1])}"
        )
        compared = f"CASE WHEN {_is_double(stored)} THEN {as_double} ELSE {as_whole} END"
    parts = [f"WHEN {_is_number(stored)} THEN {compared}"]
    for positive, kept in _INFINITY.items():
        if infinity_matches(operator, positive=positive):
            parts.append(f"WHEN {stored} = {literal(kept)} THEN true")
    return f"(CASE {' '.join(parts)} ELSE false END)"


def _bigint_literal(number: int) -> str:
    # The least one is not the negation of a 64-bit number.
    return f"CAST('{number}' AS BIGINT)"


def _double_literal(number: float) -> str:
    return f"CAST('{number!r}' AS DOUBLE)"
