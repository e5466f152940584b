"""Filters of rows by their columns, as pages and facets take them: typed and checked, then SQL with parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crannog.api.table_requests import MAX_FILTERS, MAX_IN_VALUES, OPERATORS
from crannog.engine.duckdb.engine import quoted
from crannog.engine.rows.values import BadValue, Node, exact_value, node_of
from crannog.errors import CallerError
from crannog.formats.json_rows import Number, parse_json
from crannog.formats.json_rows import exact_value as value_of_json

if TYPE_CHECKING:
    from crannog.engine.sql.duckdb_compiler.terms import Condition

_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
_TEXT_SQL = {
    "contains": "contains({column}, {value})",
    "icontains": "contains(lower({column}), lower({value}))",
    "starts_with": "starts_with({column}, {value})",
}
_NULL_SQL = {"is_null": "{column} IS NULL", "is_not_null": "{column} IS NOT NULL"}
_PRUNING = {"starts_with": "prefix", "is_null": "is null", "is_not_null": "is not null"}


@dataclass(slots=True)
class Where:
    """A condition in SQL, the values of its parameters, and what can prune files."""

    parts: list[str] = field(default_factory=list)
    parameters: list[Any] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)

    def parameter(self, value: Any) -> str:
        """Add a value, and return its place in the SQL."""
        self.parameters.append(value)
        return f"${len(self.parameters)}"

    @property
    def sql(self) -> str:
        return " AND ".join(f"({part})" for part in self.parts) or "true"


def where_of(filters: Sequence[Any], schema: pa.Schema) -> Where:
    """Return the condition of filters, each a column, an operator and a value, or the JSON text of these.

    Raises CallerError with what is wrong.
    """
    if isinstance(filters, (str, bytes)) or len(filters) > MAX_FILTERS:
        raise CallerError(f"where is a list of up to {MAX_FILTERS} filters, like ['amount', '>=', 5]")
    where = Where()
    for given in filters:
        _add(where, given, schema)
    return where


def column_node(name: Any, schema: pa.Schema) -> Node:
    """Return a column that can be compared. Raises CallerError if it does not exist or is nested."""
    if not isinstance(name, str) or name not in schema.names:
        raise CallerError(f"there is no column {str(name)[:80]!r}; there are {', '.join(schema.names)[:500]}")
    found = schema.field(name)
    if pa.types.is_nested(found.type):
        raise CallerError(f"column {name} is {str(found.type)[:80]}; only plain values can be compared and sorted")
    return node_of(name, found.with_nullable(False))


def exact(value: Any, node: Node) -> Any:
    """Return a value in the type of a column. Raises CallerError if it does not fit."""
    try:
        return exact_value(value_of_json(value, node.type), node)
    except BadValue as bad:
        raise CallerError(f"column {bad.path}: {bad.reason}") from None


def _add(where: Where, given: Any, schema: pa.Schema) -> None:
    from crannog.engine.sql.duckdb_compiler.terms import Condition  # loads a parser of SQL

    if isinstance(given, str):
        given = parse_json(given, "the filter", parse_float=Number)
    if not isinstance(given, (list, tuple)) or not 2 <= len(given) <= 3 or str(given[1]) not in OPERATORS:
        raise CallerError(
            f"a filter is a column, an operator and a value, like ['amount', '>=', 5]; operators are {', '.join(OPERATORS)};"
            f" got {str(given)[:200]}"
        )
    name, operator, *rest = given
    if operator in _NULL_SQL:
        if rest and rest[0] is not None:
            raise CallerError(f"the filter {operator} of column {name} takes no value")
        if name not in schema.names:
            column_node(name, schema)
        where.parts.append(_NULL_SQL[operator].format(column=quoted(name)))
        where.conditions.append(Condition(0, name, _PRUNING[operator], ()))
        return
    node = column_node(name, schema)
    if not rest:
        raise CallerError(f"the filter {operator} of column {name} needs a value")
    values = _values(node, operator, rest[0])
    places = [where.parameter(value) for value in values]
    column = quoted(name)
    if operator in _COMPARISONS:
        where.parts.append(f"{column} {operator} {places[0]}")
    elif operator == "in":
        where.parts.append(f"{column} IN ({', '.join(places)})" if places else "false")
    else:
        where.parts.append(_TEXT_SQL[operator].format(column=column, value=places[0]))
    if operator not in ("!=", "contains", "icontains") and values:
        pruning = _PRUNING.get(str(operator), str(operator))
        where.conditions.append(Condition(0, name, pruning, tuple(values)))


def _values(node: Node, operator: str, given: Any) -> list[Any]:
    if operator in _TEXT_SQL and not pa.types.is_string(node.type):
        raise CallerError(f"column {node.name} is {node.type}; the filter {operator} takes a text column")
    if operator != "in":
        return [exact(given, node)]
    if not isinstance(given, (list, tuple)) or len(given) > MAX_IN_VALUES:
        raise CallerError(f"the filter in of column {node.name} takes a list of up to {MAX_IN_VALUES:,} values")
    return [exact(value, node) for value in given]
