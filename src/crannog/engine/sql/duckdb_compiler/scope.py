"""Reads a statement: the arguments of its nodes, each accounted for, and the columns that its names mean.

Rules read arguments through `NodeCoverage` only. Arguments that they do not know, such as a PIVOT after a subquery, are
left over at the end, and then the compiled SQL must not be used: it would be another statement.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from crannog.engine.sql.duckdb_compiler.nested import field as field_of
from crannog.engine.sql.duckdb_compiler.terms import NoRule, Typed

_MOST_WRITTEN = 32 * 1024**2


class NodeCoverage:
    """Which arguments of which nodes have been read, and how much SQL was written for them."""

    def __init__(self) -> None:
        self._read: set[tuple[int, str]] = set()
        self._written = 0

    def written(self, sql: str) -> None:
        """Count the SQL of an expression. Raises NoRule if it becomes too much.

        Some rules repeat their argument, so that calls inside calls, and outputs made of outputs, grow exponentially.
        """
        self._written += len(sql)
        if self._written > _MOST_WRITTEN:
            raise NoRule("an expression whose parts grow this much")

    def __call__(self, node: exp.Expression, argument: str) -> Any:
        """Return an argument of a node, None if it is missing, and record that a rule has read it."""
        self._read.add((id(node), argument))
        value = node.args.get(argument)
        return None if _is_absent(value) else value

    def nodes(self, node: exp.Expression, argument: str = "expressions") -> list[exp.Expression]:
        """Return an argument that is a list of nodes; empty if it is missing."""
        return list(self(node, argument) or [])

    def name(self, identifier: exp.Expression) -> str:
        """Return the name of an identifier, quoted or not."""
        if not isinstance(identifier, exp.Identifier):
            raise NoRule(f"{identifier.key} as a name")
        self(identifier, "quoted")
        return str(self(identifier, "this"))

    def path(self, node: exp.Expression) -> list[str]:
        """Return the parts of a dotted name, outermost first."""
        if isinstance(node, exp.Identifier):
            return [self.name(node)]
        if isinstance(node, exp.Dot):
            return self.path(self(node, "this")) + self.path(self(node, "expression"))
        if isinstance(node, (exp.Column, exp.Table)):
            parts = ("catalog", "db", "table", "this") if isinstance(node, exp.Column) else ("catalog", "db", "this")
            return [name for part in parts if (inner := self(node, part)) is not None for name in self.path(inner)]
        raise NoRule(excerpt(node))

    def number(self, node: exp.Expression | None) -> str | None:
        """Return the digits of a literal number; None for anything else."""
        if not isinstance(node, exp.Literal) or self(node, "is_string"):
            return None
        return str(self(node, "this"))

    def operands(self, node: exp.Expression) -> list[exp.Expression]:
        """Return the sides of a chain of one operator, such as a AND b AND c."""
        found: list[exp.Expression] = []
        waiting: list[exp.Expression] = [node]
        while waiting:
            one = waiting.pop()
            if type(one) is type(node):
                waiting += [self(one, "expression"), self(one, "this")]
            else:
                found.append(one)
        return found

    def check_all(self, tree: exp.Expression) -> None:
        """Raise NoRule if an argument anywhere in the tree was not read."""
        for node in tree.walk():
            for argument, value in node.args.items():
                if not _is_absent(value) and (id(node), argument) not in self._read:
                    raise NoRule(f"{node.key} with {argument.rstrip('_')}")


def excerpt(node: exp.Expression) -> str:
    """Return the SQL of a node, as far as sqlglot can generate it."""
    try:
        return str(node.sql("spark"))[:60]
    except Exception:  # sqlglot's generator does not support everything that its parser produces
        return str(node.key)


def _is_absent(value: Any) -> bool:
    return value is None or value is False or value == [] or value == ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation: its name in the statement, its type, and its name in DuckDB's SQL."""

    name: str
    type: pa.DataType
    sql: str


@dataclass(frozen=True)
class Query:
    """DuckDB's SQL of a statement and its columns; `sql` of a column is its name in that SQL."""

    sql: str
    columns: tuple[Column, ...]


