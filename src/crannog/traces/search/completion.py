"""What to type next: services, operations, attribute keys and values that stand in the spans of a filter.

Names of services and operations are looked for everywhere. Keys and values, which cost more, in the newest spans first
and further back only while too few were found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from crannog.api.traces import Suggestion
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.errors import CallerError
from crannog.traces.attribute_values import to_python
from crannog.traces.search.attribute_sql import text_literal
from crannog.traces.search.filter_parser import parse_filter
from crannog.traces.search.filter_sql import COLUMNS, condition_sql
from crannog.traces.search.filter_tree import FIELDS, Exists, Field, Filter, Level, Type
from crannog.traces.search.pruning import pruning_conditions, start_bounds
from crannog.traces.search.snapshot_reader import SnapshotReader, open_reader, start_between
from crannog.traces.search.time_histogram import EARLIEST

KINDS = ("service", "operation", "key", "value")
_FIRST_STEP_ROWS, _MAX_ROWS = 50_000, 250_000
_GROWTH = 4
_MAX_COUNTED = 10_000
_MAPS = {"span": "attributes", "resource": "resource_attributes", "scope": "scope_attributes"}
_NESTED = {"event": "events", "link": "links"}
_UNQUOTED_KEY = re.compile(r"[^\W\d](?:[\w\-/:@]|\.)*")


def complete(
    table: OpenTable, kind: str, prefix: str, *, key: str | None, filter: Filter, limit: int
) -> list[Suggestion]:
    """Return up to `limit` suggestions that begin with `prefix`, the most frequent first; counts are of the spans looked at."""
    if kind not in KINDS:
        raise CallerError(f"what to complete is one of {', '.join(KINDS)}, got {kind!r}")
    if not isinstance(prefix, str):
        raise CallerError(f"a prefix is text, got {type(prefix).__name__}")
    if kind == "value":
        field = value_field(key)
        return table.newest(lambda of: _counted_in_steps(table, of, filter, limit, _value_query(field, prefix)))
    if kind == "key":
        return table.newest(lambda of: _counted_in_steps(table, of, filter, limit, _key_query(prefix)))
    return table.newest(lambda of: _service_or_operation_names(table, of, kind, prefix, filter, limit))


def value_field(key: str | None) -> Field:
    """Return the field whose values are asked for: an attribute's key as in a filter, or a field of text."""
    if not isinstance(key, str) or not key:
        raise CallerError('give the key whose values are asked for: key="http.method"')
    if key in FIELDS:
        if FIELDS[key].type is not Type.TEXT:
            raise CallerError(f"{key} has no values to choose from: it is {FIELDS[key].type.value}")
        return FIELDS[key]
    written = key if _UNQUOTED_KEY.fullmatch(key) or '"' in key else '"' + key + '"'
    found = parse_filter(f"{written} exists")
    assert isinstance(found, Exists)
    return found.field


def _service_or_operation_names(
    table: OpenTable, snapshot: Snapshot, kind: str, prefix: str, filter: Filter, limit: int
) -> list[Suggestion]:
    column = COLUMNS[kind]
    with open_reader(table, snapshot) as reader:
        found = reader.query(
            f"SELECT {column} AS value, count(*) AS count FROM {reader.rows(pruning_conditions(filter))}"
            f" WHERE starts_with({column}, {text_literal(prefix)}) AND {condition_sql(filter)}"
            f" GROUP BY value ORDER BY count DESC, value LIMIT {limit}"
        )
    return [Suggestion(row["value"], row["count"]) for row in found.to_pylist()]


def _counted_in_steps(
    table: OpenTable, snapshot: Snapshot, filter: Filter, limit: int, query: Callable[[str], str]
) -> list[Suggestion]:
    """Ask about newer spans first, then about older ones, until enough was found or enough was looked at."""
    counts: Counter[Any] = Counter()
    with open_reader(table, snapshot) as reader:
        for rows in _newest_rows_first(reader, filter):
            found = reader.query(
                f"SELECT value, count(*) AS count FROM ({query(rows)}) GROUP BY value ORDER BY count DESC LIMIT {_MAX_COUNTED}"
            )
            for row in found.to_pylist():
                counts[row["value"]] += row["count"]
            if len(counts) >= limit:
                break
    listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return [Suggestion(to_python(value[1:]) if value.startswith("=") else value[1:], count) for value, count in listed]


def _newest_rows_first(open_reader: SnapshotReader, filter: Filter) -> Iterator[str]:
    spread = open_reader.time_histogram(filter)
    earliest, latest = start_bounds(filter)
    low, high = max(spread.low, earliest), min(spread.high, latest)
    rows, looked_at = _FIRST_STEP_ROWS, 0
    while low <= high and looked_at < _MAX_ROWS:
        since = max(low, spread.before(high + 1, rows))
        source = open_reader.rows([*pruning_conditions(filter), *start_between(since, high)])
        yield f"SELECT * FROM {source} WHERE start_ns >= {max(since, EARLIEST)} AND start_ns <= {high} AND {condition_sql(filter)}"
        looked_at += rows
        high, rows = since - 1, rows * _GROWTH


def _key_query(prefix: str) -> Callable[[str], str]:
    """Return the query for keys; a prefix that names a level asks for that level's, and gives them with its name."""
    level, dot, rest = prefix.partition(".")
    levels = [level] if dot and level in (*_MAPS, *_NESTED) else list(_MAPS)
    start, said = (rest, level + ".") if len(levels) == 1 else (prefix, "")

    def query(rows: str) -> str:
        parts = []
        for each in levels:
            if each in _MAPS:
                parts.append(f"SELECT unnest(map_keys({_MAPS[each]})) AS key FROM ({rows})")
            else:
                parts.append(
                    f"SELECT unnest(map_keys(e.attributes)) AS key FROM (SELECT unnest({_NESTED[each]}) AS e FROM ({rows}))"
                )
        return f"SELECT ':{said}' || key AS value FROM ({' UNION ALL '.join(parts)}) WHERE starts_with(key, {text_literal(start)})"

    return query


def _value_query(field: Field, prefix: str) -> Callable[[str], str]:
    """Return the query for the values of a field; of an attribute, those whose text begins with the prefix."""

    def query(rows: str) -> str:
        if field.level is Level.COLUMN:
            column = COLUMNS[field.name]
            return f"SELECT ':' || {column} AS value FROM ({rows}) WHERE starts_with({column}, {text_literal(prefix)})"
        if field.type is Type.TEXT:
            named = f"SELECT e.name AS name FROM (SELECT unnest(events) AS e FROM ({rows}))"
            return f"SELECT ':' || name AS value FROM ({named}) WHERE starts_with(name, {text_literal(prefix)})"
        parts = []
        for level, column in {**_MAPS, **_NESTED}.items():
            if field.level.value not in (level, "any" if level in _MAPS else level):
                continue
            source = (
                f"({rows})"
                if level in _MAPS
                else f"(SELECT e.attributes FROM (SELECT unnest({column}) AS e FROM ({rows})))"
            )
            parts.append(
                f"SELECT {column if level in _MAPS else 'attributes'}[{text_literal(field.name)}] AS v FROM {source}"
            )
        shown = "CASE WHEN starts_with(v, '\"') THEN json_extract_string(v, '$') ELSE v END"
        return f"SELECT '=' || v AS value FROM ({' UNION ALL '.join(parts)}) WHERE v IS NOT NULL AND starts_with({shown}, {text_literal(prefix)})"

    return query
