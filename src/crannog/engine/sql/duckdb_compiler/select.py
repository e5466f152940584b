"""SELECT, joins, grouping, set operations, WITH: from the tree to DuckDB's SQL.

Every relation and every column gets a generated name, so that DuckDB's own rules for names never matter. Sources are
placeholders in the SQL, filled in when it runs: one compiled statement serves every snapshot of the same schema.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from sqlglot import exp

from crannog.engine.duckdb.engine import quoted
from crannog.engine.sql.duckdb_compiler.aggregates import plain_zero
from crannog.engine.sql.duckdb_compiler.expression_base import atomic
from crannog.engine.sql.duckdb_compiler.expressions import Expressions
from crannog.engine.sql.duckdb_compiler.grouping import Grouping
from crannog.engine.sql.duckdb_compiler.operators import boolean
from crannog.engine.sql.duckdb_compiler.scope import Column, NodeCoverage, Relation, Scope, excerpt
from crannog.engine.sql.duckdb_compiler.spelling import Spelling
from crannog.engine.sql.duckdb_compiler.subqueries import conjuncts
from crannog.engine.sql.duckdb_compiler.terms import Condition, NoRule, Typed, widened
from crannog.engine.sql.spark_types import is_atomic, plain_schema, widest
from crannog.engine.sql.statement import Statement

_NULL_REJECTING = {"=", "<", ">", "<=", ">=", "in", "prefix", "is not null"}


@dataclass(frozen=True)
class Query:
    """DuckDB's SQL of a statement and its columns; `sql` of a column is its name in that SQL."""

    sql: str
    columns: tuple[Column, ...]


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


def placeholder(source: int) -> str:
    """Return the placeholder of a source in the SQL; no statement can contain its character."""
    return f"\0{source}\0"


@dataclass(frozen=True, slots=True)
class SourceShape:
    """What the compiler must know of a table: the names it may be called by, and its columns."""

    qualifiers: tuple[str, ...]
    schema: pa.Schema


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
    if compiler.sources != set(shapes):
        raise NoRule("a table that the syntax tree does not show")
    conditions = {source: tuple(found) for source, found in compiler.conditions.items()}
    limit = statement.tree.args.get("limit")
    return Compiled(
        query.sql, query.columns, conditions, compiler.uses_now, None if limit is None else int(limit.expression.name)
    )


