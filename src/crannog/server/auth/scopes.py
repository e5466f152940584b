"""What a caller may do, and where: `read`, `write` or `admin`, everywhere, in a catalog or in a schema."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crannog.engine.owned_tables import is_system
from crannog.errors import CallerError, Forbidden
from crannog.names import TableName

LEVELS = ("read", "write", "admin")
"""Each has all that stands before it."""


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """One right: a level, and the place it holds for; without a place it holds everywhere."""

    level: str
    catalog: str | None = None
    schema: str | None = None

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Read `level`, `level:catalog` or `level:catalog.schema`; CallerError says what is wrong."""
        level, colon, place = text.partition(":")
        if level not in LEVELS:
            raise CallerError(f"a scope begins with {', '.join(LEVELS[:-1])} or {LEVELS[-1]}, got {text!r}")
        if not colon:
            return cls(level)
        catalog, dot, schema = place.partition(".")
        # A table's name has the same rules for its parts; a made-up table lets it check them.
        TableName.parse(f"{catalog}.{schema if dot else 's'}.t")
        return cls(level, catalog, schema if dot else None)

    def holds_for(self, level: str, name: TableName) -> bool:
        if LEVELS.index(self.level) < LEVELS.index(level):
            return False
        return self.catalog in (None, name.catalog) and self.schema in (None, name.schema)

    def __str__(self) -> str:
        return self.level + (f":{self.catalog}" if self.catalog else "") + (f".{self.schema}" if self.schema else "")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what they may."""

    name: str
    scopes: tuple[Scope, ...]

    def may(self, level: str, name: TableName) -> bool:
        """Tell whether this is allowed on a table, whether there is such a table or not."""
        return any(scope.holds_for(_needed(level, name), name) for scope in self.scopes)

    def may_everywhere(self, level: str) -> bool:
        return any(scope.catalog is None and LEVELS.index(scope.level) >= LEVELS.index(level) for scope in self.scopes)

    def check(self, level: str, names: Iterable[TableName]) -> None:
        """Raise Forbidden, which names the table and the scope that is missing."""
        for name in names:
            if not self.may(level, name):
                raise Forbidden(
                    f"{self.name} may not {level} {name}: that takes the scope {_needed(level, name)}:{name.catalog}.{name.schema}"
                    f" or a wider one, the token has {', '.join(map(str, self.scopes)) or 'none'}"
                )


def _needed(level: str, name: TableName) -> str:
    # The server's own tables tell what everybody did, so only an admin reads them.
    return "admin" if is_system(name) else level


ANYBODY = Caller("local", (Scope("admin"),))
"""Whoever asks a server on loopback that has no tokens."""
