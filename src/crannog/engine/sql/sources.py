"""Resolves the tables that a statement names to the snapshots to read."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import lru_cache

from crannog.delta.log import DeltaLog
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.engine.sql.duckdb_compiler.select import SourceShape
from crannog.engine.sql.statement import Statement
from crannog.engine.sql.table_names import TableRef
from crannog.engine.tables import Tables
from crannog.errors import CallerError, NotFound
from crannog.names import RAW_PREFIX, TableName
from crannog.settings import Settings


@dataclass(frozen=True)
class Source:
    """One use of a table in a statement, and the snapshot it reads."""

    ref: TableRef
    name: TableName
    table: OpenTable
    snapshot: Snapshot
    raw: bool
    travels: bool

    @property
    def is_current(self) -> bool:
        """Whether it reads the current table: only such a use can be served from memory."""
        return not self.raw and not self.travels

    @property
    def shape(self) -> SourceShape:
        qualifiers = (self.name.catalog.lower(), self.name.schema.lower(), self.ref.parts[-1].lower())
        return SourceShape(qualifiers, self.snapshot.base.read_schema)

    @property
    def schema_key(self) -> tuple[str, int]:
        """A key that changes when a compiled statement no longer fits the source."""
        return str(self.name), hash(self.snapshot.base.read_schema)


class Sources:
    """Resolves the sources of statements; a statement reads one snapshot of a table, however often it names it."""

    def __init__(self, tables: Tables, settings: Settings) -> None:
        self._tables = tables
        self._settings = settings
        self._written = lru_cache(maxsize=512)(_written)

    def of(self, statement: Statement) -> dict[int, Source]:
        """Return the sources by their position in the text. Raises NotFound with the missing table's name."""
        seen: dict[tuple[object, ...], Snapshot] = {}
        found = {}
        for ref in statement.tables:
            name, raw = self.table_named(ref.parts)
            table = self._tables.open(name)
            what = (name, ref.version, ref.timestamp)
            if what not in seen:
                seen[what] = self._snapshot(table, ref)
            found[ref.start] = Source(
                ref, name, table, seen[what], raw, ref.version is not None or ref.timestamp is not None
            )
        return found

    def table_named(self, parts: tuple[str, ...]) -> tuple[TableName, bool]:
        """Return the table of a name of one to three parts, ignoring case, and whether it is its raw form."""
        name, raw = self._written(parts, self._settings.default_catalog, self._settings.default_schema)
        return self._tables.spelled(name), raw

    def _snapshot(self, table: OpenTable, ref: TableRef) -> Snapshot:
        if ref.version is None and ref.timestamp is None:
            return table.snapshot()
        log = DeltaLog(table.warehouse.storage, table.folder)
        version = ref.version if ref.version is not None else _version_at(log, ref)
        # delta-rs waits forever for a version far above the head.
        newest = table.snapshot().base.version
        if version > newest:
            raise NotFound(
                f"{ref.written} has no version {str(version)[:40]}: the newest is {newest}; the table's history lists the readable versions"
            )
        base = log.at(version)
        return table.at_version(base)


def _written(parts: tuple[str, ...], catalog: str, schema: str) -> tuple[TableName, bool]:
    """Return the full name, with defaults for missing parts, and whether it is the raw form."""
    if len(parts) > 3:
        raise CallerError(f"a table name has up to three parts, got {'.'.join(parts)}")
    raw = parts[-1].startswith(RAW_PREFIX)
    left_out = [catalog, schema][: 3 - len(parts)]
    full = [*left_out, *parts[:-1], parts[-1].removeprefix(RAW_PREFIX)]
    return TableName.parse(".".join(full)), raw


def _version_at(log: DeltaLog, ref: TableRef) -> int:
    assert ref.timestamp is not None
    try:
        moment = dt.datetime.fromisoformat(ref.timestamp.strip())
    except ValueError:
        raise CallerError(f"TIMESTAMP AS OF takes a time like '2026-01-31 10:00:00', got {ref.timestamp!r}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    wanted = moment.timestamp() * 1000
    entries = [(entry["version"], entry["timestamp"]) for entry in log.history(None)]
    reached = [version for version, at in entries if at <= wanted]
    if not reached:
        first = dt.datetime.fromtimestamp(min(at for _, at in entries) / 1000, dt.UTC)
        raise NotFound(
            f"{ref.written} begins at {first.isoformat(sep=' ', timespec='milliseconds')}; {ref.timestamp} is earlier"
        )
    return int(max(reached))
