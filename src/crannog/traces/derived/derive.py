"""Derive: update the derived tables to the newest version of the spans with Spark, in one commit per table.

A commit replaces the stale days, adds the missing rows of other days, and records the new version. If another derive
commits first, it starts over, so every span is counted once, also after a crash.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from crannog.api.reports import Cancellation, Progress
from crannog.api.traces import DeriveReport
from crannog.delta.footers import read_footer
from crannog.delta.log import Base, DataFile, metadata_action
from crannog.delta.rewrite import Rewrite, RunAgain, verify_files
from crannog.delta.schemas import to_delta_json
from crannog.engine.columnar.plans import run_with_spark
from crannog.engine.maintenance.compact import files_to_compact, scheduled_limits
from crannog.engine.maintenance.fold import after_commit
from crannog.engine.maintenance.job import Job, progress_range
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.engine.tables import Tables
from crannog.errors import CrannogError, SnapshotGone, Unavailable, VerificationFailed
from crannog.traces.derived.base_changes import BaseChanges, changes_since, days_around
from crannog.traces.derived.definitions import (
    DERIVED_TABLES,
    TO_PROPERTY,
    DerivedTable,
    derived_version,
    existing_table,
    open_or_create,
)
from crannog.traces.derived.engines import DuckDBQueryEngine, TaskRelations, duckdb_query_engine
from crannog.traces.derived.missing_rows import MissingRows, count_new_spans, find_missing_rows, missing_rows_sql

_MAX_ATTEMPTS = 10
_MOST_SMALL_FILES = 16
"""The next derive that adds to a day with this many files of similar size merges them."""


def derive(
    tables: Tables,
    spans: OpenTable,
    *,
    anew: Iterable[dt.date] = (),
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
) -> DeriveReport:
    """Update every derived table to the newest folded spans; days in `anew` are recomputed from all their spans.

    Each table has its own commit, so an interrupted derive continues where it stopped.
    """
    started = time.perf_counter()
    head = spans.snapshot()
    known: dict[tuple[int, int], MissingRows] = {}
    written, days = {}, {}
    for number, derived in enumerate(DERIVED_TABLES):
        share = progress_range(progress, number / len(DERIVED_TABLES), (number + 1) / len(DERIVED_TABLES))
        name = derived.name.table
        written[name], days[name] = _derive_table(
            tables, spans, head, derived, frozenset(anew), known, share, cancellation
        )
    return DeriveReport(head.base.version, written, days, round(time.perf_counter() - started, 3))


def needs_derive(tables: Tables, spans: OpenTable) -> bool:
    """Return whether a derived table is missing or out of date."""
    version = spans.snapshot().base.version
    existing = [existing_table(tables, derived, spans) for derived in DERIVED_TABLES]
    return any(derived_version(table.log.head()) < version if table is not None else version > 0 for table in existing)


def _derive_table(
    tables: Tables,
    spans: OpenTable,
    head: Snapshot,
    derived: DerivedTable,
    anew: frozenset[dt.date],
    known: dict[tuple[int, int], MissingRows],
    progress: Progress | None,
    cancellation: Cancellation | None,
) -> tuple[int, int]:
    for _ in range(_MAX_ATTEMPTS):
        table = open_or_create(tables, derived, spans)
        base = table.log.refresh()[0]
        start = derived_version(base)
        if start > head.base.version:
            spans.log.refresh()
            head = spans.snapshot()
        if start == head.base.version and not anew:
            return 0, 0
        # The lease protects files from the start version on: files that compaction removed since are still read.
        lease = spans.reading(replace(head, base=replace(head.base, version=start)))
        with lease, Job(table, "DERIVE", base, progress=progress, cancellation=cancellation) as job:
            try:
                changes = changes_since(spans, start, head.base).with_stale(anew)
                return _TableDerivation(spans, head.base, table, base, derived, changes, job).run(known)
            except RunAgain:
                continue
            except SnapshotGone:
                # An erase or vacuum deleted files: start over from the current state.
                head = spans.snapshot()
                known.clear()
    raise Unavailable(
        f"cannot derive {derived.name}: other jobs changed it during all {_MAX_ATTEMPTS} attempts; try again"
    )


@dataclass(frozen=True)
class _TableDerivation:
    """The update of one derived table from one version of the spans to a later one."""

    spans: OpenTable
    head: Base
    table: OpenTable
    base: Base
    derived: DerivedTable
    changes: BaseChanges
    job: Job

    def run(self, known: dict[tuple[int, int], MissingRows]) -> tuple[int, int]:
        """Write, verify and commit. Returns the number of rows written and of days recomputed."""
        added: list[DataFile] = []
        files_to_merge: list[DataFile] = []
        changes = self.changes
        if changes.added_files or any(
            changes.current_files.get(day) for day in days_around(changes.stale_days, self.derived.reach_days)
        ):
            self.job.step("find duplicates", 0.1)
            with duckdb_query_engine(self.spans, self.spans.at_version(self.head)) as engine:
                missing = known.get((changes.start, changes.end)) or find_missing_rows(engine, changes)
                known[changes.start, changes.end] = missing
                expected = self._expected_spans(engine, missing)
            changes, files_to_merge = missing.changes, self._files_to_merge(missing)
            self.job.step("compute with Spark", 0.3)
            try:
                written = self._write(missing, files_to_merge)
            except CrannogError as error:
                self._check_files(missing, error)
                raise
            self.job.step("verify", 0.8)
            added = self._verified(written, expected, files_to_merge)
        recomputed = days_around(changes.stale_days, self.derived.reach_days)
        removed = [
            file
            for file in self.base.files.values()
            if changes.all_stale or file.partition["partition_date"] in recomputed
        ]
        self.job.step("commit", 0.95)
        version = self.job.commit(self._rewrite([*removed, *files_to_merge], added))
        self.table.log.refresh()
        after_commit(self.table, version)
        return sum(file.rows for file in added), len(recomputed)

    def _check_files(self, missing: MissingRows, error: CrannogError) -> None:
        """Raise SnapshotGone if Spark failed because files were deleted."""
        near = days_around(missing.appended_days, self.derived.reach_days)
        for path in (*missing.changed_files, *(path for day in near for path in missing.changes.files_before(day))):
            if not self.job.storage.exists(f"{self.spans.folder}/{path}"):
                raise SnapshotGone(f"{path} of {self.spans.name} was deleted while it was read") from error

    def _files_to_merge(self, missing: MissingRows) -> list[DataFile]:
        """Return small files of days that gain rows, if there are many: they are merged with the new rows."""
        stale = missing.stale_days_of(self.derived)
        files = [
            file
            for file in self.base.files.values()
            if (day := file.partition["partition_date"]) in missing.appended_days
            and day not in stale
            and not missing.changes.all_stale
        ]
        limits = replace(scheduled_limits(self.table.file_bytes(self.base)), fewest=_MOST_SMALL_FILES)
        return [file for group in files_to_compact(files, limits) for file in group.files]

    def _write(self, missing: MissingRows, files_to_merge: Sequence[DataFile]) -> list[str]:
        relations = TaskRelations(self.job, self.spans, self.head.schema)
        folder = f"{self.table.folder}/{self.job.folder}/0"
        if self.derived.reach_days:
            parts = [(missing, list(files_to_merge))]
        else:
            parts = [
                (missing.on_day(day), [file for file in files_to_merge if file.partition["partition_date"] == day])
                for day in sorted(missing.appended_days | missing.changes.stale_days)
            ]
        tasks = [relations.task(folder, self._query(relations, part, merged)) for part, merged in parts]
        with self.job.spark() as session:
            return run_with_spark(session, self.job.storage, self.base, tasks)

    def _query(self, relations: TaskRelations, missing: MissingRows, files_to_merge: Sequence[DataFile]) -> str:
        """Return the SQL of new rows, merged with those of some files, in the columns of the table."""
        query = missing_rows_sql(relations, self.derived, missing)
        if files_to_merge:
            listed = ", ".join(name for name in self.derived.columns.names if name != "spans_version")
            old = relations.files_of(self.table, self.base.schema, [file.path for file in files_to_merge])
            query = self.derived.merged_sql(
                f"(SELECT {listed} FROM ({query}) n UNION ALL SELECT {listed} FROM {old}) p"
            )
        version = self.changes.end
        return (
            f"SELECT *, {version} AS spans_version, now() AS _created_at,"
            f" 'derive-{version}-{self.job.id}' AS _batch_id FROM ({query})"
        )

    def _expected_spans(self, engine: DuckDBQueryEngine, missing: MissingRows) -> int | None:
        """Return how many spans the new rows must count, from the footers of files and the duplicates."""
        if self.derived.spans is None:
            return None
        storage = self.job.storage
        total = 0
        for path in missing.changed_files:
            known = self.head.files.get(path)
            total += known.rows if known else read_footer(storage, f"{self.spans.folder}/{path}", ()).rows
        return count_new_spans(engine, missing, total)

    def _verified(
        self, paths: Sequence[str], expected: int | None, files_to_merge: Sequence[DataFile]
    ) -> list[DataFile]:
        storage = self.job.storage
        rows, counted = self._sums(paths)
        if expected is not None:
            before = self._sums([f"{self.table.folder}/{file.path}" for file in files_to_merge])[1]
            if counted != expected + before:
                raise VerificationFailed(
                    f"{self.derived.name}: the new rows count {counted:,} spans instead of {expected + before:,};"
                    " nothing was committed"
                )
        return verify_files(storage, self.table.folder, paths, self.base, rows=rows)

    def _sums(self, paths: Sequence[str]) -> tuple[int, int]:
        if not paths:
            return 0, 0
        warehouse = self.table.warehouse
        with warehouse.duckdb.cursor() as cursor:
            scan = warehouse.duckdb.scan(warehouse.local_paths(list(paths)), self.base.schema)
            [row] = read(
                cursor, f"SELECT count(*) AS n, sum({self.derived.spans or 0}) AS spans FROM {scan}"
            ).to_pylist()
        return int(row["n"]), int(row["spans"] or 0)

    def _rewrite(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> Rewrite:
        base = self.base
        return Rewrite(
            self.job.id,
            "DERIVE",
            base,
            removes=removed,
            adds=added,
            parameters={"spansVersion": self.changes.end},
            metrics={"numAddedFiles": len(added), "numRemovedFiles": len(removed)},
            # The version is part of the metadata, so of two concurrent derives the second commit fails and starts over.
            metadata=metadata_action(
                table_id=base.table_id,
                schema_json=to_delta_json(base.schema),
                partition_by=base.partition_by,
                properties={**base.properties, TO_PROPERTY: str(self.changes.end)},
                created_ms=base.created_ms,
            ),
        )
