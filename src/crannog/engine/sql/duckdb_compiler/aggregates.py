"""Aggregates and window functions by Spark's names.

A rule gets the ending to put after each DuckDB aggregate it uses: FILTER (…), OVER (…), or nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from crannog.api.result import spark_name
from crannog.engine.sql.duckdb_compiler.decimals import divided
from crannog.engine.sql.duckdb_compiler.operators import boolean, called
from crannog.engine.sql.duckdb_compiler.terms import NoRule, Typed, checked, constant, converted
from crannog.engine.sql.spark_types import is_atomic, is_decimal, is_integral, is_numeric

Rule = Callable[[str, list[Typed], bool, str], Typed]
# Up to here every integer is exact as a double, so that sums do not depend on their order.
_EXACT = 2**53


def plain_zero(term: Typed) -> str:
    """Return a key as Spark groups by it: -0.0 is 0.0."""
    return f"({term.sql} + 0)" if pa.types.is_floating(term.type) else term.sql


def _one(name: str, terms: list[Typed]) -> Typed:
    if len(terms) != 1:
        raise NoRule(f"{name} with {len(terms)} arguments")
    return terms[0]


def _count(name: str, terms: list[Typed], distinct: bool, ending: str) -> Typed:
    if not terms:
        return Typed(f"count(*){ending}", pa.int64())
    if len(terms) == 1 and not distinct:
        return Typed(f"count({terms[0].sql}){ending}", pa.int64())
    if not all(is_atomic(term.type) for term in terms):
        raise NoRule("count over nested values")
    keys = [plain_zero(term) for term in terms]
    if len(terms) == 1:
        return Typed(f"count(DISTINCT {keys[0]}){ending}", pa.int64())
    whole = " AND ".join(f"{key} IS NOT NULL" for key in keys)
    value = f"row({', '.join(keys)})" if distinct else "1"
    return Typed(f"count({'DISTINCT ' if distinct else ''}CASE WHEN {whole} THEN {value} END){ending}", pa.int64())


def _sum(name: str, terms: list[Typed], distinct: bool, ending: str) -> Typed:
    term = _one(name, terms)
    word = "DISTINCT " if distinct else ""
    if is_integral(term.type):
        return Typed(f"CAST(sum({word}{term.sql}){ending} AS BIGINT)", pa.int64())
    if is_decimal(term.type):
        kind = pa.decimal128(min(term.type.precision + 10, 38), term.type.scale)
        return Typed(f"sum({word}{term.sql}){ending}", kind)
    if pa.types.is_floating(term.type) and not distinct:
        wide = term.sql if term.type == pa.float64() else f"CAST({term.sql} AS DOUBLE)"
        return Typed(f"sum({wide}){ending}", pa.float64())
    raise NoRule(f"{name} of {spark_name(term.type)}")


def _avg(name: str, terms: list[Typed], distinct: bool, ending: str) -> Typed:
    term = _one(name, terms)
    if distinct:
        raise NoRule("avg of distinct values")
    if is_integral(term.type):
        whole = f"CAST({term.sql} AS BIGINT)"
        mean = f"CAST(sum({whole}){ending} AS DOUBLE) / count({whole}){ending}"
        spread = f"sum(abs({whole})){ending}"
        empty = f"(CASE WHEN count({whole}){ending} = 0 THEN NULL ELSE {mean} END)"
        exact = checked(f"{spread} IS NULL OR {spread} <= {_EXACT}", empty, "an average beyond exact doubles")
        return Typed(f"({exact})", pa.float64())
    if is_decimal(term.type):
        total = Typed(f"sum({term.sql}){ending}", pa.decimal128(38, term.type.scale))
        count = Typed(f"nullif(count({term.sql}){ending}, 0)", pa.decimal128(20, 0))
        kind = pa.decimal128(min(term.type.precision + 4, 38), min(term.type.scale + 4, 38))
        return Typed(divided(total, count, kind), kind)
    if pa.types.is_floating(term.type):
        return Typed(f"avg(CAST({term.sql} AS DOUBLE)){ending}", pa.float64())
    raise NoRule(f"{name} of {spark_name(term.type)}")


def _extreme(name: str, terms: list[Typed], distinct: bool, ending: str) -> Typed:
    term = _one(name, terms)
    if not is_atomic(term.type):
        raise NoRule(f"{name} of {spark_name(term.type)}")
    return Typed(f"{name}({term.sql}){ending}", term.type)


def _all_or_any(word: str) -> Rule:
    def rule(name: str, terms: list[Typed], distinct: bool, ending: str) -> Typed:
        return Typed(f"{word}({boolean(_one(name, terms)).sql}){ending}", pa.bool_())

    return rule


def _count_if(name: str, terms: list[Typed], distinct: bool, ending: str) -> Typed:
    if distinct:
        raise NoRule("count_if of distinct values")
    return Typed(f"count(CASE WHEN {boolean(_one(name, terms)).sql} THEN 1 END){ending}", pa.int64())


def _any(name: str, terms: list[Typed], ignores_nulls: bool, ending: str) -> Typed:
    """Return the rule of a value of any row, or of the first or last one: of all of them, if they are the same.

    Where they differ, the result depends on the order in which Spark reads the rows.
    """
    shown = _shown_edge(name, ignores_nulls)
    if len(terms) == 2 and isinstance(terms[1].literal, bool) and not ignores_nulls:
        ignores_nulls, terms = terms[1].literal, terms[:1]
    term = _one(name, terms)
    if not is_atomic(term.type) or pa.types.is_floating(term.type):
        raise NoRule(f"{name} of {spark_name(term.type)}")
    low, high = (f"{word}({term.sql}){ending}" for word in ("min", "max"))
    same = f"{low} IS NOT DISTINCT FROM {high}"
    if not ignores_nulls:
        known = f"count({term.sql}){ending}"
        same += f" AND ({known} = 0 OR {known} = count(*){ending})"
    return Typed(f"({checked(same, low, f'{name} of different values')})", term.type, called(shown, terms))


def _shown_edge(name: str, ignores_nulls: bool) -> str:
    """Return Spark's name of a first or last value: IGNORE NULLS makes another function of it."""
    return {"first_value": "first", "last_value": "last"}.get(name, name) if ignores_nulls else name


