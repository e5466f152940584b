"""File pruning for filters: conditions that every match meets, to compare with the log's statistics."""

from __future__ import annotations

from typing import Any

from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.traces.ids import trace_id_high
from crannog.traces.search.filter_sql import COLUMNS
from crannog.traces.search.filter_tree import And, Compare, Filter, Level, OneOf, Type
from crannog.traces.search.number_comparison import integer_comparison
from crannog.traces.search.time_histogram import EARLIEST, LATEST
from crannog.traces.trace import ERROR_STATUS, STATUS_NAMES

_RANGES = ("=", "<", "<=", ">", ">=")


def pruning_conditions(filter: Filter) -> list[Condition]:
    """Return some of the conditions that a span must meet to match the filter."""
    match filter:
        case And(terms):
            return [condition for term in terms for condition in pruning_conditions(term)]
        case Compare(field, operator, value) if field.level is Level.COLUMN and operator in _RANGES:
            return _comparison_conditions(field.name, field.type, operator, value)
        case OneOf(field, values, False) if field.level is Level.COLUMN:
            if field.name == "trace_id":
                return [_condition("trace_hi", "in", *(trace_id_high(bytes.fromhex(str(value))) for value in values))]
            if field.name == "service":
                return [_condition("service_name", "in", *values)]
    return []


def start_bounds(filter: Filter) -> tuple[int, int]:
    """Return the earliest and latest start that a match of the filter can have."""
    low, high = EARLIEST, LATEST
    for condition in pruning_conditions(filter):
        if condition.column == "start_ns":
            [value] = condition.values
            if condition.operator in (">", ">=", "="):
                low = max(low, value)
            if condition.operator in ("<", "<=", "="):
                high = min(high, value)
    return low, high


def _comparison_conditions(name: str, kind: Type, operator: str, value: Any) -> list[Condition]:
    if name == "service" and operator == "=":
        return [_condition("service_name", "=", value)]
    if name == "trace_id":
        return [_condition("trace_hi", "=", trace_id_high(bytes.fromhex(value)))]
    if name == "status":
        return [_condition("status_code", "=", STATUS_NAMES.index(value))]
    if name == "error" and value is True:
        return [_condition("status_code", "=", ERROR_STATUS)]
    if kind in (Type.DURATION, Type.TIME, Type.NUMBER):
        match integer_comparison(operator, value):
            case bound_operator, bound:
                return [_condition(COLUMNS[name], bound_operator, bound)]
    return []


def _condition(column: str, operator: str, *values: Any) -> Condition:
    return Condition(0, column, operator, values)
