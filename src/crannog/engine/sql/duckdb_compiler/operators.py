"""Operators, constants, CASE, casts: each with the types Spark gives it."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa

from crannog.api.result import INSTANT, spark_name
from crannog.engine.sql.duckdb_compiler import decimals, text_casts
from crannog.engine.sql.duckdb_compiler.terms import (
    Condition,
    NoRule,
    Typed,
    checked,
    constant,
    converted,
    duck_type,
    widened,
)
from crannog.engine.sql.spark_types import (
    is_atomic,
    is_decimal,
    is_integral,
    is_numeric,
    wider,
    widest,
)

FLIPPED = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_UNITS = {
    "day": "to_days",
    "hour": "to_hours",
    "minute": "to_minutes",
    "second": "to_seconds",
    "month": "to_months",
    "year": "to_years",
}


def named(*parts: str | None) -> str | None:
    """Join the parts of a column's name; None if one of them is unknown."""
    return None if any(part is None for part in parts) else "".join(part for part in parts if part is not None)


def called(name: str, terms: list[Typed], word: str = "") -> str | None:
    """Return Spark's name of a column that is a call; `word` stands before the arguments, such as DISTINCT."""
    return named(f"{name}({word}", *[part for term in terms for part in (", ", term.name)][1:], ")")


def arithmetic(operator: str, left: Typed, right: Typed) -> Typed:
    """Return `left operator right` for + - * / % and div."""
    name = named("(", left.name, f" {operator} ", right.name, ")")
    if pa.null() in (left.type, right.type) or not (is_numeric(left.type) and is_numeric(right.type)):
        raise NoRule(f"{spark_name(left.type)} {operator} {spark_name(right.type)}")
    if operator == "div":
        if not (is_integral(left.type) and is_integral(right.type)):
            raise NoRule("div of other than whole numbers")
        a, b = widened(left, pa.int64()), widened(right, pa.int64())
        return Typed(f"({a.sql} // {b.sql})", pa.int64(), name)
    floats = [kind for kind in (left.type, right.type) if pa.types.is_floating(kind)]
    # Only floats among themselves stay floats.
    if floats not in ([], [pa.float32()] * 2) or (
        operator in "/%" and (floats or (is_integral(left.type) and is_integral(right.type) and operator == "/"))
    ):
        if operator == "%":
            raise NoRule("the rest of a floating division")
        a, b = widened(left, pa.float64()), widened(right, pa.float64())
        sql = f"({a.sql} {operator} {b.sql})"
        if operator == "/" and not (b.is_literal and b.literal):
            # DuckDB would return infinity.
            sql = f"({checked(f'{b.sql} IS NULL OR {a.sql} IS NULL OR {b.sql} <> 0', sql, 'division by zero')})"
        return Typed(sql, pa.float64(), name)
    if pa.float32() in (left.type, right.type):
        return Typed(f"({left.sql} {operator} {right.sql})", pa.float32(), name)
    if is_integral(left.type) and is_integral(right.type):
        kind = wider(left.type, right.type)
        assert kind is not None
        return Typed(f"({widened(left, kind).sql} {operator} {widened(right, kind).sql})", kind, name)
    return decimals.arithmetic(operator, left, right, name)


def bitwise(operator: str, left: Typed, right: Typed) -> Typed:
    """Return `left operator right` for & | ^."""
    if not (is_integral(left.type) and is_integral(right.type)):
        raise NoRule(f"{spark_name(left.type)} {operator} {spark_name(right.type)}")
    kind = wider(left.type, right.type)
    assert kind is not None
    a, b = widened(left, kind).sql, widened(right, kind).sql
    sql = f"xor({a}, {b})" if operator == "^" else f"({a} {operator} {b})"
    return Typed(sql, kind, named("(", left.name, f" {operator} ", right.name, ")"))


