"""The DuckDB SQL of a filter over the columns of the span table. Every value is written as an escaped literal.

The condition may be null if a span lacks a field, which WHERE treats as false; `null_as_false` makes it false.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.duckdb.engine import literal
from crannog.traces.attribute_values import escaped_value
from crannog.traces.search import attribute_sql
from crannog.traces.search import filter_tree as tree
from crannog.traces.search.attribute_sql import integer_comparison, text_literal
from crannog.traces.search.filter_tree import Filter
from crannog.traces.span_table import ATTRIBUTE_MAPS, SPAN_KINDS
from crannog.traces.trace import ERROR_STATUS, STATUS_NAMES

COLUMNS = {
    "service": "service_name",
    "operation": "span_name",
    "scope": "scope_name",
    "status_message": "status_message",
    "input": "input",
    "output": "output",
    "model": "model",
    "provider": "provider",
    "session": "session_id",
    "user": "user_id",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "duration": "duration_ns",
    "start": "start_ns",
    "end": "end_ns",
    "trace_id": "trace_id",
    "span_id": "span_id",
    "parent_span_id": "parent_span_id",
}
"""Columns of the span table, by their names in the filter language."""

_SEARCHED_COLUMNS = ("search_blob", "input", "output")


def null_as_false(condition: str) -> str:
    """Return a condition that is false where the given one is null."""
    return f"coalesce({condition}, false)"


def prefilter_sql(filter: Filter) -> str:
    """Return a cheaper condition that every span that matches the filter meets too.

    A span's attribute is searched as a word of the search text, which costs a third of a lookup in the map.
    """
    match filter:
        case tree.And(terms):
            return "(" + " AND ".join(map(prefilter_sql, terms)) + ")" if terms else "true"
        case tree.Or(terms):
            return "(" + " OR ".join(map(prefilter_sql, terms)) + ")" if terms else "false"
        case tree.Compare(field, operator, value):
            return _attribute_prefilter(field, operator, (value,)) or condition_sql(filter)
        case tree.OneOf(field, values, False):
            return _attribute_prefilter(field, "in", values) or condition_sql(filter)
    return condition_sql(filter)


def _attribute_prefilter(field: tree.Field, operator: str, values: tuple[tree.Value, ...]) -> str | None:
    if field.type is not tree.Type.ATTRIBUTE or field.level not in (tree.Level.SPAN, tree.Level.ANY):
        return None
    words = attribute_sql.search_text_words(field.name, operator, values)
    if words is None:
        return None
    found = [f"contains(search_blob, {text_literal(word)})" for word in words]
    if field.level is tree.Level.ANY:
        for level in (tree.Level.RESOURCE, tree.Level.SCOPE):
            found.append(
                attribute_sql.one_of_prefilter(
                    f"{ATTRIBUTE_MAPS[level.value]}[{text_literal(field.name)}]", operator, values
                )
            )
    return "(" + " OR ".join(found) + ")"


def condition_sql(filter: Filter) -> str:
    """Return the condition that matching spans meet."""
    match filter:
        case tree.And(terms):
            return "(" + " AND ".join(map(condition_sql, terms)) + ")" if terms else "true"
        case tree.Or(terms):
            return "(" + " OR ".join(map(condition_sql, terms)) + ")" if terms else "false"
        case tree.Not(term):
            return f"(NOT {null_as_false(condition_sql(term))})"
        case tree.Exists(field):
            return _exists(field)
        case tree.OneOf(field, values, negated):
            return _one_of(field, values, negated=negated)
        case tree.Compare(field, operator, value):
            return _compare(field, operator, value)


def _exists(field: tree.Field) -> str:
    if field.level is tree.Level.COLUMN:
        return f"({COLUMNS[field.name]} IS NOT NULL)"
    return _any_value(field, lambda stored: f"({stored} IS NOT NULL)")


def _one_of(field: tree.Field, values: tuple[tree.Value, ...], *, negated: bool) -> str:
    if field.type is tree.Type.ATTRIBUTE:

        def condition(stored: str) -> str:
            found = attribute_sql.is_one_of(stored, values)
            return attribute_sql.present_and_not(stored, found) if negated else found

        return _any_value(field, condition)

    def of(stored: str) -> str:
        found = "(" + " OR ".join(_scalar(stored, field.type, "=", value) for value in values) + ")"
        if field.type in (tree.Type.TEXT, tree.Type.ID):
            found = f"({stored} IN ({', '.join(_literal(field.type, value) for value in values)}))"
        return attribute_sql.present_and_not(stored, found) if negated else found

    return _any_value(field, of) if field == tree.EVENT_NAME else of(_column(field))


def _compare(field: tree.Field, operator: str, value: tree.Value) -> str:
    match field.type:
        case tree.Type.ATTRIBUTE:
            return _any_value(field, lambda stored: attribute_sql.comparison(stored, operator, value))
        case tree.Type.WORDS:
            return _text_search(operator, str(value))
        case tree.Type.BOOLEAN:
            truth = (operator == "=") == value
            if field.name == "error":
                return f"(status_code {'=' if truth else '!='} {ERROR_STATUS})"
            return f"(parent_span_id IS {'' if truth else 'NOT '}NULL)"
    if field == tree.EVENT_NAME:
        return _any_value(field, lambda stored: _scalar(stored, tree.Type.TEXT, operator, value))
    return _scalar(_column(field), field.type, operator, value)


def _column(field: tree.Field) -> str:
    if field.type is tree.Type.KIND:
        return f"coalesce(span_kind, '{SPAN_KINDS[0]}')"
    return "status_code" if field.type is tree.Type.STATUS else COLUMNS[field.name]


def _scalar(stored: str, kind: tree.Type, operator: str, value: tree.Value) -> str:
    """Return the SQL that compares a stored value of a known type."""
    if kind in (tree.Type.NUMBER, tree.Type.DURATION, tree.Type.TIME):
        assert not isinstance(value, str)
        bound = integer_comparison(operator, value)
        if isinstance(bound, bool):
            return f"({stored} IS NOT NULL)" if bound else "false"
        return f"({stored} {bound[0]} {_integer_literal(bound[1])})"
    if operator in tree.NEGATED_OPERATORS:
        return attribute_sql.present_and_not(stored, _scalar(stored, kind, tree.NEGATED_OPERATORS[operator], value))
    if operator == "=~":
        return f"regexp_matches({stored}, {_literal(kind, value)})"
    if operator == "contains":
        return f"contains({stored}, {_literal(kind, value)})"
    return f"({stored} {'=' if operator == 'is' else operator} {_literal(kind, value)})"


def _integer_literal(number: int) -> str:
    return f"CAST('{number}' AS BIGINT)" if number == -(2**63) else str(number)


def _literal(kind: tree.Type, value: tree.Value) -> str:
    if kind is tree.Type.ID:
        return f"from_hex({literal(str(value))})"
    if kind is tree.Type.STATUS:
        return str(STATUS_NAMES.index(str(value)))
    return text_literal(str(value))


def _any_value(field: tree.Field, condition: Callable[[str], str]) -> str:
    """Return the SQL that is true if one of the values of a field meets a condition."""
    if field.level in (tree.Level.EVENT, tree.Level.LINK):
        stored = "e.name" if field == tree.EVENT_NAME else f"e.attributes[{text_literal(field.name)}]"
        return f"(len(list_filter({field.level.value}s, lambda e: {null_as_false(condition(stored))})) > 0)"
    maps = list(ATTRIBUTE_MAPS.values()) if field.level is tree.Level.ANY else [ATTRIBUTE_MAPS[field.level.value]]
    return "(" + " OR ".join(condition(f"{name}[{text_literal(field.name)}]") for name in maps) + ")"


def lower_case(words: str) -> str:
    """Return text in lower case, with the same rules as DuckDB."""
    return str(pc.utf8_lower(pa.scalar(words)).as_py())


def search_words(text: str) -> list[str]:
    """Return the words of a text search, each of which must occur somewhere in the span."""
    return lower_case(text).split()


def _text_search(operator: str, text: str) -> str:
    """Return the SQL of a text search in search text, input and output.

    `contains` finds the text as written, `~` finds each of its words in any case.
    """
    if operator == "contains":
        return _in_any_column(lambda column: f"contains({column}, {text_literal(_escaped_for(column, text))})")
    words = [_contains_word(word) for word in search_words(text)]
    return "(" + " AND ".join(words) + ")" if words else "true"


def _contains_word(word: str) -> str:
    return _in_any_column(
        lambda column: f"contains(lower({column}), {text_literal(lower_case(_escaped_for(column, word)))})"
    )


def _in_any_column(condition: Callable[[str], str]) -> str:
    return "(" + " OR ".join(map(condition, _SEARCHED_COLUMNS)) + ")"


def _escaped_for(column: str, text: str) -> str:
    return escaped_value(text) if column == "search_blob" else text
