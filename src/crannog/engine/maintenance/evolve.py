"""Evolve: a new nullable column is one log entry; a wider type is one verified rewrite of every file."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from crannog.api.reports import Cancellation, EvolveReport, Progress
from crannog.delta.log import Base, DataFile, metadata_action
from crannog.delta.rewrite import Rewrite, RunAgain, verify_files
from crannog.delta.schemas import (
    check_key,
    colliding_columns,
    difference,
    evolved,
    to_delta_json,
    user_columns,
    user_schema,
    with_system_columns,
)
from crannog.engine.columnar.plans import rewritten_files, run_with_spark
from crannog.engine.maintenance.fold import after_commit
from crannog.engine.maintenance.job import Job
from crannog.engine.open_table import OpenTable
from crannog.engine.tables import table_properties
from crannog.errors import SnapshotGone, Unavailable

_MAX_ATTEMPTS = 10


def evolve(
    table: OpenTable, schema: Any, *, progress: Progress | None = None, cancellation: Cancellation | None = None
) -> EvolveReport:
    """Change the table's schema to `schema`: its columns, unchanged or widened, and new nullable ones. Refuses anything else."""
    for _ in range(_MAX_ATTEMPTS):
        base = table.log.head()
        current = user_columns(base.schema)
        proposed = check_key(user_schema(schema, known_pairs=list(colliding_columns(current))), base.key)
        change = difference(current, proposed)
        if change.is_same:
            return EvolveReport((), (), 0, None, 0.0)
        target = with_system_columns(evolved(current, proposed), base.partition_by)
        with Job(table, "EVOLVE", base, progress=progress, cancellation=cancellation) as job:
            try:
                return _evolve_once(table, base, target, change, job)
            except (RunAgain, SnapshotGone):
                continue
    raise Unavailable(
        f"cannot evolve {table.name}: other jobs changed the table {_MAX_ATTEMPTS} times meanwhile; try again"
    )


def _evolve_once(table: OpenTable, base: Base, target: pa.Schema, change: Any, job: Job) -> EvolveReport:
    added: list[DataFile] = []
    removed: list[DataFile] = []
    bloom = json.loads(base.properties.get("crannog.bloom", "[]"))
    properties = {**base.properties, **table_properties(target, base.key, base.partition_by, base.cluster_by, bloom)}
    if change.widened and base.files:
        removed = list(base.files.values())
        job.step("write files with Spark", 0.2)
        tasks = rewritten_files(job.storage, table.folder, job.folder, base, removed, table.file_bytes(base))
        with job.spark() as session:
            written = run_with_spark(session, job.storage, base, tasks, schema=target)
        job.step("verify", 0.85)
        added = verify_files(job.storage, table.folder, written, base, rows=base.rows, schema=target)
    job.step("commit", 0.95)
    rewrite = Rewrite(
        job.id,
        "EVOLVE",
        base,
        removes=removed,
        adds=added,
        data_change=False,
        whole_table=bool(change.widened),
        parameters={"added": list(change.added), "widened": list(change.widened)},
        metadata=metadata_action(
            table_id=base.table_id,
            schema_json=to_delta_json(target),
            partition_by=base.partition_by,
            properties=properties,
            created_ms=base.created_ms,
        ),
    )
    version = job.commit(rewrite)
    table.log.refresh()
    after_commit(table, version)
    return EvolveReport(tuple(change.added), tuple(change.widened), len(removed), version, job.seconds)
