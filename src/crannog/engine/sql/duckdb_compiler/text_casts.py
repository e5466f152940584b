"""Casts from and to text: the usual forms only. Any other value raises an error, and Spark reads or writes it."""

from __future__ import annotations

import pyarrow as pa

from crannog.api.result import INSTANT, spark_name
from crannog.engine.sql.duckdb_compiler.terms import NoRule, Typed, checked, duck_type
from crannog.engine.sql.spark_types import is_decimal, is_integral

_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?"
_TRUE, _FALSE = ("'t', 'true', 'y', 'yes', '1'", "'f', 'false', 'n', 'no', '0'")


def of_text(x: str, to: pa.DataType) -> str:
    """Return text as a value of another type."""
    if is_integral(to):
        return f"CAST({_matching(x, '[+-]?[0-9]+', 'not a plain whole number')} AS {duck_type(to)})"
    if is_decimal(to):
        return f"CAST({_matching(x, '[+-]?[0-9]{1,38}([.][0-9]{1,38})?', 'not a plain number')} AS {duck_type(to)})"
    if to == pa.float64():
        number = "[+-]?[0-9]{1,30}([.][0-9]{1,30})?([eE][+-]?[0-9]{1,3})?"
        return f"CAST({_matching(x, number, 'not a plain number')} AS DOUBLE)"
    if to == pa.date32():
        return f"CAST({_matching(x, _DAY, 'not a plain date')} AS DATE)"
    if to == INSTANT:
        moment = _matching(x, f"{_DAY}([ T]{_CLOCK})?", "not a plain timestamp")
        return f"CAST(CAST({moment} AS TIMESTAMP) AS TIMESTAMPTZ)"
    if to == pa.bool_():
        known = f"CASE WHEN lower({x}) IN ({_TRUE}) THEN true WHEN lower({x}) IN ({_FALSE}) THEN false END"
        return f"({checked(f'{x} IS NULL OR lower({x}) IN ({_TRUE}, {_FALSE})', f'({known})', 'not a truth value')})"
    raise NoRule(f"a cast of string to {spark_name(to)}")


def _matching(x: str, pattern: str, reason: str) -> str:
    return checked(f"{x} IS NULL OR regexp_full_match({x}, '{pattern}')", x, reason)


def to_text(term: Typed) -> str:
    """Return a value as text."""
    x, kind = term.sql, term.type
    if is_integral(kind) or kind in (pa.bool_(), pa.date32()):
        return f"CAST({x} AS VARCHAR)"
    if is_decimal(kind) and not kind.precision == kind.scale == 38:
        # DuckDB writes .25 for a decimal that has no digits before the point.
        wide = pa.decimal128(max(kind.precision, kind.scale + 1), kind.scale)
        return f"CAST(CAST({x} AS {duck_type(wide)}) AS VARCHAR)"
    if kind == INSTANT:
        return f"CAST(CAST({x} AS TIMESTAMP) AS VARCHAR)"
    if kind == pa.float64():
        # Beyond these Spark writes exponents.
        plain = f"{x} = 0 OR (abs({x}) >= 1e-3 AND abs({x}) < 1e7)"
        return (
            f"(CASE WHEN {x} IS NULL THEN NULL WHEN isnan({x}) THEN 'NaN' WHEN isinf({x}) AND {x} > 0 THEN 'Infinity'"
            f" WHEN isinf({x}) THEN '-Infinity' WHEN {plain} THEN CAST({x} AS VARCHAR)"
            " ELSE error('a number with an exponent') END)"
        )
    raise NoRule(f"a cast of {spark_name(kind)} to string")