def _bits(name: str, terms: list[Typed], distinct: bool, ending: str) -> Typed:
    term = _one(name, terms)
    if not is_integral(term.type) or distinct:
        raise NoRule(f"{name} of {spark_name(term.type)}")
    return Typed(f"{name}({term.sql}){ending}", term.type)


def _moment(word: str, count: int = 1) -> Rule:
    """Return the rule of a statistic of doubles; like their sums, it depends on the order of the rows in its last digits."""

    def rule(name: str, terms: list[Typed], distinct: bool, ending: str) -> Typed:
        if distinct or len(terms) != count:
            raise NoRule(f"{name} of distinct values or of {len(terms)} arguments")
        if not all(is_numeric(term.type) for term in terms):
            raise NoRule(f"{name} of {', '.join(spark_name(term.type) for term in terms)}")
        values = ", ".join(f"CAST({term.sql} AS DOUBLE)" for term in terms)
        return Typed(f"{word}({values}){ending}", pa.float64())

    return rule


def _corr(name: str, terms: list[Typed], distinct: bool, ending: str) -> Typed:
    plain = _moment("corr", 2)(name, terms, distinct, ending)
    pairs = _moment("regr_count", 2)(name, terms, distinct, ending)
    # Spark divides by zero where one side does not vary.
    found = checked(f"NOT isnan({plain.sql})", plain.sql, "a correlation that is no number")
    return Typed(f"(CASE WHEN {pairs.sql} > 1 THEN {found} END)", pa.float64())


AGGREGATES: dict[str, Rule] = {
    "any": _all_or_any("bool_or"),
    "any_value": _any,
    "avg": _avg,
    "bit_and": _bits,
    "bit_or": _bits,
    "bit_xor": _bits,
    "bool_and": _all_or_any("bool_and"),
    "bool_or": _all_or_any("bool_or"),
    "count": _count,
    "count_if": _count_if,
    "every": _all_or_any("bool_and"),
    "first": _any,
    "first_value": _any,
    "last": _any,
    "last_value": _any,
    "max": _extreme,
    "mean": _avg,
    "min": _extreme,
    "some": _all_or_any("bool_or"),
    "std": _moment("stddev_samp"),
    "stddev": _moment("stddev_samp"),
    "stddev_pop": _moment("stddev_pop"),
    "stddev_samp": _moment("stddev_samp"),
    "sum": _sum,
    "var_pop": _moment("var_pop"),
    "var_samp": _moment("var_samp"),
    "variance": _moment("var_samp"),
    "covar_pop": _moment("covar_pop", 2),
    "covar_samp": _moment("covar_samp", 2),
    "corr": _corr,
}