def negative(term: Typed) -> Typed:
    if term.is_literal and is_numeric(term.type) and term.literal is not None:
        if term.literal == 0:
            # -0 and -0.0 are the integer and the decimal 0, and are shown so; a double keeps its sign.
            return constant(-term.literal, pa.float64()) if term.type == pa.float64() else term
        value = -term.literal
        # The smallest integers are a minus sign before a number that is too large by itself.
        if term.type == pa.int64() and value == -(2**31):
            return constant(value, pa.int32(), named("-", term.name))
        if is_decimal(term.type) and term.type.scale == 0 and value == -(2**63):
            return constant(int(value), pa.int64(), named("-", term.name))
        return constant(value, term.type, named("-", term.name))
    if not is_numeric(term.type):
        raise NoRule(f"- {spark_name(term.type)}")
    return Typed(f"(- {term.sql})", term.type, named("(- ", term.name, ")"))


def comparison(operator: str, left: Typed, right: Typed) -> Typed:
    """Return `left operator right` for = < > <= >= and <=>; a comparison with a constant can prune files."""
    name = named("(", left.name, f" {operator} ", right.name, ")")
    if operator in ("<", ">", "<=", ">=") and any(
        is_integral(one.type) and is_decimal(other.type) and other.is_literal
        for one, other in ((left, right), (right, left))
    ):
        # Spark rounds the constant and shows that: (a > 1) for a > 1.5.
        name = None
    a, b = comparable(left, right)
    sql = f"({a.sql} IS NOT DISTINCT FROM {b.sql})" if operator == "<=>" else f"({a.sql} {operator} {b.sql})"
    conditions: tuple[Condition, ...] = ()
    if operator in FLIPPED:
        for one, other, sign in ((a, b, operator), (b, a, FLIPPED[operator])):
            if one.column is not None and other.is_literal:
                conditions = (Condition(*one.column, sign, (other.literal,)),)
    return Typed(sql, pa.bool_(), name, conditions=conditions)


