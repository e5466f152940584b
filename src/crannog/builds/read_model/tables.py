"""The tables of the read model, their version, the steps from one version to the next, and the connection they need.

`events` is the log itself in a database log; all other tables are derived from it and can be rebuilt. The index of an
event is its position in commit order: assigned under the write lock, without gaps, never twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from crannog.errors import Refused

SqlValue = str | int | float | bytes | Sequence[str] | None
"""A value that is given to a statement."""


class Connection(Protocol):
    """One connection, used by one thread at a time. SQL is the subset that both databases know, with `?` for values."""

    flavour: str
    """`sqlite` or `postgresql`; only the table definitions depend on it."""

    def query(self, sql: str, values: Sequence[SqlValue] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""

    def run(self, sql: str, values: Sequence[SqlValue] = ()) -> int:
        """Run a statement; return the number of rows it changed."""

    def run_many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """Run a statement once for each row of values."""

    def matches_glob(self, column: str) -> str:
        """Return the condition that `column` matches a pattern with `*`, `?` and `[…]`, which is given as one value."""

    def glob_value(self, pattern: str) -> str:
        """Return the value for `matches_glob` that a pattern corresponds to."""

    def without_index(self, column: str) -> str:
        """Return an expression for the column that does not use its index, where the planner has no statistics to choose one."""


SCHEMA_VERSION = 1

Step = Callable[[Connection], None]

STEPS: dict[int, Step] = {}
"""The step from each version to the next; a step may run again after a crash."""

_EVENTS = """
CREATE TABLE IF NOT EXISTS meta (name {text} PRIMARY KEY, value {text} NOT NULL){compact};
CREATE TABLE IF NOT EXISTS events (
    idx {index} PRIMARY KEY, event_id {text} NOT NULL, timestamp BIGINT NOT NULL, build_request_id {text} NOT NULL,
    kind SMALLINT NOT NULL, job_run_id {text}, job_label {text}, body TEXT NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS events_by_id ON events (event_id);
CREATE INDEX IF NOT EXISTS events_by_build ON events (build_request_id, idx);
CREATE INDEX IF NOT EXISTS events_by_time ON events (timestamp);
CREATE INDEX IF NOT EXISTS events_by_kind ON events (kind, idx);
CREATE INDEX IF NOT EXISTS events_by_run ON events (job_run_id, idx) WHERE job_run_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS events_by_label ON events (job_label, idx) WHERE job_label IS NOT NULL;
CREATE TABLE IF NOT EXISTS event_partitions (
    partition_ref {text} NOT NULL, idx BIGINT NOT NULL, PRIMARY KEY (partition_ref, idx)){compact};
CREATE INDEX IF NOT EXISTS event_partitions_by_idx ON event_partitions (idx)
"""

_STATE = """
CREATE TABLE IF NOT EXISTS builds (
    build_request_id {text} PRIMARY KEY, status SMALLINT, status_idx BIGINT, requested TEXT, message TEXT,
    first_idx BIGINT NOT NULL, created_at BIGINT NOT NULL, last_idx BIGINT NOT NULL, updated_at BIGINT NOT NULL,
    request_idx BIGINT, ended_at BIGINT, cancel_idx BIGINT){compact};
CREATE INDEX IF NOT EXISTS builds_by_first ON builds (first_idx);
CREATE INDEX IF NOT EXISTS builds_by_status ON builds (status, first_idx);
CREATE TABLE IF NOT EXISTS partitions (
    partition_ref {text} PRIMARY KEY, status SMALLINT, status_idx BIGINT, updated_at BIGINT, build_request_id {text},
    job_run_id {text}, message TEXT, invalidated_idx BIGINT){compact};
CREATE INDEX IF NOT EXISTS partitions_by_last ON partitions (status_idx);
CREATE TABLE IF NOT EXISTS build_partitions (
    partition_ref {text} NOT NULL, build_request_id {text} NOT NULL, status SMALLINT, status_idx BIGINT,
    delegated_to {text}, delegated_idx BIGINT, PRIMARY KEY (partition_ref, build_request_id)){compact};
CREATE INDEX IF NOT EXISTS build_partitions_by_build ON build_partitions (build_request_id, partition_ref);
CREATE TABLE IF NOT EXISTS job_runs (
    job_run_id {text} PRIMARY KEY, job_label {text} NOT NULL, build_request_id {text} NOT NULL, status SMALLINT NOT NULL,
    status_idx BIGINT NOT NULL, first_idx BIGINT NOT NULL, first_at BIGINT NOT NULL, started_at BIGINT, ended_at BIGINT,
    targets TEXT NOT NULL){compact};
CREATE INDEX IF NOT EXISTS job_runs_by_label ON job_runs (job_label, first_idx);
CREATE INDEX IF NOT EXISTS job_runs_by_build ON job_runs (build_request_id, first_idx);
CREATE INDEX IF NOT EXISTS job_runs_by_first ON job_runs (first_idx);
CREATE INDEX IF NOT EXISTS job_runs_by_status ON job_runs (job_label, status, ended_at, started_at, first_at);
{tasks}
CREATE TABLE IF NOT EXISTS edges (
    output_ref {text} NOT NULL, input_ref {text} NOT NULL, idx BIGINT NOT NULL, job_run_id {text} NOT NULL,
    build_request_id {text} NOT NULL, made SMALLINT NOT NULL, PRIMARY KEY (output_ref, input_ref, idx)){compact};
CREATE INDEX IF NOT EXISTS edges_by_input ON edges (input_ref, output_ref);
CREATE INDEX IF NOT EXISTS edges_by_idx ON edges (idx)
"""

ALL_TABLES = ("meta", "events", "event_partitions", "builds", "partitions", "build_partitions", "job_runs", "edges")

_FLAVOURS: Mapping[str, Mapping[str, str]] = {
    "sqlite": {
        "text": "TEXT",
        "index": "INTEGER",
        "compact": " WITHOUT ROWID",
        "tasks": "CREATE INDEX IF NOT EXISTS job_runs_by_task ON job_runs (job_label, build_request_id, targets);",
    },
    # Sorted by bytes, as in SQLite, so that lists are the same everywhere. No index on text of unlimited length.
    "postgresql": {"text": 'TEXT COLLATE "C"', "index": "BIGINT", "compact": "", "tasks": ""},
}


@dataclass(frozen=True, slots=True)
class Migration:
    """The version of a log before it was opened, and now."""

    before: int | None
    after: int

    @property
    def changed(self) -> bool:
        return self.before is not None and self.before != self.after


def stored_version(connection: Connection) -> int | None:
    """Return the schema version of a log; None if it is new."""
    rows = connection.query("SELECT value FROM meta WHERE name = 'schema_version'")
    return int(rows[0][0]) if rows else None


def create_tables(connection: Connection) -> None:
    """Create the tables that are missing."""
    for statement in (_EVENTS + ";" + _STATE).format(**_FLAVOURS[connection.flavour]).split(";"):
        connection.run(statement)


def prepare(
    connection: Connection, where: str, *, version: int = SCHEMA_VERSION, steps: Mapping[int, Step] | None = None
) -> Migration:
    """Create the tables of a new log, migrate an older one to `version`, refuse a newer one. Runs in one transaction."""
    connection.run(
        "CREATE TABLE IF NOT EXISTS meta (name {text} PRIMARY KEY, value {text} NOT NULL){compact}".format(
            **_FLAVOURS[connection.flavour]
        )
    )
    before = stored_version(connection)
    if before is not None and before > version:
        raise Refused(
            f"the build log at {where} has schema version {before}, this Crannog knows {version}; upgrade Crannog"
        )
    known = STEPS if steps is None else steps
    for number in range(before or version, version):
        if number not in known:
            raise Refused(
                f"the build log at {where} has schema version {before}; there is no step from {number} to {number + 1}"
            )
        known[number](connection)
    create_tables(connection)
    if before != version:
        set_meta(connection, "schema_version", str(version))
    return Migration(before, version)


def refuse_foreign_tables(connection: Connection, where: str) -> None:
    """Raise Refused if a SQLite file has the tables of another program: a log needs a file of its own."""
    tables = {name for (name,) in connection.query("SELECT name FROM sqlite_master WHERE type = 'table'")}
    columns = {name for (name,) in connection.query("SELECT name FROM pragma_table_info('meta')")}
    if tables and (not {"meta", "events"} <= tables or columns != {"name", "value"}):
        raise Refused(
            f"{where} is a SQLite database but not a build log: it has the table {sorted(tables)[0]}; give another file"
        )


def set_meta(connection: Connection, name: str, value: str) -> None:
    """Store a property of the log."""
    connection.run(
        "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def get_meta(connection: Connection, name: str) -> str | None:
    """Return a property of the log; None if it is not set."""
    rows = connection.query("SELECT value FROM meta WHERE name = ?", (name,))
    return str(rows[0][0]) if rows else None


def last_index(connection: Connection) -> int:
    """Return the largest index ever assigned, even if its event was pruned."""
    rows = connection.query("SELECT value FROM meta WHERE name = 'last_index'")
    return int(rows[0][0]) if rows else 0
