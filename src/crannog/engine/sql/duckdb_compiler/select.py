"""SELECT, set operations, WITH: from the tree to DuckDB's SQL.

Every relation and every column gets a generated name, so that DuckDB's own rules for names never matter. Sources are
placeholders in the SQL, filled in when it runs: one compiled statement serves every snapshot of the same schema.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from sqlglot import exp

from crannog.engine.sql.duckdb_compiler import generators
from crannog.engine.sql.duckdb_compiler.aggregates import plain_zero
from crannog.engine.sql.duckdb_compiler.expression_base import atomic
from crannog.engine.sql.duckdb_compiler.expressions import Expressions, is_dotted_name
from crannog.engine.sql.duckdb_compiler.grouping import Grouping
from crannog.engine.sql.duckdb_compiler.relations import Relations, SourceShape, condition_of
from crannog.engine.sql.duckdb_compiler.scope import Column, Query, Relation, Scope
from crannog.engine.sql.duckdb_compiler.subqueries import conjuncts
from crannog.engine.sql.duckdb_compiler.terms import Condition, NoRule, Typed, widened
from crannog.engine.sql.spark_types import is_atomic, plain_schema, widest
from crannog.engine.sql.statement import Statement


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled statement: its SQL with a placeholder per source, its columns, and the conditions that prune its sources."""

    sql: str
    columns: tuple[Column, ...]
    conditions: Mapping[int, tuple[Condition, ...]]
    uses_now: bool
    limit: int | None
    """The statement's own LIMIT."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of its result, in the common form."""
        return plain_schema(pa.schema([pa.field(column.name, column.type) for column in self.columns]))


def compile_statement(statement: Statement, shapes: Mapping[int, SourceShape], now: dt.datetime) -> Compiled:
    """Compile a statement for DuckDB. Raises NoRule with the part that has no rule."""
    if statement.tree is None:
        raise NoRule(statement.unread)
    compiler = _Compiler(statement, shapes, now)
    try:
        query = compiler.query(statement.tree, None, {})
    except (AttributeError, TypeError, ValueError, LookupError) as error:
        # A tree that no rule was written for; Spark parses the text itself.
        raise NoRule(f"syntax of an unexpected shape ({type(error).__name__})") from error
    compiler.coverage.check_all(statement.tree)
    if compiler.unused_parts:
        # DuckDB does not check them.
        raise NoRule("a part of WITH that nothing uses")
    if compiler.sources != set(shapes):
        raise NoRule("a table that the syntax tree does not show")
    conditions = {source: tuple(found) for source, found in compiler.conditions.items()}
    limit = statement.tree.args.get("limit")
    return Compiled(
        query.sql, query.columns, conditions, compiler.uses_now, None if limit is None else int(limit.expression.name)
    )


