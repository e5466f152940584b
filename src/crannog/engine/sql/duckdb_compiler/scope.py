"""Resolves names to columns of the relations in scope, and of the outer statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from crannog.engine.sql.duckdb_compiler.terms import NoRule, Typed


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation: its name in the statement, its type, and its name in DuckDB's SQL."""

    name: str
    type: pa.DataType
    sql: str


@dataclass(slots=True)
class Relation:
    """Something in a FROM: its alias in DuckDB's SQL, what the statement may call it, and its columns."""

    alias: str
    qualifiers: tuple[str, ...]
    columns: tuple[Column, ...]
    source: int | None = None
    # Rows of the other side of a join may have no row of this relation.
    optional: bool = False
    # Columns that USING merged with another relation's, by lower-case name.
    merged: set[str] = field(default_factory=set)

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
        # Whether a subquery has used a column of this scope or of an outer one.
        self.used_inside = False

    def resolve(self, parts: Sequence[str]) -> Typed:
        """Return the column of a dotted name. Raises NoRule unless there is exactly one."""
        scope: Scope | None = self
        while scope is not None:
            found = scope._resolve(parts)
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

    def _resolve(self, parts: Sequence[str]) -> Typed | None:
        lowered = [part.lower() for part in parts]
        for count in range(min(3, len(parts) - 1), -1, -1):
            found = [
                (relation, column)
                for relation in self.relations
                if not count or relation.called(lowered[:count])
                for column in relation.columns
                if column.name.lower() == lowered[count] and (count or lowered[count] not in relation.merged)
            ]
            if len(found) > 1:
                raise NoRule(f"the name {'.'.join(parts)} may mean several columns")
            if found:
                relation, column = found[0]
                return _inside(relation.term(column, parts[count]), parts[count + 1 :])
        return None

    def star(self, qualifiers: Sequence[str] = ()) -> list[Typed]:
        """Return the columns of `*` or `name.*`."""
        lowered = [part.lower() for part in qualifiers]
        chosen = [relation for relation in self.relations if not lowered or relation.called(lowered)]
        if not chosen:
            raise NoRule(f"{'.'.join(qualifiers)}.* names no relation")
        if any(relation.merged for relation in self.relations) and not lowered:
            raise NoRule("* over a join with USING")
        return [relation.term(column) for relation in chosen for column in relation.columns]


def _inside(term: Typed, path: Sequence[str]) -> Typed:
    for part in path:
        if not pa.types.is_struct(term.type):
            raise NoRule(f"{part} inside {term.name}")
        fields = [inner for inner in term.type if inner.name.lower() == part.lower()]
        if len(fields) != 1:
            raise NoRule(f"{part} inside {term.name}")
        # By itself such a column is named after the field; inside an expression Spark shows the path in its own form.
        term = Typed(f"struct_extract({term.sql}, '{fields[0].name.replace(chr(39), chr(39) * 2)}')", fields[0].type)
    return term
