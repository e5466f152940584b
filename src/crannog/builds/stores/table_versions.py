"""The schema versions of a Delta log's table: the property that holds the version, and the steps between versions.

A step changes the table so that the code of both versions can read it, with a new nullable column for example; existing
rows are not rewritten. A step may run again, and in two processes at once: one of them sets the version afterwards.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from crannog.builds.read_model.tables import Migration
from crannog.builds.stores.event_rows import SCHEMA_VERSION, VERSION_PROPERTY
from crannog.delta.log import metadata_action
from crannog.delta.rewrite import Rewrite, RunAgain, commit
from crannog.delta.schemas import to_delta_json
from crannog.engine.open_table import OpenTable
from crannog.errors import Refused, Unavailable

Step = Callable[[OpenTable], None]

STEPS: dict[int, Step] = {}
"""The step from each version to the next."""

_MAX_ATTEMPTS = 100


def migrate_table(
    table: OpenTable, uri: str, *, version: int = SCHEMA_VERSION, steps: Mapping[int, Step] | None = None
) -> Migration:
    """Migrate a table to `version` step by step. Raises Refused if it is newer, not a build log, or a step is missing."""
    known = STEPS if steps is None else steps
    before = at = stored_version(table, uri)
    if before > version:
        raise Refused(
            f"the build log at {uri} has schema version {before}, this Crannog knows {version}; upgrade Crannog"
        )
    while at < version:
        if at not in known:
            raise Refused(f"the build log at {uri} has schema version {before}; there is no step from {at} to {at + 1}")
        known[at](table)
        _set_version(table, at + 1, uri)
        at = stored_version(table, uri)
    return Migration(before, version)


def stored_version(table: OpenTable, uri: str) -> int:
    """Return the version of a table. Raises Refused if it is not a build log."""
    stored = table.log.head().properties.get(VERSION_PROPERTY)
    if stored is None:
        raise Refused(f"{table.name} at {uri} is a table but not a build log: it lacks the property {VERSION_PROPERTY}")
    return int(stored)


def _set_version(table: OpenTable, version: int, uri: str) -> None:
    for _ in range(_MAX_ATTEMPTS):
        base = table.log.head()
        if stored_version(table, uri) >= version:
            return  # another process was first
        metadata = metadata_action(
            table_id=base.table_id,
            schema_json=to_delta_json(base.schema),
            partition_by=base.partition_by,
            properties={**base.properties, VERSION_PROPERTY: str(version)},
            created_ms=base.created_ms,
        )
        rewrite = Rewrite(
            uuid.uuid4().hex, "UPGRADE BUILD LOG", base, removes=(), adds=(), data_change=False,
            parameters={"before": version - 1, "after": version}, metadata=metadata,
        )  # fmt: skip
        try:
            commit(table.warehouse.storage, table.folder, rewrite, table.log.head)
        except RunAgain:
            continue
        table.log.refresh()
        return
    raise Unavailable(
        f"cannot upgrade the build log at {uri}: its table changed {_MAX_ATTEMPTS} times meanwhile; try again",
        retry_after_s=1.0,
    )