def comparable(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Convert two sides to one type; a constant takes the type of the other side where that is lossless."""
    for one, other, swap in ((left, right, False), (right, left, True)):
        if (
            not one.is_literal
            and other.is_literal
            and other.type != pa.null()
            and one.type != other.type
            and is_atomic(one.type)
        ):
            reads_text = other.type == pa.string() and one.type in (pa.date32(), INSTANT)
            exact = (is_integral(one.type) or is_decimal(one.type)) and (
                is_integral(other.type) or is_decimal(other.type)
            )
            if reads_text or exact or (one.type == INSTANT and other.type == pa.date32()):
                try:
                    fitted = constant(converted(other.literal, other.type, one.type), one.type, other.name)
                except NoRule:
                    if reads_text:
                        raise
                    continue
                return (fitted, one) if swap else (one, fitted)
    kind = wider(left.type, right.type)
    if kind is None or not (is_atomic(kind) or kind == pa.null()):
        raise NoRule(f"{spark_name(left.type)} compared with {spark_name(right.type)}")
    return widened(left, kind), widened(right, kind)


def membership(term: Typed, options: list[Typed]) -> Typed:
    """Return `term IN (constants or expressions)`."""
    name = named("(", term.name, called(" IN ", options), ")")
    pairs = [comparable(term, option) for option in options]
    kinds = {pair[0].type for pair in pairs}
    if len(kinds) != 1:
        kind = widest([term.type, *(option.type for option in options)])
        if kind is None:
            raise NoRule("IN over different types")
        pairs = [(widened(term, kind), widened(option, kind)) for option in options]
    sql = f"({pairs[0][0].sql} IN ({', '.join(pair[1].sql for pair in pairs)}))"
    subject = pairs[0][0]
    values = tuple(pair[1].literal for pair in pairs)
    prunes = subject.column is not None and all(pair[1].is_literal for pair in pairs)
    conditions = (Condition(*subject.column, "in", values),) if prunes and subject.column else ()
    return Typed(sql, pa.bool_(), name, conditions=conditions)


def cases(branches: list[tuple[Typed, Typed]], otherwise: Typed | None) -> Typed:
    """Return CASE WHEN … THEN … ELSE … END."""
    results = [result for _, result in branches] + ([otherwise] if otherwise else [])
    kind = common(results)
    if any(condition.type != pa.bool_() for condition, _ in branches):
        raise NoRule("CASE by other than a condition")
    sql = " ".join(f"WHEN {condition.sql} THEN {widened(result, kind).sql}" for condition, result in branches)
    names = [part for condition, result in branches for part in (" WHEN ", condition.name, " THEN ", result.name)]
    ending = [" ELSE ", otherwise.name] if otherwise else []
    last = f" ELSE {widened(otherwise, kind).sql}" if otherwise else ""
    return Typed(f"(CASE {sql}{last} END)", kind, named("CASE", *names, *ending, " END"))


def common(terms: list[Typed]) -> pa.DataType:
    """Return the common type; nested types must be identical."""
    kind = widest([term.type for term in terms])
    if kind is None:
        raise NoRule(f"one type for {', '.join(spark_name(term.type) for term in terms)}")
    if kind != pa.null() and not is_atomic(kind) and any(term.type != kind for term in terms):
        raise NoRule(f"NULL beside {spark_name(kind)}")
    return kind


def boolean(term: Typed) -> Typed:
    if term.type == pa.null():
        return Typed("CAST(NULL AS BOOLEAN)", pa.bool_(), term.name)
    if term.type != pa.bool_():
        raise NoRule(f"{spark_name(term.type)} as a condition")
    return term


def like(term: Typed, pattern: Typed, escape: str = "\\") -> Typed:
    """Return `term LIKE pattern` for a constant pattern whose escapes Spark accepts."""
    if term.type != pa.string() or pattern.type != pa.string() or not isinstance(pattern.literal, str):
        raise NoRule("LIKE with other than a constant pattern")
    tokens = re.findall(f"{re.escape(escape)}.?|.", pattern.literal, re.DOTALL)
    if any(token[0] == escape and token[1:] not in ("%", "_", escape) for token in tokens):
        raise NoRule("an escape in LIKE that Spark refuses")
    prefix = "".join(token[-1] for token in itertools.takewhile(lambda token: token not in ("%", "_"), tokens))
    conditions = (Condition(*term.column, "prefix", (prefix,)),) if term.column and prefix else ()
    quoted = escape.replace("'", "''")
    ending = "" if escape == "\\" else f" ESCAPE '{escape}'"
    named_as = named(term.name, " LIKE ", pattern.name, ending)
    return Typed(f"({term.sql} LIKE {pattern.sql} ESCAPE '{quoted}')", pa.bool_(), named_as, conditions=conditions)


def ilike(term: Typed, pattern: Typed) -> Typed:
    """Return `term ILIKE pattern`, for ASCII."""
    text = value_of(pattern, str)
    if not text.isascii():
        raise NoRule("ILIKE with a pattern beyond ASCII")
    small = like(replace(term, sql=f"lower({term.sql})", column=None), constant(text.lower(), pa.string()))
    x = term.sql
    sql = checked(f"{x} IS NULL OR strlen({x}) = length({x})", small.sql, "text beyond ASCII")
    return Typed(f"({sql})", pa.bool_(), called("ilike", [term, pattern]))


def cast(term: Typed, to: pa.DataType, *, safe: bool = False) -> Typed:
    """Return CAST(term AS to); a value that Spark's ANSI mode rejects is an error."""
    name = named("TRY_CAST(" if safe else "CAST(", term.name, f" AS {spark_name(to).upper()})")
    kind = term.type
    if kind == to:
        return Typed(term.sql, to, name, term.literal, conditions=())
    if term.is_literal and term.literal is None:
        return constant(None, to, name)
    if term.is_literal and kind == pa.string() and to in (pa.date32(), INSTANT):
        return constant(converted(term.literal, kind, to), to, name)
    sql = _cast_sql(term, to)
    if safe:
        sql = _try_cast_sql(term, to, sql)
    return Typed(sql, to, name)


def _try_cast_sql(term: Typed, to: pa.DataType, plain: str) -> str:
    """Return TRY_CAST: null for what a cast would refuse."""
    x = term.sql
    if is_integral(to) and term.type == pa.string():
        # A number has no letters. Of other text, such as ' 1 ', Spark decides.
        number = f"TRY_CAST({x} AS {duck_type(to)})"
        other = f"CASE WHEN {x} = '' OR regexp_matches({x}, '[A-Za-z]') THEN NULL ELSE error('not a plain number') END"
        return f"(CASE WHEN regexp_full_match({x}, '[+-]?[0-9]+') THEN {number} WHEN {x} IS NOT NULL THEN {other} END)"
    if (is_integral(to) or is_decimal(to)) and is_numeric(term.type) and plain.startswith("CAST("):
        return f"TRY_{plain}"
    raise NoRule(f"TRY_CAST of {spark_name(term.type)} to {spark_name(to)}")


def _cast_sql(term: Typed, to: pa.DataType) -> str:
    kind, target = term.type, duck_type(to)
    if kind == pa.string():
        return text_casts.of_text(term.sql, to)
    if to == pa.string():
        return text_casts.to_text(term)
    plain = (
        (is_integral(kind) and (is_numeric(to)))
        or (is_decimal(kind) and is_decimal(to))
        or (kind == pa.bool_() and (is_integral(to) or to == pa.float64()))
        or (kind, to) in ((pa.float32(), pa.float64()), (pa.float64(), pa.float32()), (pa.date32(), INSTANT))
    )
    if plain:
        return f"CAST({term.sql} AS {target})"
    if is_integral(kind) and to == pa.bool_():
        return f"({term.sql} <> 0)"
    if is_integral(to) and (is_decimal(kind) or pa.types.is_floating(kind)):
        return f"CAST(trunc({term.sql}) AS {target})"
    if is_decimal(kind) and to == pa.float64():
        return widened(term, to).sql
    if kind == INSTANT and to == pa.date32():
        return f"CAST(CAST({term.sql} AS TIMESTAMP) AS DATE)"
    raise NoRule(f"a cast of {spark_name(kind)} to {spark_name(to)}")


def shifted(term: Typed, amount: int, unit: str, operator: str) -> Typed:
    """Return a date or a timestamp plus or minus a constant interval."""
    unit = unit.lower().rstrip("s")
    if unit == "week":
        amount, unit = amount * 7, "day"
    if unit not in _UNITS:
        raise NoRule(f"an interval in {unit}")
    name = _shown_shift(term, amount, unit, operator)
    amount = -amount if operator == "-" else amount
    by = f"{_UNITS[unit]}({amount})"
    if term.type == pa.date32():
        if unit in ("hour", "minute", "second"):
            raise NoRule("a date moved by less than a day")
        if term.is_literal and unit == "day" and term.literal is not None:
            return constant(term.literal + timedelta(days=amount), pa.date32(), name)
        return Typed(f"CAST(({term.sql} + {by}) AS DATE)", pa.date32(), name)
    if term.type == INSTANT:
        if term.is_literal and term.literal is not None and unit not in ("month", "year"):
            return constant(term.literal + timedelta(**{f"{unit}s": amount}), INSTANT, name)
        return Typed(f"CAST((CAST({term.sql} AS TIMESTAMP) + {by}) AS TIMESTAMPTZ)", INSTANT, name)
    raise NoRule(f"{spark_name(term.type)} moved by an interval")


def _shown_shift(term: Typed, amount: int, unit: str, operator: str) -> str | None:
    if amount < 0:
        return None
    digits = f"{amount:02}" if unit in ("hour", "minute", "second") else f"{amount}"
    interval = f"INTERVAL '{digits}' {unit.upper()}"
    if term.type == pa.date32() and unit == "day":
        days = f"extractansiintervaldays({interval})"
        return named("date_add(", term.name, f", {days if operator == '+' else f'(- {days})'})")
    return named(term.name, f" {operator} {interval}")


def concatenated(terms: list[Typed]) -> Typed:
    if not all(is_atomic(term.type) for term in terms) or any(term.type == pa.binary() for term in terms):
        raise NoRule("concatenation of other than text")
    texts = [cast(term, pa.string()).sql for term in terms]
    return Typed(f"({' || '.join(texts)})", pa.string(), called("concat", terms))


def value_of(term: Typed, kinds: Any) -> Any:
    """Return the constant that a rule needs. Raises NoRule for a value known only at run time."""
    if not term.is_literal or not isinstance(term.literal, kinds):
        raise NoRule("an argument that is not a constant")
    return term.literal