@dataclass
class _Compiler(Relations):
    # -- statements --------------------------------------------------------------------------------------------

    def query(self, node: exp.Expression, outer: Scope | None, ctes: Mapping[str, Relation]) -> Query:
        if isinstance(node, exp.Subquery):
            inner = self.query(self.coverage(node, "this"), outer, ctes)
            return self._ordered_and_limited(node, inner, ctes)
        prefix, ctes = self._with(node, ctes)
        if isinstance(node, exp.Select):
            query = self._select(node, outer, ctes)
        elif isinstance(node, exp.SetOperation):
            query = self._set_operation(node, outer, ctes)
        elif isinstance(node, exp.Values):
            query = self._values(node)
        else:
            raise NoRule(f"{node.key} as a statement")
        return Query(prefix + query.sql, query.columns) if prefix else query

    def _with(self, node: exp.Expression, ctes: Mapping[str, Relation]) -> tuple[str, Mapping[str, Relation]]:
        with_ = self.coverage(node, "with_")
        if with_ is None:
            return "", ctes
        known = dict(ctes)
        parts = []
        defined: set[str] = set()
        for cte in self.coverage.nodes(with_):
            query = self.query(self.coverage(cte, "this"), None, known)
            name = f"q{next(self._counter)}"
            parts.append(f"{name} AS ({query.sql})")
            self.unused_parts.add(name)
            called, columns = self._renamed(query.columns, self.coverage(cte, "alias"))
            if called is None or called in defined:
                raise NoRule("two parts of WITH by one name")
            defined.add(called)
            known[called] = Relation(name, (called,), columns)
        return f"WITH {', '.join(parts)} ", known

    def _set_operation(self, node: exp.SetOperation, outer: Scope | None, ctes: Mapping[str, Relation]) -> Query:
        word = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}.get(type(node))
        if word is None:
            raise NoRule(f"{node.key} of this kind")
        left, right = (self.query(self.coverage(node, side), outer, ctes) for side in ("this", "expression"))
        if len(left.columns) != len(right.columns):
            raise NoRule("sides of different widths")
        kinds = []
        for one, other in zip(left.columns, right.columns, strict=True):
            kind = widest([one.type, other.type])
            if kind is None or (not is_atomic(kind) and one.type != other.type):
                raise NoRule("sides of different types")
            kinds.append(kind)
        every = not self.coverage(node, "distinct")
        compares = not every or word != "UNION"
        if compares and not all(is_atomic(kind) for kind in kinds):
            raise NoRule("a comparison of nested values")
        sides = [self._side(side, kinds, normal=compares) for side in (left, right)]
        columns = tuple(
            Column(column.name, kind, f"c{place}")
            for place, (column, kind) in enumerate(zip(left.columns, kinds, strict=True))
        )
        query = Query(f"{sides[0]} {word} {'ALL ' if every else ''}{sides[1]}", columns)
        return self._ordered_and_limited(node, query, ctes)

    def _side(self, query: Query, kinds: Sequence[pa.DataType], *, normal: bool) -> str:
        alias = f"r{next(self._counter)}"
        terms = [
            widened(Typed(f"{alias}.{column.sql}", column.type), kind)
            for column, kind in zip(query.columns, kinds, strict=True)
        ]
        chosen = ", ".join(
            f"{plain_zero(term) if normal else term.sql} AS c{place}" for place, term in enumerate(terms)
        )
        return f"(SELECT {chosen} FROM ({query.sql}) AS {alias})"

    def _ordered_and_limited(self, node: exp.Expression, query: Query, ctes: Mapping[str, Relation]) -> Query:
        order, limit = self.coverage(node, "order"), self._limit(node)
        if order is None and not limit:
            return query
        alias = f"r{next(self._counter)}"
        scope = Scope()
        scope.relations.append(Relation(alias, (), query.columns))
        expressions = self._expressions(scope, ctes, {})
        ending = ""
        if order is not None:
            outputs = [Typed(f"{alias}.{column.sql}", column.type, column.name) for column in query.columns]
            ending = f" ORDER BY {self._order_items(order, outputs, expressions)}"
        return Query(f"SELECT * FROM ({query.sql}) AS {alias}{ending}{limit}", query.columns)

    def _values(self, node: exp.Values) -> Query:
        rows = []
        empty = self._expressions(Scope(), {}, {})
        for row in self.coverage.nodes(node):
            cells = self.coverage.nodes(row) if isinstance(row, exp.Tuple) else [row]
            rows.append([empty.term(cell) for cell in cells])
        width = len(rows[0])
        if any(len(row) != width for row in rows):
            raise NoRule("VALUES of different widths")
        kinds = [widest([row[place].type for row in rows]) for place in range(width)]
        if any(kind is None or not is_atomic(kind) for kind in kinds):
            raise NoRule("VALUES of different types")
        body = ", ".join(
            f"({', '.join(widened(cell, kind).sql for cell, kind in zip(row, kinds, strict=True))})" for row in rows
        )
        names = ", ".join(f"c{place}" for place in range(width))
        columns = tuple(Column(f"col{place + 1}", kind, f"c{place}") for place, kind in enumerate(kinds))
        return Query(f"SELECT * FROM (VALUES {body}) AS r{next(self._counter)}({names})", columns)

    # -- select ------------------------------------------------------------------------------------------------

    def _select(self, node: exp.Select, outer: Scope | None, ctes: Mapping[str, Relation]) -> Query:
        # A hint affects how Spark runs it, not the result.
        hint = self.coverage(node, "hint")
        if hint is not None:
            self._ignore(hint)
        scope = Scope(outer)
        from_ = self._from(node, scope, ctes)
        windows = {
            self.coverage.name(self.coverage(window, "this")).lower(): window
            for window in self.coverage.nodes(node, "windows")
        }
        expressions = self._expressions(scope, ctes, windows)
        where = ""
        condition_node = self._inside(node, "where")
        if condition_node is not None:
            expressions.conjuncts = conjuncts(condition_node)
            condition = condition_of(expressions.truth(condition_node))
            self._note(scope.relations, condition.conditions)
            where = f" WHERE {condition.sql}"
        group = Grouping(node, expressions, self.coverage).sql()
        outputs, generated = self._outputs(node, expressions)
        if generated:
            from_ = f"{from_ or ' FROM (SELECT 1)'}{generated}"
        # Of no rows, Spark makes no grand total.
        conditions = ["count(*) > 0"] if expressions.grouping else []
        having_node = self._inside(node, "having")
        if having_node is not None:
            expressions.conjuncts |= conjuncts(having_node)
            conditions.append(condition_of(expressions.truth(having_node)).sql)
        having = f" HAVING {' AND '.join(conditions)}" if conditions else ""
        distinct = self.coverage(node, "distinct")
        chosen = []
        columns = []
        for place, term in enumerate(outputs):
            if term.name is None:
                raise NoRule("a column without a name: give it one with AS")
            if term.type == pa.null():
                raise NoRule("a column of nothing but NULL")
            sql = plain_zero(atomic(term)) if distinct is not None else term.sql
            chosen.append(f"{sql} AS c{place}")
            columns.append(Column(term.name, term.type, f"c{place}"))
        body = f"{', '.join(chosen)}{from_}{where}{group}{having}"
        if distinct is not None:
            return self._ordered_and_limited(node, Query(f"SELECT DISTINCT {body}", tuple(columns)), ctes)
        limit = self._limit(node)
        order = self.coverage(node, "order")
        ending = ""
        if order is not None:
            expressions.in_order = True
            expressions.outputs = _by_name(outputs)
            if group and any(order.find_all(exp.AggFunc, exp.Anonymous)) and node.find(exp.Window):
                raise NoRule("a window and GROUP BY with calls in ORDER BY")
            ending = f" ORDER BY {self._order_items(order, outputs, expressions)}"
        return Query(f"SELECT {body}{ending}{limit}", tuple(columns))

    def _inside(self, node: exp.Expression, clause: str) -> exp.Expression | None:
        """Return the condition of WHERE or HAVING."""
        found = self.coverage(node, clause)
        inner: exp.Expression | None = None if found is None else self.coverage(found, "this")
        return inner

    def _outputs(self, node: exp.Select, expressions: Expressions) -> tuple[list[Typed], str]:
        """Return the outputs, and the join with the rows that one of them generates."""
        outputs: list[Typed] = []
        generated = ""
        for item in self.coverage.nodes(node):
            if isinstance(item, exp.Star):
                outputs += self._keyed(self._chosen(item, expressions.scope.star()), expressions)
            elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
                star = self.coverage(item, "this")
                qualifiers = [
                    self.coverage.name(part) for key in ("catalog", "db", "table") if (part := self.coverage(item, key))
                ]
                outputs += self._keyed(self._chosen(star, expressions.scope.star(qualifiers)), expressions)
            elif generators.is_generator(item.this if isinstance(item, (exp.Alias, exp.Aliases)) else item):
                if generated or node.args.get("group") or node.args.get("having") or node.find(exp.Window):
                    raise NoRule("a generator beside another, or beside groups or windows")
                terms, generated = self._generated(item, expressions)
                outputs += terms
            elif isinstance(item, exp.Alias):
                term = expressions.truth(self.coverage(item, "this"))
                named = Typed(term.sql, term.type, self.coverage.name(self.coverage(item, "alias")), term.literal)
                outputs.append(named)
                expressions.outputs.setdefault(str(named.name).lower(), []).append(named)
            else:
                outputs.append(self._unnamed(item, expressions))
        return outputs, generated

    def _chosen(self, star: exp.Expression, terms: list[Typed]) -> list[Typed]:
        """Return the columns of `*` without those in EXCEPT."""
        without = [self.coverage.path(column) for column in self.coverage.nodes(star, "except_")]
        names = [str(term.name).lower() for term in terms]
        if any(len(path) > 1 or names.count(path[0].lower()) != 1 for path in without):
            raise NoRule("EXCEPT of other than one column each")
        left_out = {path[0].lower() for path in without}
        if len(left_out) != len(without):
            raise NoRule("EXCEPT of a column twice")
        return [term for term, name in zip(terms, names, strict=True) if name not in left_out]

    def _unnamed(self, item: exp.Expression, expressions: Expressions) -> Typed:
        """Return an output without AS, under Spark's name for it."""
        term = expressions.truth(item)
        # Spark names a cast column after the column, but not a cast field.
        inner = _cast_column(item)
        of = expressions.term(inner).name if inner else None
        shown = of if inner and of == self.coverage.path(inner)[-1] else term.name
        # By itself a field of a struct is named after the field; inside an expression Spark shows the path.
        if is_dotted_name(item):
            shown = self.coverage.path(item)[-1]
        return Typed(term.sql, term.type, shown, term.literal)

    def _generated(self, item: exp.Expression, expressions: Expressions) -> tuple[list[Typed], str]:
        """Return the outputs of a generator, and the join that makes its rows."""
        call = self.coverage(item, "this") if isinstance(item, (exp.Alias, exp.Aliases)) else item
        with expressions.row_values():
            rows = generators.rows_of(self.coverage, call, expressions.term)
        names = [column.name for column in rows.columns]
        if isinstance(item, exp.Alias):
            names = [self.coverage.name(self.coverage(item, "alias"))]
        elif isinstance(item, exp.Aliases):
            names = [self.coverage.name(name) for name in self.coverage.nodes(item)]
        if len(names) != len(rows.columns):
            raise NoRule("as many names as columns")
        alias = f"r{next(self._counter)}"
        terms = [
            Typed(f"{alias}.{column.sql}", column.type, name) for name, column in zip(names, rows.columns, strict=True)
        ]
        return terms, rows.joined(alias)

    @staticmethod
    def _keyed(terms: list[Typed], expressions: Expressions) -> list[Typed]:
        return [Typed(expressions.keys.get(term.sql, term.sql), term.type, term.name) for term in terms]

    def _order_items(self, order: exp.Expression, outputs: Sequence[Typed], expressions: Expressions) -> str:
        items = self.coverage.nodes(order)
        key = self.coverage(items[0], "this")
        if isinstance(key, exp.Var) and str(self.coverage(key, "this")).upper() == "ALL":
            named_so = any(str(output.name).lower() == "all" for output in outputs)
            if len(items) > 1 or named_so or expressions.scope.own(["all"]) is not None or not outputs:
                raise NoRule("ORDER BY ALL beside other keys, or where something is called so")
            return ", ".join(expressions.ordered(items[0], output) for output in outputs)
        return ", ".join(self._order_item(item, outputs, expressions) for item in items)

    def _order_item(self, item: exp.Expression, outputs: Sequence[Typed], expressions: Expressions) -> str:
        if not isinstance(item, exp.Ordered):
            raise NoRule("ORDER BY of this kind")
        key = self.coverage(item, "this")
        if key.find(exp.Query):
            raise NoRule("a subquery in ORDER BY")
        number = self.coverage.number(key)
        if number is not None:
            place = int(number) if number.isdigit() else 0
            if not 1 <= place <= len(outputs):
                raise NoRule("ORDER BY the number of no column")
            return expressions.ordered(item, outputs[place - 1])
        if isinstance(key, exp.Column) and not key.table:
            named = [output for output in outputs if output.name and output.name.lower() == key.name.lower()]
            if len({output.sql for output in named}) > 1:
                raise NoRule(f"ORDER BY {key.name}, which several columns are called")
            if named:
                self.coverage.path(key)
                return expressions.ordered(item, named[0])
        term = expressions.term(key)
        if term.is_literal:
            raise NoRule("ORDER BY a constant")
        return expressions.ordered(item, term)

    def _limit(self, node: exp.Expression) -> str:
        text = ""
        for word in ("LIMIT", "OFFSET"):
            part = self.coverage(node, word.lower())
            if part is None:
                continue
            number = (
                self.coverage.number(self.coverage(part, "expression"))
                if isinstance(part, (exp.Limit, exp.Offset))
                else None
            )
            if number is None or not number.isdigit():
                raise NoRule(f"{word} by other than a number")
            text += f" {word} {number}"
        return text


def _by_name(outputs: Sequence[Typed]) -> dict[str, list[Typed]]:
    found: dict[str, list[Typed]] = {}
    for output in outputs:
        found.setdefault(str(output.name).lower(), []).append(output)
    return found


def _cast_column(item: exp.Expression) -> exp.Column | None:
    """Return the column of a CAST(column AS …) without anything else."""
    return item.this if isinstance(item, exp.Cast) and isinstance(item.this, exp.Column) else None
