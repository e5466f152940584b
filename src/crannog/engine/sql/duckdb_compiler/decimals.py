"""Decimal arithmetic with Spark's digits: DuckDB's own would refuse some of it, or use doubles."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from crannog.engine.sql.duckdb_compiler.terms import NoRule, Typed, widened
from crannog.engine.sql.spark_types import as_decimal, decimal_result

_DIGITS = 38


def arithmetic(operator: str, left: Typed, right: Typed, name: str | None) -> Typed:
    """Return `left operator right` for + - * / % where at least one side is a decimal and neither is a double."""
    a_type, b_type = as_decimal(left.type, left.literal), as_decimal(right.type, right.literal)
    assert a_type is not None
    assert b_type is not None
    kind = decimal_result(operator, a_type, b_type)
    a, b = widened(left, a_type), widened(right, b_type)
    if operator == "/":
        return Typed(divided(a, b, kind), kind, name)
    if operator == "%":
        scale = max(a_type.scale, b_type.scale)
        return Typed(_of_whole(f"({_whole(a, scale)} % {_whole(b, scale)})", scale), kind, name)
    natural = a_type.scale + b_type.scale if operator == "*" else max(a_type.scale, b_type.scale)
    if natural > _DIGITS:
        raise NoRule(f"decimals whose {operator} has more than {_DIGITS} digits after the point")
    sql = f"({a.sql} {operator} {b.sql})"
    if natural != kind.scale:
        # Spark computes 39 digits before it rounds. DuckDB stops at 38, so what it rounds is exact.
        sql = f"CAST({sql} AS DECIMAL({_DIGITS}, {kind.scale}))"
    return Typed(sql, kind, name)


def divided(a: Typed, b: Typed, kind: pa.Decimal128Type) -> str:
    """Divide decimals exactly, rounding half up, with integers; DuckDB itself would use doubles."""
    shift = kind.scale - a.type.scale + b.type.scale
    if shift < 0 or kind.scale > 37:
        raise NoRule("a decimal division of this size")
    whole_b = _whole(b, b.type.scale)
    scaled = f"({_whole(a, a.type.scale)} * CAST('{10**shift}' AS HUGEINT))"
    rounded = (
        f"(CASE WHEN ({scaled} < 0) = ({whole_b} < 0) THEN 1 ELSE -1 END)"
        f" * ((abs({scaled}) * 2 + abs({whole_b})) // (abs({whole_b}) * 2))"
    )
    return _of_whole(rounded, kind.scale)


def _whole(term: Typed, scale: int) -> str:
    """Return the decimal times a power of ten, an integer."""
    # DuckDB multiplies short decimals in 64 bits.
    wide = f"CAST({term.sql} AS DECIMAL({_DIGITS}, {term.type.scale}))"
    return f"CAST({wide} * CAST({10**scale} AS DECIMAL({scale + 1}, 0)) AS HUGEINT)"


def _of_whole(sql: str, scale: int) -> str:
    unit = Decimal(1).scaleb(-scale)
    return f"(CAST({sql} AS DECIMAL({_DIGITS}, 0)) * CAST({unit:f} AS DECIMAL({max(scale, 1)}, {scale})))"
