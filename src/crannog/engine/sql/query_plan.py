"""The plan of a statement: the snapshots it reads, its compiled form, the files that are left, the engine, and why."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from sqlglot import exp

from crannog.api.result import TableReport
from crannog.delta.log import DeltaLog
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.engine.sql.duckdb_compiler import Compiled, NoRule, compile_statement
from crannog.engine.sql.duckdb_compiler.relations import SourceShape
from crannog.engine.sql.duckdb_compiler.scope import UnknownName
from crannog.engine.sql.file_pruning import Pruned, pruned
from crannog.engine.sql.function_calls import KNOWN
from crannog.engine.sql.run_on_duckdb import FallBackToSpark
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


_FILES = re.compile(r"(?:file:|s3a?:|gs:|abfss?:|az:)?/+[^\s,\[\]()'\"]+\.parquet")
_PLAIN_NAME = re.compile(r"[a-z_]\w*")
# The first argument of date_add, datediff and their relatives may be one of these.
_UNITS = frozenset(
    ["year", "quarter", "month", "week", "day", "dayofyear", "hour", "minute", "second", "millisecond", "microsecond"]
)
# A read of more bytes may take longer than the retention floor allows for: it takes a lease.
_LONG_READ_BYTES = 256 * 1024**2


@dataclass(frozen=True)
class Unsupported:
    """Why only Spark can run a statement; `error` is the error that Spark would raise, if known."""

    reason: str
    error: CallerError | None = None


@dataclass(frozen=True)
class QueryPlan:
    """A statement with its sources, its compiled form, and the files left after pruning."""

    statement: Statement
    sources: Mapping[int, Source]
    outcome: Compiled | Unsupported
    _pruned: dict[int, Pruned] = field(default_factory=dict)

    @property
    def compiled(self) -> Compiled:
        """The compiled statement; only for a plan that DuckDB runs."""
        assert isinstance(self.outcome, Compiled)
        return self.outcome

    @property
    def unsupported(self) -> Unsupported | None:
        return self.outcome if isinstance(self.outcome, Unsupported) else None

    def pruned(self, start: int) -> Pruned:
        """Return the files left of a source; computed on demand, since a source in memory needs no pruning."""
        if start not in self._pruned:
            conditions = () if self.unsupported else self.compiled.conditions.get(start, ())
            self._pruned[start] = pruned(self.sources[start].snapshot.base, conditions)
        return self._pruned[start]

    @property
    def table_names(self) -> list[str]:
        return sorted({str(source.name) for source in self.sources.values()})

    def scan_bytes(self, hot: Mapping[int, str]) -> int:
        """Return the number of bytes to read of all sources that are not in memory."""
        return sum(self.pruned(start).bytes for start in self.sources if start not in hot)

    @contextmanager
    def leased(self, hot: Mapping[int, str], *, may_be_long: bool = False) -> Iterator[None]:
        """Hold leases on the files of a long read; a short one ends before they may be deleted."""
        with ExitStack() as leases:
            if may_be_long or self.scan_bytes(hot) > _LONG_READ_BYTES:
                for start, source in self.sources.items():
                    if start not in hot:
                        leases.enter_context(source.table.reading(source.snapshot))
            yield

    def reports(self, hot: Mapping[int, str]) -> tuple[TableReport, ...]:
        """Return what is read of each table."""
        return tuple(
            TableReport(
                source.ref.written,
                source.snapshot.base.version,
                source.snapshot.sequence,
                "memory" if start in hot else "files",
                len(source.snapshot.base.files),
                0 if start in hot else len(self.pruned(start).files),
                0 if start in hot else self.pruned(start).bytes,
                source.snapshot.tail.row_count,
                self.pruned(start).taken,
            )
            for start, source in self.sources.items()
        )


def compiled_or_not(statement: Statement, sources: Mapping[int, Source]) -> Compiled | Unsupported:
    """Return the compiled statement, or the part of it that has no rule."""
    try:
        shapes = {start: source.shape for start, source in sources.items()}
        return compile_statement(statement, shapes, dt.datetime.now(dt.UTC))
    except UnknownName as unknown:
        return Unsupported(str(unknown), _no_such_column(statement, unknown))
    except NoRule as reason:
        return Unsupported(str(reason))
    except RecursionError:
        return Unsupported("a statement nested this deep")


def _no_such_column(statement: Statement, unknown: UnknownName) -> CallerError | None:
    """Return the error for a column that cannot exist; None where only Spark can tell.

    A single SELECT over tables has no columns but theirs, so Spark need not be started to say so.
    """
    tree, name = statement.tree, unknown.parts[0].lower()
    if tree is None or len(unknown.parts) > 1 or name in KNOWN | _UNITS or len(list(tree.find_all(exp.Query))) > 1:
        return None
    if not _PLAIN_NAME.fullmatch(name):  # GROUP BY `sum(a)` means the column that Spark names so
        return None
    if tree.find(exp.Lambda, exp.Lateral, exp.Pivot) or any(
        alias.alias.lower() == name for alias in tree.find_all(exp.Alias)
    ):
        return None
    shown = ", ".join(unknown.columns[:30]) + (", …" if len(unknown.columns) > 30 else "")
    return CallerError(f"there is no column {unknown.parts[0]}; there are {shown or 'no columns here'}")


@dataclass(frozen=True, slots=True)
class Route:
    """The chosen engine, and the reason in words."""

    engine: str
    why: str


def choose_engine(
    requested: str, *, no_rule: str | None, hot: bool, not_hot: str, scan_bytes: int, scan_limit: int
) -> Route:
    """Choose hot, local or spark. Raises CallerError if the requested engine cannot run the statement.

    `no_rule` is the part of it that the compiler has no rule for; `hot` is True if all tables are in memory, `not_hot`
    names one that is not; `scan_bytes` is the number of bytes left to read after pruning.
    """
    if requested == "spark":
        return Route("spark", "requested")
    if no_rule is not None:
        if requested != "auto":
            raise CallerError(
                f"engine {requested!r} cannot run this: {no_rule} has no rule proved equal to Spark's; use engine='auto'"
            )
        return Route("spark", f"{no_rule} has no rule proved equal to Spark's")
    if requested == "hot" and not hot:
        raise CallerError(
            f"engine 'hot' cannot run this: {not_hot} is not in memory; pin it first, or use engine='auto'"
        )
    if hot and requested in ("auto", "hot"):
        return Route("hot", "all its tables are in memory")
    if requested == "local":
        return Route("local", "requested")
    if scan_bytes > scan_limit:
        return Route(
            "spark",
            f"{scan_bytes:,} bytes are left to read after pruning, more than the {scan_limit:,} of local_scan_bytes",
        )
    left = f"{scan_bytes:,} bytes are left to read after pruning" if scan_bytes else "no files need to be read"
    return Route("local", left)


def spark_instead(route: Route, engine: str, error: FallBackToSpark) -> Route:
    """Return the route after DuckDB stopped. Raises CallerError if the caller wanted no other engine."""
    if engine != "auto":
        raise CallerError(f"engine {engine!r} stopped at: {error}; engine='auto' lets Spark answer") from None
    return Route("spark", f"the {route.engine} engine stopped at: {error}")


def hidden_paths(plan: str, location: str) -> str:
    """Return a plan without the paths of files."""
    text = _FILES.sub("<file>", plan)
    bare = location.removeprefix("file://").rstrip("/")
    return text.replace(bare, "<warehouse>") if bare else text
