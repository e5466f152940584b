"""Subqueries inside expressions: as a value, EXISTS, and IN, each with what Spark does about null."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from crannog.engine.sql.duckdb_compiler import operators
from crannog.engine.sql.duckdb_compiler.expression_base import ExpressionBase
from crannog.engine.sql.duckdb_compiler.scope import Query
from crannog.engine.sql.duckdb_compiler.terms import NoRule, Typed


class Subqueries(ExpressionBase):
    """The rules of subqueries."""

    def truth(self, node: exp.Expression) -> Typed:
        """Return a condition, or a value that may be one: IN over a subquery may stand in it, below AND, OR and NOT."""
        self._negated_in |= _negations(node)
        return self.term(node)

    def _in_query(self, node: exp.In, query: exp.Expression) -> Typed:
        """Return `value IN (SELECT …)`. Spark gives false, not null, for an undecided one, and for its negation too.

        It pushes every NOT down to the IN first, so it depends on all of them which of the two is undecided.
        """
        negated = self._negated_in.get(id(node))
        if negated is None:
            raise NoRule("IN over a statement inside another expression")
        of = self._take(node, "this")
        values = [self.term(one) for one in (self._take.nodes(of) if isinstance(of, exp.Tuple) else [of])]
        inner, _ = self._inner(query)
        if len(inner.columns) != len(values):
            raise NoRule("IN over another number of columns")
        alias = self._new_alias()
        sides = [
            operators.comparable(value, Typed(f"{alias}.{column.sql}", column.type))
            for value, column in zip(values, inner.columns, strict=True)
        ]
        if any(right.type != column.type for (_, right), column in zip(sides, inner.columns, strict=True)):
            raise NoRule("IN over different types")
        if len(sides) > 1:
            whole = " AND ".join(
                f"coalesce({left.sql} = {right.sql}, true)" if negated else f"{left.sql} = {right.sql}"
                for left, right in sides
            )
            return Typed(f"(EXISTS (SELECT 1 FROM ({inner.sql}) AS {alias} WHERE {whole}))", pa.bool_())
        sql = f"({sides[0][0].sql} IN ({inner.sql}))"
        if id(node) not in self.conjuncts:
            sql = f"coalesce({sql}, {str(negated).lower()})"
        return Typed(sql, pa.bool_())

    def _as_value(self, node: exp.Expression) -> Typed:
        inner, uses_outer = self._inner(node)
        if len(inner.columns) != 1:
            raise NoRule("a subquery of several columns as a value")
        # Spark lists the outer columns in the name of a correlated one.
        return Typed(f"({inner.sql})", inner.columns[0].type, None if uses_outer else "scalarsubquery()")

    def on_exists(self, node: exp.Exists) -> Typed:
        of = self._take(node, "this")
        if not isinstance(of, exp.Query):
            raise NoRule("exists over an array")
        inner, uses_outer = self._inner(of)
        return Typed(f"(EXISTS ({inner.sql}))", pa.bool_(), None if uses_outer else "exists()")

    def _inner(self, node: exp.Expression) -> tuple[Query, bool]:
        """Compile a subquery, and tell whether it uses columns of this statement."""
        before = self.scope.used_inside
        self.scope.used_inside = False
        inner = self._subquery(node, self.scope)
        uses_outer = self.scope.used_inside
        self.scope.used_inside = before or uses_outer
        if uses_outer and any(
            select.args.get(part) for select in node.find_all(exp.Query) for part in ("order", "limit", "offset")
        ):
            raise NoRule("ORDER BY or LIMIT in a correlated subquery")
        if uses_outer and self.grouping:
            raise NoRule("a correlated subquery beside grouping sets")
        return inner, uses_outer


def conjuncts(node: exp.Expression) -> set[int]:
    """Return the nodes that, or whose negations, must hold for a condition to hold."""
    parts = list(node.flatten()) if isinstance(node, exp.And) else [node]
    bare = [part.unnest() for part in parts]
    return {id(part.this.unnest() if isinstance(part, exp.Not) else part) for part in bare}.union(
        *(conjuncts(part) for part in bare if isinstance(part, exp.And))
    )


def _negations(node: exp.Expression, negated: bool = False) -> dict[int, bool]:
    """Return each IN below AND, OR and NOT, and whether an odd number of NOT is around it."""
    if isinstance(node, exp.In):
        return {id(node): negated}
    if isinstance(node, (exp.Not, exp.Paren)):
        return _negations(node.this, negated != isinstance(node, exp.Not))
    found: dict[int, bool] = {}
    if isinstance(node, (exp.And, exp.Or)):
        for part in node.flatten():
            found |= _negations(part, negated)
    return found
