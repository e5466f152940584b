"""Comparisons of one attribute value, kept as JSON text (see `crannog.traces.attribute_values`), as DuckDB's SQL.

Each function takes the SQL of the text, null if there is none, and gives an expression that is true if it meets the
comparison; anything else, null too, means no. Equality compares texts, which are written one way only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

from crannog.engine.duckdb.engine import literal
from crannog.traces.attribute_values import quoted, text_of_double
from crannog.traces.search.filter_tree import POSITIVE, Value
from crannog.traces.search.number_comparison import against_double, against_whole, is_above
from crannog.traces.search_text import attribute_word

_EACH = '{"$each":['
_PLAIN_TEXT = re.compile(r"true|false|-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
_WHOLE_TEXT = re.compile(r"-?[0-9]+")
_MOST_WORDS = 8
_EXACT = 2**53
"""Below this a double tells whole numbers apart, and those beyond it stay beyond it."""
_INFINITY = {True: '{"$double":"Infinity"}', False: '{"$double":"-Infinity"}'}


def text(value: str) -> str:
    """Return a text as SQL; a NUL, which would end the statement, as its number."""
    if "\0" not in value:
        return literal(value)
    return "(" + " || chr(0) || ".join(map(literal, value.split("\0"))) + ")"


def meets(stored: str, operator: str, value: Value) -> str:
    """Return the comparison of a stored value with one that was asked for."""
    if operator in POSITIVE:
        return present_but_not(stored, meets(stored, POSITIVE[operator], value))
    if operator == "=":
        return is_one_of(stored, [value])
    if operator == "is":
        return _with_each(
            stored, f"{stored} IN ({_texts(_as_kept(str(value)))})", lambda last: _is_alike(last, str(value))
        )
    asked = value  # the closures below are called at once
    if isinstance(asked, str):
        return _with_each(stored, _decoded(stored, operator, asked), lambda last: _decoded(last, operator, asked))
    return _with_each(stored, _ordered(stored, operator, asked), lambda last: _ordered(last, operator, asked))


def is_one_of(stored: str, values: Iterable[Value]) -> str:
    """Tell whether the stored value equals one of those asked for."""
    asked = list(values)
    kept = [written for value in asked for written in _written(value)]
    plain = f"{stored} IN ({_texts(kept)})" if len(kept) > 1 else f"{stored} = {text(kept[0])}" if kept else "false"
    return _with_each(stored, plain, lambda last: _equals_one(last, asked))


def may_be_one_of(stored: str, operator: str, values: Iterable[Value]) -> str:
    """Return a condition that holds wherever `=`, `in` or `is` does, and is cheap: what a key sent twice says is not read."""
    kept = [written for value in values for written in (_as_kept(str(value)) if operator == "is" else _written(value))]
    return f"{stored} IN ({_texts(kept)}) OR starts_with({stored}, {literal(_EACH)})"


def words_of(key: str, operator: str, values: Iterable[Value]) -> list[str] | None:
    """Return words of which a search blob holds one if its span has an attribute that meets `=`, `in` or `is`; None if none help."""
    if operator == "is":
        return [attribute_word(key, str(value)) for value in values]
    if operator not in ("=", "in"):
        return None
    found = [
        attribute_word(key, value if isinstance(value, str) else written)
        for value in values
        for written in ([value] if isinstance(value, str) else _written(value))
    ]
    return found if 0 < len(found) <= _MOST_WORDS else None


def present_but_not(stored: str, condition: str) -> str:
    return f"({stored} IS NOT NULL AND NOT coalesce({condition}, false))"


def _texts(values: Iterable[str]) -> str:
    return ", ".join(map(text, values))


def _written(value: Value) -> list[str]:
    """Return every text that a value may be kept as."""
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, str):
        return [quoted(value)]
    found = []
    match against_whole("=", value):
        case "=", whole:
            found.append(str(whole))
    match against_double("=", value):
        case "=", double:
            found.append(text_of_double(double))
            if double == 0:
                found += [text_of_double(-math.copysign(0.0, double))]
    return found


def _as_kept(value: str) -> list[str]:
    """Return the texts that a value which reads as `value` may be kept as."""
    return [quoted(value), *([value] if _PLAIN_TEXT.fullmatch(value) else [])]


# -- a key that was sent more than once: its last value counts -------------------------------------------------------


def _is_each(stored: str) -> str:
    return f"(starts_with({stored}, {literal(_EACH)}) AND len(json_keys({stored})) = 1)"


def _last_of(stored: str) -> str:
    return f"CAST(json_extract({stored}, '$.\"$each\"[#-1]') AS VARCHAR)"


def _with_each(stored: str, plain: str, of_last: Callable[[str], str]) -> str:
    return f"({plain} OR (CASE WHEN {_is_each(stored)} THEN {of_last(_last_of(stored))} ELSE false END))"


# -- values whose text another writer may have written, so they are compared by what they mean -----------------------


def _string(stored: str) -> str:
    return f"(CASE WHEN starts_with({stored}, '\"') THEN json_extract_string({stored}, '$') END)"


def _equals_one(stored: str, values: list[Value]) -> str:
    terms = []
    truths = [str(value).lower() for value in values if isinstance(value, bool)]
    if truths:
        terms.append(f"{stored} IN ({_texts(truths)})")
    texts = [value for value in values if isinstance(value, str)]
    if texts:
        terms.append(f"{_string(stored)} IN ({_texts(texts)})")
    numbers = [value for value in values if not isinstance(value, (bool, str))]
    if numbers:
        wholes = [found[1] for found in (against_whole("=", value) for value in numbers) if not isinstance(found, bool)]
        doubles = [
            found[1] for found in (against_double("=", value) for value in numbers) if not isinstance(found, bool)
        ]
        as_whole = f"TRY_CAST({stored} AS BIGINT) IN ({', '.join(map(_big, wholes))})" if wholes else "false"
        as_double = f"TRY_CAST({stored} AS DOUBLE) IN ({', '.join(map(_exact, doubles))})" if doubles else "false"
        terms.append(f"({_is_number(stored)} AND CASE WHEN {_is_double(stored)} THEN {as_double} ELSE {as_whole} END)")
    return "(" + " OR ".join(terms) + ")"


def _is_number(stored: str) -> str:
    # Numbers, and nothing else that is kept, begin with a minus or a digit.
    return f"({stored} >= '-' AND {stored} < ':')"


def _is_double(stored: str) -> str:
    return f"regexp_matches({stored}, '[.eE]')"


def _is_alike(stored: str, value: str) -> str:
    alike = f"{_string(stored)} = {text(value)}"
    if not _PLAIN_TEXT.fullmatch(value):
        return f"({alike})"
    if value in ("true", "false") or _WHOLE_TEXT.fullmatch(value):
        return f"({alike} OR {stored} = {text(value)})"
    if not math.isfinite(float(value)) or text_of_double(float(value)) != value:
        return f"({alike})"
    sign = f"starts_with({stored}, '-') = {'true' if value.startswith('-') else 'false'}"
    return f"({alike} OR ({_is_double(stored)} AND {sign} AND {_ordered(stored, '=', float(value))}))"


def _decoded(stored: str, operator: str, value: str) -> str:
    found = _string(stored)
    if operator == "=~":
        return f"regexp_matches({found}, {text(value)})"
    if operator == "contains":
        return f"contains({found}, {text(value)})"
    return f"({found} {operator} {text(value)})"


def _ordered(stored: str, operator: str, value: Value) -> str:
    assert not isinstance(value, str)
    if -_EXACT < value < _EXACT:
        compared = f"TRY_CAST({stored} AS DOUBLE) {operator} {_exact(float(value))}"
    else:
        whole, double = against_whole(operator, value), against_double(operator, value)
        as_whole = (
            str(whole).lower()
            if isinstance(whole, bool)
            else f"TRY_CAST({stored} AS BIGINT) {whole[0]} {_big(whole[1])}"
        )
        as_double = (
            str(double).lower()
            if isinstance(double, bool)
            else f"TRY_CAST({stored} AS DOUBLE) {double[0]} {_exact(double[1])}"
        )
        compared = f"CASE WHEN {_is_double(stored)} THEN {as_double} ELSE {as_whole} END"
    parts = [f"WHEN {_is_number(stored)} THEN {compared}"]
    for positive, kept in _INFINITY.items():
        if is_above(operator, positive=positive):
            parts.append(f"WHEN {stored} = {literal(kept)} THEN true")
    return f"(CASE {' '.join(parts)} ELSE false END)"


def _big(number: int) -> str:
    # The least one is not the negation of a 64-bit number.
    return f"CAST('{number}' AS BIGINT)"


def _exact(number: float) -> str:
    return f"CAST('{number!r}' AS DOUBLE)"