@dataclass(slots=True)
class Relation:
    """Something in a FROM: its alias in DuckDB's SQL, what the statement may call it, and its columns."""

    alias: str
    qualifiers: tuple[str, ...]
    columns: tuple[Column, ...]
    source: int | None = None
    # Rows of the other side of a join may have no row of this relation.
    optional: bool = False

    def called(self, qualifiers: Sequence[str]) -> bool:
        """Tell whether `qualifiers` (lower case, outermost first) refer to this relation."""
        return bool(qualifiers) and tuple(self.qualifiers[-len(qualifiers) :]) == tuple(qualifiers)

    def term(self, column: Column, written: str | None = None) -> Typed:
        place = (self.source, column.name) if self.source is not None else None
        return Typed(f"{self.alias}.{column.sql}", column.type, written or column.name, column=place)


class UnknownName(NoRule):
    """A name that no relation in scope has; Spark may still know it, as an alias or a function without parentheses."""

    def __init__(self, parts: Sequence[str], columns: Sequence[str]) -> None:
        super().__init__(f"the name {'.'.join(parts)} is not among the columns")
        self.parts = tuple(parts)
        self.columns = tuple(columns)


class Scope:
    """The relations of one SELECT; `outer` is that of the statement around it."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.relations: list[Relation] = []
        self.outer = outer
        # After a join with USING: the columns that `*` and names without a table mean.
        self.visible: list[Typed] | None = None
        # For each join with USING the columns of both sides that it joins by, and their places in USING.
        self.using: list[dict[str, int]] = []
        # Whether a subquery has used a column of this scope or of an outer one.
        self.used_inside = False

    def resolve(self, parts: Sequence[str]) -> Typed:
        """Return the column of a dotted name. Raises NoRule unless there is exactly one."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.own(parts)
            if found is not None:
                if scope is self:
                    return found
                between: Scope | None = self.outer
                while between is not None:
                    between.used_inside = True
                    between = None if between is scope else between.outer
                return Typed(found.sql, found.type, found.name)
            scope = scope.outer
        raise UnknownName(parts, [column.name for relation in self.relations for column in relation.columns])

    def own(self, parts: Sequence[str]) -> Typed | None:
        """Return the column of a dotted name in this scope alone."""
        lowered = [part.lower() for part in parts]
        for count in range(min(3, len(parts) - 1), -1, -1):
            if count == 0 and self.visible is not None:
                return self._visible(parts)
            found = [
                (relation, column)
                for relation in self.relations
                if not count or relation.called(lowered[:count])
                for column in relation.columns
                if column.name.lower() == lowered[count]
            ]
            if len(found) > 1:
                raise NoRule(f"the name {'.'.join(parts)} may mean several columns")
            if found:
                relation, column = found[0]
                return functools.reduce(field_of, parts[count + 1 :], relation.term(column, parts[count]))
        return None

    def _visible(self, parts: Sequence[str]) -> Typed | None:
        found = [term for term in self.visible or () if str(term.name).lower() == parts[0].lower()]
        if len(found) > 1:
            raise NoRule(f"the name {'.'.join(parts)} may mean several columns")
        return functools.reduce(field_of, parts[1:], replace(found[0], name=parts[0])) if found else None

    def visible_columns(self) -> list[Typed]:
        """Return what `*` means so far."""
        if self.visible is not None:
            return list(self.visible)
        return [relation.term(column) for relation in self.relations for column in relation.columns]

    def star(self, qualifiers: Sequence[str] = ()) -> list[Typed]:
        """Return the columns of `*` or `name.*`."""
        lowered = [part.lower() for part in qualifiers]
        chosen = [relation for relation in self.relations if not lowered or relation.called(lowered)]
        if not chosen:
            raise NoRule(f"{'.'.join(qualifiers)}.* names no relation")
        if not lowered:
            return self.visible_columns()
        columns = [relation.term(column) for relation in chosen for column in relation.columns]
        if len(self.using) > 1:
            raise NoRule("name.* over several joins with USING")
        for places in self.using:
            # The columns joined by are first, in the order of USING.
            columns.sort(key=lambda term: places.get(term.sql, len(places)))
        return columns