def _ranking(name: str, terms: list[Typed], _: bool, ending: str) -> Typed:
    if terms:
        raise NoRule(f"{name} with arguments")
    kind = pa.float64() if name in ("percent_rank", "cume_dist") else pa.int32()
    shown = name.upper() if name in ("rank", "dense_rank", "percent_rank") else name
    return Typed(f"CAST({name}(){ending} AS {'DOUBLE' if kind == pa.float64() else 'INTEGER'})", kind, f"{shown}()")


def _ntile(name: str, terms: list[Typed], _: bool, ending: str) -> Typed:
    term = _one(name, terms)
    if not isinstance(term.literal, int) or term.literal < 1:
        raise NoRule("ntile of other than a constant")
    return Typed(f"CAST(ntile({term.literal}){ending} AS INTEGER)", pa.int32())


def _neighbour(name: str, terms: list[Typed], ignores_nulls: bool, ending: str) -> Typed:
    if not 1 <= len(terms) <= 3:
        raise NoRule(f"{name} with {len(terms)} arguments")
    shown = [*terms, constant(1, pa.int32(), "1"), constant(None, pa.null(), "NULL")][:3]
    if len(terms) == 2:
        shown[2] = constant(None, pa.null(), "NULL")
    offset = terms[1].literal if len(terms) > 1 else 1
    if not isinstance(offset, int) or offset < 0 or (ignores_nulls and not offset):
        raise NoRule(f"{name} by other than a constant")
    default = ""
    if len(terms) == 3:
        if not terms[2].is_literal:
            raise NoRule(f"{name} with a default that is not a constant")
        default = f", {constant(converted(terms[2].literal, terms[2].type, terms[0].type), terms[0].type).sql}"
    ignoring = " IGNORE NULLS" if ignores_nulls else ""
    sql = f"{name}({terms[0].sql}, {offset}{default}{ignoring}){ending}"
    return Typed(sql, terms[0].type, called(name, shown))


def _edge(name: str, terms: list[Typed], ignores_nulls: bool, ending: str) -> Typed:
    shown = _shown_edge(name, ignores_nulls)
    if len(terms) == 2 and isinstance(terms[1].literal, bool) and not ignores_nulls:
        ignores_nulls, terms = terms[1].literal, terms[:1]
    term = _one(name, terms)
    word = "last_value" if name in ("last", "last_value") else "first_value"
    ignoring = " IGNORE NULLS" if ignores_nulls else ""
    return Typed(f"{word}({term.sql}{ignoring}){ending}", term.type, called(shown, terms))


def _nth(name: str, terms: list[Typed], ignores_nulls: bool, ending: str) -> Typed:
    if len(terms) != 2 or not isinstance(terms[1].literal, int) or terms[1].literal < 1:
        raise NoRule("nth_value by other than a constant")
    ignoring = " IGNORE NULLS" if ignores_nulls else ""
    return Typed(f"nth_value({terms[0].sql}, {terms[1].literal}{ignoring}){ending}", terms[0].type)


# Functions of windows only, or with another meaning over a window. They get whether nulls are ignored, not DISTINCT.
WINDOWS: dict[str, Rule] = {
    "any_value": _edge,
    "cume_dist": _ranking,
    "dense_rank": _ranking,
    "first": _edge,
    "first_value": _edge,
    "lag": _neighbour,
    "last": _edge,
    "last_value": _edge,
    "lead": _neighbour,
    "nth_value": _nth,
    "ntile": _ntile,
    "percent_rank": _ranking,
    "rank": _ranking,
    "row_number": _ranking,
}
IGNORING_NULLS = {"any_value", "first", "first_value", "lag", "last", "last_value", "lead", "nth_value"}
