"""The versions of a Delta log's table: the stamp that tells which one it has, and the steps from one to the next.

A step changes the table so that the next version's code and this one's can both read it, a new nullable column for
example; what was committed before is not rewritten. It may run again, and in two processes at once: the stamp is put
by one of them, after the step.
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
"""How to get from a version to the next one."""

_MAX_ATTEMPTS = 100


def bring_up(
    table: OpenTable, uri: str, *, version: int = SCHEMA_VERSION, steps: Mapping[int, Step] | None = None
) -> Migration:
    """Bring a table to `version` step by step; Refused if it is newer, no build log, or there is no way."""
    known = STEPS if steps is None else steps
    before = at = stored_version(table, uri)
    if before > version:
        raise Refused(
            f"the build log at {uri} has schema version {before}, this Crannog knows {version}; upgrade Crannog"
        )
    while at < version:
        if at not in known:
            raise Refused(f"the build log at {uri} has schema version {before}; there is no way from {at} to {at + 1}")
        known[at](table)
        _stamp(table, at + 1, uri)
        at = stored_version(table, uri)
    return Migration(before, version)


def stored_version(table: OpenTable, uri: str) -> int:
    """Return the version that a table is stamped with; Refused if it is no build log."""
    stored = table.log.head().properties.get(VERSION_PROPERTY)
    if stored is None:
        raise Refused(f"{table.name} at {uri} is a table, but no build log: it has no property {VERSION_PROPERTY}")
    return int(stored)


def _stamp(table: OpenTable, version: int, uri: str) -> None:
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
