"""Spark's types as Arrow types: how they widen, the results of decimal arithmetic, and the form that results have.

Pure. The rules are those of Spark's ANSI mode, as far as DuckDB can follow them; None where it cannot.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa

from crannog.api.result import INSTANT, SPARK_NAMES

INTEGRALS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_WIDEST, _LEAST_SCALE = 38, 6
Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def is_integral(kind: pa.DataType) -> bool:
    return kind in INTEGRALS


def is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind))


def is_numeric(kind: pa.DataType) -> bool:
    return is_integral(kind) or is_decimal(kind) or bool(pa.types.is_floating(kind))


def is_atomic(kind: pa.DataType) -> bool:
    """Return whether values compare, sort and group the same on every engine."""
    return (kind in SPARK_NAMES and kind != pa.null()) or is_decimal(kind)


def as_decimal(kind: pa.DataType, literal: Any = None) -> pa.Decimal128Type | None:
    """Return the decimal type of an integer in an operation with a decimal; a literal takes only its digits."""
    if is_decimal(kind):
        return kind
    if not is_integral(kind):
        return None
    if isinstance(literal, int):
        return pa.decimal128(max(len(str(abs(literal))), 1), 0)
    return pa.decimal128(_DIGITS[kind], 0)


def wider(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the common type of two in a comparison, a CASE, a COALESCE or a UNION."""
    if left == right:
        return left
    for one, other in ((left, right), (right, left)):
        if one == pa.null():
            return other
        if one == pa.date32() and other == INSTANT:
            return other
        if pa.types.is_floating(one) and is_numeric(other):
            return pa.float64()
    if is_integral(left) and is_integral(right):
        return INTEGRALS[max(INTEGRALS.index(left), INTEGRALS.index(right))]
    a, b = as_decimal(left), as_decimal(right)
    if a is not None and b is not None:
        scale = max(a.scale, b.scale)
        digits = max(a.precision - a.scale, b.precision - b.scale)
        return pa.decimal128(digits + scale, scale) if digits + scale <= _WIDEST else None
    return None


def widest(kinds: list[pa.DataType]) -> pa.DataType | None:
    found: pa.DataType | None = pa.null()
    for kind in kinds:
        found = wider(found, kind) if found is not None else None
    return found


def decimal_result(operator: str, a: pa.Decimal128Type, b: pa.Decimal128Type) -> pa.Decimal128Type:
    """Return the type of `a operator b` for + - * / %."""
    if operator in "+-":
        scale = max(a.scale, b.scale)
        precision = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    elif operator == "*":
        scale = a.scale + b.scale
        precision = a.precision + b.precision + 1
    elif operator == "/":
        scale = max(_LEAST_SCALE, a.scale + b.precision + 1)
        precision = a.precision - a.scale + b.scale + scale
    else:
        scale = max(a.scale, b.scale)
        precision = min(a.precision - a.scale, b.precision - b.scale) + scale
    return bounded(precision, scale)


def bounded(precision: int, scale: int) -> pa.Decimal128Type:
    """Fit a decimal into 38 digits as Spark does: digits before the point take precedence, but 6 after it stay."""
    if precision <= _WIDEST:
        return pa.decimal128(precision, scale)
    remaining = max(_WIDEST - (precision - scale), min(scale, _LEAST_SCALE))
    return pa.decimal128(_WIDEST, remaining)


def of_number(text: str) -> tuple[pa.DataType, int | Decimal | float] | None:
    """Return the type and value of a number as Spark reads it; None if Spark rejects it."""
    if text.isdigit():
        value = int(text)
        if value < 2**31:
            return pa.int32(), value
        if value < 2**63:
            return pa.int64(), value
        return (pa.decimal128(len(str(value)), 0), Decimal(value)) if len(str(value)) <= _WIDEST else None
    if "e" in text.lower():
        return pa.float64(), float(text)
    number = Decimal(text)
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or exponent > 0:
        return None
    scale = -exponent
    precision = max(len(digits), scale) if any(digits) else max(scale, 1)
    return (pa.decimal128(precision, scale), number) if precision <= _WIDEST else None


def plain(kind: pa.DataType) -> pa.DataType:
    """Return a type in the common form: nullable inside, with the usual names of elements."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), pa.field("value", plain(kind.item_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in kind])
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, plain(field.type)) for field in schema])


def without_columns(rows: int) -> pa.Table:
    """Return a table with this many rows and no columns."""
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))])


def first_rows(table: pa.Table, count: int) -> pa.Table:
    """Return up to `count` rows. A slice of a table without columns would always have `count`."""
    return table.slice(0, min(count, table.num_rows))


def in_schema(rows: Rows, schema: pa.Schema) -> Rows:
    """Return rows with the names and types of `schema`, by position."""
    columns = [
        column if column.type == kind else column.cast(kind)
        for column, kind in zip(rows.columns, schema.types, strict=True)
    ]
    return type(rows).from_arrays(columns, schema=schema)
