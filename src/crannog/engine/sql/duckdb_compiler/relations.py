"""FROM: tables, subqueries, joins and what generates rows, from the tree to DuckDB's SQL."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from crannog.engine.duckdb.engine import quoted
from crannog.engine.sql.duckdb_compiler import generators, operators
from crannog.engine.sql.duckdb_compiler.expressions import Expressions
from crannog.engine.sql.duckdb_compiler.scope import Column, NodeCoverage, Query, Relation, Scope, excerpt
from crannog.engine.sql.duckdb_compiler.spelling import Spelling
from crannog.engine.sql.duckdb_compiler.terms import Condition, NoRule, Typed, widened
from crannog.engine.sql.statement import Statement

_NULL_REJECTING = {"=", "<", ">", "<=", ">=", "in", "prefix", "is not null"}


def placeholder(source: int) -> str:
    """Return the placeholder of a source in the SQL; no statement can contain its character."""
    return f"\0{source}\0"


@dataclass(frozen=True, slots=True)
class SourceShape:
    """What the compiler must know of a table: the names it may be called by, and its columns."""

    qualifiers: tuple[str, ...]
    schema: pa.Schema


@dataclass
class Relations:
    """What compiling one statement needs to know, and the rules of FROM."""

    statement: Statement
    shapes: Mapping[int, SourceShape]
    now: dt.datetime
    conditions: dict[int, list[Condition]] = field(default_factory=dict)
    uses_now: bool = False
    coverage: NodeCoverage = field(default_factory=NodeCoverage)
    sources: set[int] = field(default_factory=set)
    # The parts of WITH by their names in DuckDB's SQL that nothing has used yet.
    unused_parts: set[str] = field(default_factory=set)
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

    def query(self, node: exp.Expression, outer: Scope | None, ctes: Mapping[str, Relation]) -> Query:
        """Compile a statement, or one inside another."""
        raise NotImplementedError

    def _values(self, node: exp.Values) -> Query:
        raise NotImplementedError

    def _now(self) -> dt.datetime:
        self.uses_now = True
        return self.now

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

    def _ignore(self, tree: exp.Expression) -> None:
        for node in tree.walk():
            for argument in node.args:
                self.coverage(node, argument)

    def _from(self, node: exp.Select, scope: Scope, ctes: Mapping[str, Relation]) -> str:
        from_ = self.coverage(node, "from_")
        if from_ is None:
            return ""
        first = self.coverage(from_, "this")
        sql = f" FROM {self._relation(first, scope, ctes)}"
        for join in [*self.coverage.nodes(first, "joins"), *self.coverage.nodes(node, "joins")]:
            sql += self._join(join, scope, ctes)
        for view in [*self.coverage.nodes(first, "laterals"), *self.coverage.nodes(node, "laterals")]:
            sql += self._lateral_view(view, scope, ctes)
        return sql

    def _relation(self, node: exp.Expression, scope: Scope, ctes: Mapping[str, Relation]) -> str:
        alias = f"r{next(self._counter)}"
        alias_node = self.coverage(node, "alias")
        if isinstance(node, exp.Table):
            if isinstance(node.this, exp.Anonymous):
                return self._table_function(node, alias, alias_node, scope)
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
            self.unused_parts.discard(cte.alias)
            called, renamed = self._renamed(cte.columns, alias_node)
            scope.relations.append(Relation(alias, cte.qualifiers if called is None else (called,), renamed))
            return f"{cte.alias} AS {alias}"
        if isinstance(node, (exp.Subquery, exp.Values)):
            query = self._values(node) if isinstance(node, exp.Values) else self.query(node, None, ctes)
            called, renamed = self._renamed(query.columns, alias_node)
            scope.relations.append(Relation(alias, () if called is None else (called,), renamed))
            return f"({query.sql}) AS {alias}"
        raise NoRule(f"{node.key} in FROM")

    def _table_function(self, node: exp.Table, alias: str, alias_node: exp.Expression | None, scope: Scope) -> str:
        call = self.coverage(node, "this")
        if str(self.coverage(call, "this")).lower() != "range":
            raise NoRule(f"the table function {excerpt(call)}")
        constants = self._expressions(Scope(), {}, {})
        query = generators.numbers([constants.term(argument) for argument in self.coverage.nodes(call)])
        called, renamed = self._renamed(query.columns, alias_node)
        scope.relations.append(Relation(alias, () if called is None else (called,), renamed))
        return f"({query.sql}) AS {alias}"

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
        method = str(self.coverage(join, "method") or "").upper()
        before = scope.visible_columns()
        left = list(scope.relations)
        right_sql = self._relation(self.coverage(join, "this"), scope, ctes)
        joined = scope.relations[len(left) :]
        on = self.coverage(join, "on")
        using = [self.coverage.name(part) for part in self.coverage.nodes(join, "using")]
        if method:
            if method != "NATURAL" or on is not None or using:
                raise NoRule(f"{method} JOIN of this kind")
            using = _common_names(before, joined[0])
        if scope.visible is not None:
            scope.visible += [joined[0].term(column) for column in joined[0].columns]
        if using:
            condition = self._using(side, kind, using, before, joined[0], scope)
        elif kind == "CROSS" or (on is None and not side and kind in ("", "INNER")):
            if on is not None or side:
                raise NoRule("CROSS JOIN of this kind")
            return f" CROSS JOIN {right_sql}"
        elif on is None:
            raise NoRule(f"{side} {kind} JOIN without ON")
        elif on.find(exp.Query):
            raise NoRule("a subquery in the condition of a join")
        else:
            condition = condition_of(self._expressions(scope, ctes, {}).term(on))
        return self._joined(side, kind, condition, left, scope, right_sql)

    def _joined(
        self, side: str, kind: str, condition: Typed, left: list[Relation], scope: Scope, right_sql: str
    ) -> str:
        joined = scope.relations[len(left) :]
        if kind in ("SEMI", "ANTI"):
            if side not in ("", "LEFT"):
                raise NoRule(f"{side} {kind} JOIN")
            self._note(left + joined if kind == "SEMI" else joined, condition.conditions)
            del scope.relations[len(left) :]
            if scope.visible is not None:
                hidden = {f"{relation.alias}.{column.sql}" for relation in joined for column in relation.columns}
                scope.visible = [term for term in scope.visible if term.sql not in hidden]
            return f" {kind} JOIN {right_sql} ON {condition.sql}"
        if kind not in ("", "INNER", "OUTER"):
            raise NoRule(f"{kind} JOIN")
        if side == "":
            self._note(left + joined, condition.conditions)
            return f" JOIN {right_sql} ON {condition.sql}"
        if side in ("LEFT", "FULL"):
            for relation in joined:
                relation.optional = True
        if side in ("RIGHT", "FULL"):
            for relation in left:
                relation.optional = True
        if side != "FULL":
            self._note(joined if side == "LEFT" else left, condition.conditions)
        return f" {side} JOIN {right_sql} ON {condition.sql}"

    def _using(
        self, side: str, kind: str, names: list[str], before: list[Typed], right: Relation, scope: Scope
    ) -> Typed:
        """Return the condition of USING or NATURAL. Afterwards the columns that both sides have are visible once, first."""
        keys: list[Typed] = []
        matches: list[str] = []
        hidden: dict[str, int] = {}
        for place, name in enumerate(names):
            found = [term for term in before if str(term.name).lower() == name.lower()]
            others = [right.term(column) for column in right.columns if column.name.lower() == name.lower()]
            if len(found) != 1 or len(others) != 1:
                raise NoRule(f"USING {name}, which is not one column of each side")
            [one], [other] = found, others
            matches.append(operators.comparison("=", one, other).sql)
            if side == "FULL":
                kind_ = operators.common([one, other])
                sides = [widened(term, kind_).sql for term in (one, other)]
                keys.append(Typed(f"coalesce({', '.join(sides)})", kind_, one.name))
            else:
                keys.append(other if side == "RIGHT" else one)
            hidden |= {one.sql: place, other.sql: place}
        shown = [*before, *(right.term(column) for column in right.columns)]
        scope.visible = keys + [term for term in shown if term.sql not in hidden]
        scope.using.append(hidden)
        return Typed(f"({' AND '.join(matches)})", pa.bool_())

    # -- generators --------------------------------------------------------------------------------------------

    def _lateral_view(self, view: exp.Expression, scope: Scope, ctes: Mapping[str, Relation]) -> str:
        if not isinstance(view, exp.Lateral) or not self.coverage(view, "view"):
            raise NoRule(f"{view.key} in FROM")
        rows = generators.rows_of(self.coverage, self.coverage(view, "this"), self._expressions(scope, ctes, {}).term)
        called, renamed = self._renamed(rows.columns, self.coverage(view, "alias"))
        alias = f"r{next(self._counter)}"
        relation = Relation(alias, () if called is None else (called,), renamed, optional=True)
        scope.relations.append(relation)
        if scope.visible is not None:
            scope.visible += [relation.term(column) for column in renamed]
        return rows.joined(alias, outer=bool(self.coverage(view, "outer")))

    def _note(self, relations: Sequence[Relation], conditions: Sequence[Condition]) -> None:
        """Record the conditions that every relevant row of a source must meet."""
        sources = {relation.source: relation for relation in relations if relation.source is not None}
        for condition in conditions:
            relation = sources.get(condition.source)
            if relation is not None and (condition.operator in _NULL_REJECTING or not relation.optional):
                self.conditions.setdefault(condition.source, []).append(condition)


def _common_names(before: list[Typed], right: Relation) -> list[str]:
    """Return the columns that NATURAL joins by, in the order of the left side."""
    names = [str(term.name) for term in before]
    others = [column.name for column in right.columns]
    common = [name for name in names if name in others]
    if len(common) != len({name.lower() for name in names} & {name.lower() for name in others}):
        raise NoRule("NATURAL JOIN of names that differ in case")
    if not common:
        raise NoRule("NATURAL JOIN without a common column")
    return common


def condition_of(term: Typed) -> Typed:
    if term.type == pa.null():
        raise NoRule("NULL as a whole condition")
    return operators.boolean(term)
