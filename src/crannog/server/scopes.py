"""Who may do what: scopes, and the callers that have them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crannog.engine.owned_tables import is_system
from crannog.errors import CallerError, Forbidden
from crannog.names import TableName

LEVELS = ("ingest", "read", "write", "admin")
"""The levels of scopes. The system tables show what all callers did, so only an admin may read them."""
# Senders need the columns and the key of a table, which show nothing of its rows. No scope has that level alone.
_SCHEMA = "schema"
_INCLUDED = {
    "ingest": frozenset({"ingest", _SCHEMA}),
    "read": frozenset({"read", _SCHEMA}),
    "write": frozenset({"ingest", "read", "write", _SCHEMA}),
    "admin": frozenset({"ingest", "read", "write", "admin", _SCHEMA}),
}
# What an error calls a level that callers do not know by its name.
_VERBS = {"ingest": "write", _SCHEMA: "read"}


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """One right: a level, and the catalog or schema that it applies to; without one it applies everywhere."""

    level: str
    catalog: str | None = None
    schema: str | None = None

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Read `level`, `level:catalog` or `level:catalog.schema`. Raises CallerError if it is invalid."""
        level, colon, place = text.partition(":")
        if level not in LEVELS:
            raise CallerError(f"a scope begins with {', '.join(LEVELS[:-1])} or {LEVELS[-1]}, got {text!r}")
        if not colon:
            return cls(level)
        catalog, dot, schema = place.partition(".")
        # The parts follow the rules of table names, so a table name checks them.
        TableName.parse(f"{catalog}.{schema if dot else 's'}.t")
        return cls(level, catalog, schema if dot else None)

    def allows(self, level: str, name: TableName) -> bool:
        """Return whether this right covers a level on a table."""
        if level not in _INCLUDED[self.level] or (self.level != "admin" and is_system(name)):
            return False
        return self.catalog in (None, name.catalog) and self.schema in (None, name.schema)

    def __str__(self) -> str:
        return self.level + (f":{self.catalog}" if self.catalog else "") + (f".{self.schema}" if self.schema else "")


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, and its rights."""

    name: str
    scopes: tuple[Scope, ...]

    @property
    def owner(self) -> str:
        """What the ids of this caller's queries belong to; empty where there are no tokens, as in the process itself."""
        return "" if self is ANYBODY else self.name

    def may(self, level: str, name: TableName) -> bool:
        """Return whether this is allowed on a table, which need not exist."""
        return any(scope.allows(level, name) for scope in self.scopes)

    def may_everywhere(self, level: str) -> bool:
        """Return whether this is allowed on all tables."""
        return any(scope.catalog is None and level in _INCLUDED[scope.level] for scope in self.scopes)

    def check(self, level: str, names: Iterable[TableName]) -> None:
        """Raise Forbidden, with the missing scope, unless this is allowed on all these tables."""
        for name in names:
            if not self.may(level, name):
                needed = "admin" if is_system(name) else "read" if level == _SCHEMA else level
                raise Forbidden(
                    f"{self.name} may not {_VERBS.get(level, level)} {name}:"
                    f" that needs the scope {needed}:{name.catalog}.{name.schema}"
                    f" or a wider one, the token has {', '.join(map(str, self.scopes)) or 'none'}"
                )


ANYBODY = Caller("local", (Scope("admin"),))
"""The caller of a server on loopback that has no tokens."""
NOBODY = Caller("nobody", ())
"""The caller of a request without a valid token."""
