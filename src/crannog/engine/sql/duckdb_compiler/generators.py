"""What generates rows: explode and its kin, LATERAL VIEW, range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from crannog.api.result import spark_name
from crannog.engine.sql.duckdb_compiler.operators import value_of
from crannog.engine.sql.duckdb_compiler.scope import Column, NodeCoverage, Query
from crannog.engine.sql.duckdb_compiler.terms import NoRule, Typed

GENERATORS = {"explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer"}
_MOST_NUMBERS = 10**8


@dataclass(frozen=True)
class Rows:
    """The rows that a call makes of each row."""

    sql: str
    columns: tuple[Column, ...]
    outer: bool

    def joined(self, alias: str, *, outer: bool = False) -> str:
        """Return the join that adds the rows; with `outer`, a row of nulls where there are none."""
        if outer or self.outer:
            return f" LEFT JOIN LATERAL ({self.sql}) AS {alias} ON true"
        return f" CROSS JOIN LATERAL ({self.sql}) AS {alias}"


def is_generator(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in GENERATORS


def rows_of(coverage: NodeCoverage, call: exp.Expression, term: Callable[[exp.Expression], Typed]) -> Rows:
    """Return the rows of a call of a generator."""
    name = str(coverage(call, "this")).lower() if is_generator(call) else ""
    if not name:
        raise NoRule(f"{call.key} as a generator")
    arguments = [term(argument) for argument in coverage.nodes(call)]
    if len(arguments) != 1:
        raise NoRule(f"{name} with {len(arguments)} arguments")
    [of] = arguments
    values = _values(name, of)
    if name.startswith("posexplode"):
        length = f"len({of.sql})" if pa.types.is_list(of.type) else f"len(map_keys({of.sql}))"
        values.insert(0, ("pos", pa.int32(), f"CAST(unnest(range({length})) AS INTEGER)"))
    sql = "SELECT " + ", ".join(f"{value} AS c{place}" for place, (_, _, value) in enumerate(values))
    columns = tuple(Column(label, kind, f"c{place}") for place, (label, kind, _) in enumerate(values))
    return Rows(sql, columns, outer=name.endswith("_outer"))


def _values(name: str, of: Typed) -> list[tuple[str, pa.DataType, str]]:
    if name.startswith("inline"):
        if not pa.types.is_list(of.type) or not pa.types.is_struct(of.type.value_type):
            raise NoRule(f"{name} of {spark_name(of.type)}")
        # A null among the structs is a row of nulls.
        return [
            (field.name, field.type, "struct_extract(unnest({}), '{}')".format(of.sql, field.name.replace("'", "''")))
            for field in of.type.value_type
        ]
    if pa.types.is_list(of.type):
        return [("col", of.type.value_type, f"unnest({of.sql})")]
    if pa.types.is_map(of.type):
        return [
            ("key", of.type.key_type, f"unnest(map_keys({of.sql}))"),
            ("value", of.type.item_type, f"unnest(map_values({of.sql}))"),
        ]
    raise NoRule(f"{name} of {spark_name(of.type)}")


def numbers(arguments: list[Typed]) -> Query:
    """Return range(end), range(start, end) or range(start, end, step)."""
    values = [value_of(argument, int) for argument in arguments]
    if not 1 <= len(values) <= 3 or any(isinstance(value, bool) for value in values):
        raise NoRule(f"range with {len(values)} arguments")
    start, end, step = {1: [0, *values, 1], 2: [*values, 1], 3: values}[len(values)]
    if step == 0 or abs(end - start) // abs(step) > _MOST_NUMBERS:
        raise NoRule("range of many numbers")
    return Query(
        f"SELECT CAST(range AS BIGINT) AS c0 FROM range({start}::BIGINT, {end}::BIGINT, {step}::BIGINT)",
        (Column("id", pa.int64(), "c0"),),
    )
