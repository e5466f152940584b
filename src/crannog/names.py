"""Names of tables, and the value types that stand for numbers with a meaning."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NewType

from crannog.errors import CallerError

Sequence = NewType("Sequence", int)
"""The place of a staged change in commit order; the first is 1, and 0 means nothing yet."""

RAW_PREFIX = "__raw__"
OWN_CATALOG = "crannog"
"""Where Crannog keeps tables of its own: spans and what is derived from them, the audit log."""

# Letters, digits, underscore and hyphen keep a part safe as a folder name, in a URL and, quoted, in SQL.
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-]*")
_LONGEST_PART = 128


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table's name, `catalog.schema.table`; equal names are one table."""

    catalog: str
    schema: str
    table: str

    @classmethod
    def parse(cls, text: str | TableName) -> TableName:
        """Read `catalog.schema.table`; raises CallerError saying which part is wrong."""
        if isinstance(text, TableName):
            return text
        if not isinstance(text, str):
            raise CallerError(f"a table name is text like catalog.schema.table, got {type(text).__name__}")
        parts = text.split(".")
        if len(parts) != 3:
            raise CallerError(f"table name {text!r} has {len(parts)} part(s); give three, like catalog.schema.table")
        for label, part in zip(("catalog", "schema", "table"), parts, strict=True):
            _check_part(text, label, part)
        return cls(*parts)

    @property
    def path(self) -> str:
        """The table's folder below the warehouse."""
        return f"{self.catalog}/{self.schema}/{self.table}"

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.table}"


def first_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurred before; None if each occurs once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


AUDIT = TableName(OWN_CATALOG, "system", "audit")
"""The server's record of who asked for what."""


def _check_part(name: str, label: str, part: str) -> None:
    if not part:
        raise CallerError(f"table name {name!r} has an empty {label}; give three parts, like catalog.schema.table")
    if len(part) > _LONGEST_PART:
        raise CallerError(
            f"the {label} in table name {name[:60]!r}… has {len(part)} characters; {_LONGEST_PART} is the most"
        )
    if not _PART.fullmatch(part):
        raise CallerError(
            f"the {label} {part!r} in table name {name!r} may hold letters, digits, '_' and '-' only"
            " and starts with a letter, a digit or '_'"
        )
    # A leading underscore at the top would hide the table from Delta's readers; the engine's own folders live there.
    if part.startswith("_"):
        raise CallerError(f"the {label} {part!r} in table name {name!r} starts with '_', which is reserved")


def without_raw_prefix(name: str) -> tuple[str, bool]:
    """Return a table's name without the mark of its raw form, and whether it had it."""
    head, dot, last = str(name).rpartition(".")
    if last.startswith(RAW_PREFIX):
        return f"{head}{dot}{last.removeprefix(RAW_PREFIX)}", True
    return name, False
