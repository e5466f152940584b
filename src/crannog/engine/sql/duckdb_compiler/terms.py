"""Compiled expressions: DuckDB's SQL, Spark's type, and what is known before they run."""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from crannog.api.result import INSTANT, spark_name
from crannog.engine.sql.spark_types import is_decimal, is_integral, is_numeric


class NoRule(Exception):
    """A part of the statement has no rule; the message says which."""


class _NoLiteral:
    def __repr__(self) -> str:
        return "NO_LITERAL"


NO_LITERAL = _NoLiteral()


@dataclass(frozen=True, slots=True)
class Condition:
    """A conjunct that can prune files: a column of a source compared with constants."""

    source: int
    column: str
    operator: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression in DuckDB's SQL with its Spark type.

    `name` is Spark's name of the column without an alias; None if unknown. `column` names the column
    of a source it is, if it is nothing else. A decimal's DuckDB type may have fewer digits, never another scale.
    """

    sql: str
    type: pa.DataType
    name: str | None = None
    literal: Any = NO_LITERAL
    column: tuple[int, str] | None = None
    conditions: tuple[Condition, ...] = field(default=())

    @property
    def is_literal(self) -> bool:
        return self.literal is not NO_LITERAL


_DUCK = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    INSTANT: "TIMESTAMPTZ",
}
_LIMITS = {pa.int8(): 2**7, pa.int16(): 2**15, pa.int32(): 2**31, pa.int64(): 2**63}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_INSTANT = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}:\d{2})(?:\.(\d{1,6}))?)?(?:Z|\+00:00)?")


def duck_type(kind: pa.DataType) -> str:
    """Return DuckDB's name of an atomic type."""
    if is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if kind not in _DUCK:
        raise NoRule(f"the type {spark_name(kind)} in an expression")
    return _DUCK[kind]


def constant(value: Any, kind: pa.DataType, name: str | None = None) -> Typed:
    """Return a literal of a type."""
    return Typed(_constant_sql(value, kind), kind, name, value)


def _constant_sql(value: Any, kind: pa.DataType) -> str:
    if value is None:
        return "NULL" if kind == pa.null() else f"CAST(NULL AS {duck_type(kind)})"
    if kind == pa.string():
        return "'" + str(value).replace("'", "''") + "'"
    if kind == pa.bool_():
        return "true" if value else "false"
    if kind == pa.binary():
        return f"from_hex('{value.hex()}')"
    if pa.types.is_floating(kind):
        text = "'nan'" if math.isnan(value) else f"'{value!r}'"
        return f"CAST({text} AS {duck_type(kind)})"
    if kind == pa.date32():
        return f"DATE '{value.isoformat()}'"
    if kind == INSTANT:
        return f"TIMESTAMPTZ '{value.astimezone(dt.UTC).isoformat(sep=' ')}'"
    if is_integral(kind) or is_decimal(kind):
        return f"CAST({value:f} AS {duck_type(kind)})" if is_decimal(kind) else f"CAST({value} AS {duck_type(kind)})"
    raise NoRule(f"a constant of the type {spark_name(kind)}")


def converted(value: Any, kind: pa.DataType, to: pa.DataType) -> Any:
    """Convert a constant without loss. Raises NoRule where Spark would round, fail or parse a string in its own way."""
    if value is None or kind == to:
        return value
    if is_integral(to) and is_integral(kind) and -_LIMITS[to] <= value < _LIMITS[to]:
        return value
    if (
        is_integral(to)
        and is_decimal(kind)
        and value == value.to_integral_value()
        and -_LIMITS[to] <= value < _LIMITS[to]
    ):
        return int(value)
    if is_decimal(to) and (is_integral(kind) or is_decimal(kind)):
        number = Decimal(value)
        digits = (
            number.quantize(Decimal(1).scaleb(-to.scale))
            if abs(number) < Decimal(10) ** (to.precision - to.scale)
            else None
        )
        if digits is not None and digits == number:
            return digits
    if to == pa.float64() and is_numeric(kind):
        return float(value)
    if kind == pa.string() and to == pa.date32() and _DATE.fullmatch(value):
        return _or_no_rule(dt.date.fromisoformat, value)
    if kind == pa.string() and to == INSTANT and (match := _INSTANT.fullmatch(value)):
        day, clock, fraction = match.groups()
        return _or_no_rule(
            dt.datetime.fromisoformat, f"{day}T{clock or '00:00:00'}.{(fraction or '0').ljust(6, '0')}+00:00"
        )
    if kind == pa.date32() and to == INSTANT:
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    raise NoRule(f"the constant {value!r} as {spark_name(to)}")


def _or_no_rule(read: Any, text: str) -> Any:
    try:
        return read(text)
    except ValueError:
        raise NoRule(f"{text!r} as a date") from None


def widened(term: Typed, to: pa.DataType) -> Typed:
    """Return the term cast to a wider type, as Spark's implicit casts do."""
    if term.type == to:
        return term
    if term.is_literal:
        return constant(converted(term.literal, term.type, to), to, term.name)
    if term.type == pa.null():
        return Typed(f"CAST(NULL AS {duck_type(to)})", to, term.name)
    if is_decimal(term.type) and to == pa.float64() and term.type.precision > 15:
        # DuckDB would divide two doubles; of up to 15 digits both are exact.
        return Typed(f"CAST(CAST({term.sql} AS VARCHAR) AS DOUBLE)", to, term.name)
    if is_decimal(term.type) and is_decimal(to) and term.type.scale == to.scale:
        return Typed(term.sql, to, term.name, column=term.column)
    if term.type == pa.date32() and to == INSTANT:
        return Typed(f"CAST({term.sql} AS TIMESTAMPTZ)", to, term.name)
    if is_numeric(term.type) and is_numeric(to):
        return Typed(f"CAST({term.sql} AS {duck_type(to)})", to, term.name)
    raise NoRule(f"{spark_name(term.type)} as {spark_name(to)}")


def checked(condition: str, value: str, reason: str) -> str:
    """Return SQL that returns the value where the condition holds and raises an error elsewhere."""
    return f"CASE WHEN {condition} THEN {value} ELSE error('{reason}') END"