@dataclass
class _Compiler:
    statement: Statement
    shapes: Mapping[int, SourceShape]
    now: dt.datetime
    conditions: dict[int, list[Condition]] = field(default_factory=dict)
    uses_now: bool = False
    coverage: NodeCoverage = field(default_factory=NodeCoverage)
    sources: set[int] = field(default_factory=set)
    _counter: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._refs = {ref.start: ref for ref in self.statement.tables}
        self._spelling = Spelling(self.statement)
        if self.statement.has_odd_strings:
            raise NoRule("an escape inside a text")
        assert self.statement.tree is not None
        for name in self.statement.tree.find_all(exp.Identifier):
            # Spark accepts other letters only between backquotes.
            if not name.quoted and not name.name.isascii():
                raise NoRule(f"the name {name.name} without quotes")

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
            ending = " ORDER BY " + ", ".join(
                self._order_item(item, outputs, expressions) for item in self.coverage.nodes(order)
            )
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

    def _now(self) -> dt.datetime:
        self.uses_now = True
        return self.now

    # -- select ------------------------------------------------------------------------------------------------

    def _expressions(
        self, scope: Scope, ctes: Mapping[str, Relation], windows: Mapping[str, exp.Window]
    ) -> Expressions:
        return Expressions(
            scope,
            self.coverage,
            lambda node, outer: self.query(node, outer, ctes),
            self._now,
            windows,
            lambda: f"r{next(self._counter)}",
            self._spelling,
        )

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
            condition = _condition(expressions.truth(condition_node))
            self._note(scope.relations, condition.conditions)
            where = f" WHERE {condition.sql}"
        group = Grouping(node, expressions, self.coverage).sql()
        outputs = self._outputs(node, expressions)
        # Of no rows, Spark makes no grand total.
        conditions = ["count(*) > 0"] if expressions.grouping else []
        having_node = self._inside(node, "having")
        if having_node is not None:
            expressions.conjuncts |= conjuncts(having_node)
            conditions.append(_condition(expressions.truth(having_node)).sql)
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
            ending = " ORDER BY " + ", ".join(
                self._order_item(item, outputs, expressions) for item in self.coverage.nodes(order)
            )
        return Query(f"SELECT {body}{ending}{limit}", tuple(columns))

    def _inside(self, node: exp.Expression, clause: str) -> exp.Expression | None:
        """Return the condition of WHERE or HAVING."""
        found = self.coverage(node, clause)
        inner: exp.Expression | None = None if found is None else self.coverage(found, "this")
        return inner

    def _ignore(self, tree: exp.Expression) -> None:
        for node in tree.walk():
            for argument in node.args:
                self.coverage(node, argument)

    def _outputs(self, node: exp.Select, expressions: Expressions) -> list[Typed]:
        outputs: list[Typed] = []
        for item in self.coverage.nodes(node):
            if isinstance(item, exp.Star):
                outputs += self._keyed(expressions.scope.star(), expressions)
            elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
                self.coverage(item, "this")
                qualifiers = [
                    self.coverage.name(part) for key in ("catalog", "db", "table") if (part := self.coverage(item, key))
                ]
                outputs += self._keyed(expressions.scope.star(qualifiers), expressions)
            elif isinstance(item, exp.Alias):
                term = expressions.truth(self.coverage(item, "this"))
                named = Typed(term.sql, term.type, self.coverage.name(self.coverage(item, "alias")), term.literal)
                outputs.append(named)
                expressions.outputs.setdefault(str(named.name).lower(), []).append(named)
            else:
                term = expressions.truth(item)
                # Spark names a cast column after the column, but not a cast field.
                inner = _cast_column(item)
                of = expressions.term(inner).name if inner else None
                shown = of if inner and of == self.coverage.path(inner)[-1] else term.name
                # By itself a field of a struct is named after the field; inside an expression Spark shows the path.
                if isinstance(item, exp.Column):
                    shown = self.coverage.path(item)[-1]
                elif isinstance(item, exp.Dot):
                    shown = self.coverage.name(self.coverage(item, "expression"))
                outputs.append(Typed(term.sql, term.type, shown, term.literal))
        return outputs

    @staticmethod
    def _keyed(terms: list[Typed], expressions: Expressions) -> list[Typed]:
        return [Typed(expressions.keys.get(term.sql, term.sql), term.type, term.name) for term in terms]

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

    # -- from --------------------------------------------------------------------------------------------------

    def _from(self, node: exp.Select, scope: Scope, ctes: Mapping[str, Relation]) -> str:
        from_ = self.coverage(node, "from_")
        if from_ is None:
            return ""
        first = self.coverage(from_, "this")
        sql = f" FROM {self._relation(first, scope, ctes)}"
        for join in [*self.coverage.nodes(first, "joins"), *self.coverage.nodes(node, "joins")]:
            sql += self._join(join, scope, ctes)
        return sql

    def _relation(self, node: exp.Expression, scope: Scope, ctes: Mapping[str, Relation]) -> str:
        alias = f"r{next(self._counter)}"
        alias_node = self.coverage(node, "alias")
        if isinstance(node, exp.Table):
            if not isinstance(node.this, exp.Identifier):
                raise NoRule(f"the table function {excerpt(node)}")
            ref = self._refs.get(node.parts[0].meta.get("start", -1))
            parts = self.coverage.path(node)
            if ref is not None:
                self._take_travel(node, travels=ref.version is not None or ref.timestamp is not None)
                self.sources.add(ref.start)
                shape = self.shapes[ref.start]
                columns = tuple(Column(column.name, column.type, quoted(column.name)) for column in shape.schema)
                called, renamed = self._renamed(columns, alias_node)
                source = ref.start if renamed is columns else None
                scope.relations.append(
                    Relation(alias, shape.qualifiers if called is None else (called,), renamed, source=source)
                )
                return f"{placeholder(ref.start)} AS {alias}"
            cte = ctes.get(parts[0].lower()) if len(parts) == 1 else None
            if cte is None:
                raise NoRule(f"the relation {'.'.join(parts)[:60]}")
            called, renamed = self._renamed(cte.columns, alias_node)
            scope.relations.append(Relation(alias, cte.qualifiers if called is None else (called,), renamed))
            return f"{cte.alias} AS {alias}"
        if isinstance(node, (exp.Subquery, exp.Values)):
            query = self._values(node) if isinstance(node, exp.Values) else self.query(node, None, ctes)
            called, renamed = self._renamed(query.columns, alias_node)
            scope.relations.append(Relation(alias, () if called is None else (called,), renamed))
            return f"({query.sql}) AS {alias}"
        raise NoRule(f"{node.key} in FROM")

    def _take_travel(self, node: exp.Table, *, travels: bool) -> None:
        """Mark time travel as read: it was parsed with the table's name, and its snapshot has it."""
        version = self.coverage(node, "version")
        if (version is not None) != travels:
            raise NoRule("time travel of this kind")
        if version is not None:
            self._ignore(version)

    def _renamed(
        self, columns: tuple[Column, ...], alias: exp.Expression | None
    ) -> tuple[str | None, tuple[Column, ...]]:
        """Return an alias in lower case, or None, and the columns under the names it gives."""
        if alias is None:
            return None, columns
        if not isinstance(alias, exp.TableAlias):
            raise NoRule(f"{alias.key} as an alias")
        name = self.coverage(alias, "this")
        called = None if name is None else self.coverage.name(name).lower()
        names = [self.coverage.name(one) for one in self.coverage.nodes(alias, "columns")]
        if not names:
            return called, columns
        if len(names) != len(columns):
            raise NoRule("as many names as columns")
        return called, tuple(Column(one, column.type, column.sql) for one, column in zip(names, columns, strict=True))

    def _join(self, join: exp.Join, scope: Scope, ctes: Mapping[str, Relation]) -> str:
        side, kind = (str(self.coverage(join, part) or "").upper() for part in ("side", "kind"))
        before = list(scope.relations)
        right_sql = self._relation(self.coverage(join, "this"), scope, ctes)
        joined = scope.relations[len(before) :]
        on = self.coverage(join, "on")
        using = [self.coverage.name(part) for part in self.coverage.nodes(join, "using")]
        expressions = self._expressions(scope, ctes, {})
        if using:
            return self._using(side, kind, using, before, joined[0], right_sql)
        if kind == "CROSS" or (on is None and not side and kind in ("", "INNER")):
            if on is not None or side:
                raise NoRule("CROSS JOIN of this kind")
            return f" CROSS JOIN {right_sql}"
        if on is None:
            raise NoRule(f"{side} {kind} JOIN without ON")
        if on.find(exp.Query):
            raise NoRule("a subquery in the condition of a join")
        condition = _condition(expressions.term(on))
        if kind in ("SEMI", "ANTI"):
            if side not in ("", "LEFT"):
                raise NoRule(f"{side} {kind} JOIN")
            prunes = before + joined if kind == "SEMI" else joined
            self._note(prunes, condition.conditions)
            del scope.relations[len(before) :]
            return f" {kind} JOIN {right_sql} ON {condition.sql}"
        if kind not in ("", "INNER", "OUTER"):
            raise NoRule(f"{kind} JOIN")
        if side == "":
            self._note(before + joined, condition.conditions)
            return f" JOIN {right_sql} ON {condition.sql}"
        if side in ("LEFT", "FULL"):
            for relation in joined:
                relation.optional = True
        if side in ("RIGHT", "FULL"):
            for relation in before:
                relation.optional = True
        if side != "FULL":
            self._note(joined if side == "LEFT" else before, condition.conditions)
        return f" {side} JOIN {right_sql} ON {condition.sql}"

    def _using(
        self, side: str, kind: str, names: list[str], before: list[Relation], right: Relation, right_sql: str
    ) -> str:
        if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
            raise NoRule("USING in this kind of join")
        matches = []
        for name in names:
            left = Scope()
            left.relations = before
            one = left.resolve([name])
            found = [column for column in right.columns if column.name.lower() == name.lower()]
            if len(found) != 1 or found[0].type != one.type or not is_atomic(one.type):
                raise NoRule("USING over different types")
            matches.append(f"{one.sql} = {right.alias}.{found[0].sql}")
            right.merged.add(name.lower())
        right.optional = side == "LEFT"
        return f" {side + ' ' if side else ''}JOIN {right_sql} ON ({' AND '.join(matches)})"

    def _note(self, relations: Sequence[Relation], conditions: Sequence[Condition]) -> None:
        """Record the conditions that every relevant row of a source must meet."""
        sources = {relation.source: relation for relation in relations if relation.source is not None}
        for condition in conditions:
            relation = sources.get(condition.source)
            if relation is not None and (condition.operator in _NULL_REJECTING or not relation.optional):
                self.conditions.setdefault(condition.source, []).append(condition)


def _by_name(outputs: Sequence[Typed]) -> dict[str, list[Typed]]:
    found: dict[str, list[Typed]] = {}
    for output in outputs:
        found.setdefault(str(output.name).lower(), []).append(output)
    return found


def _condition(term: Typed) -> Typed:
    if term.type == pa.null():
        raise NoRule("NULL as a whole condition")
    return boolean(term)


def _cast_column(item: exp.Expression) -> exp.Column | None:
    """Return the column of a CAST(column AS …) without anything else."""
    return item.this if isinstance(item, exp.Cast) and isinstance(item.this, exp.Column) else None
