"""The table `build_events`: its columns, events as its rows and back, its schema versions, and appends as messages.

One nullable struct per kind, with documents as JSON text, readable by any Delta reader. `index` is the key: it is the
position in commit order, so new events are at the end of the table, and an event can be deleted by its index.

A step from one schema version to the next changes the table so that the code of both versions can read it, with a new
nullable column for example; existing rows are not rewritten. A step may run again, and in two processes at once: one of them
sets the version afterwards.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from crannog.builds.event_values import to_json
from crannog.builds.events import BuildEvent, Kind, payload_of, stored_event
from crannog.builds.read_model.tables import Migration
from crannog.delta.log import metadata_action
from crannog.delta.rewrite import Rewrite, RunAgain, commit
from crannog.delta.schemas import to_delta_json
from crannog.engine.commit.group import Call
from crannog.engine.open_table import OpenTable
from crannog.engine.owned_tables import BUILDS, check_create
from crannog.engine.tables import Tables
from crannog.errors import Corrupted, NotFound, Refused, Unavailable
from crannog.names import TableName
from crannog.protocol.small_parquet import RowBuffer, buffered

SCHEMA_VERSION = 1
[VERSION_PROPERTY] = BUILDS.properties
KEY = "index"

_STATUS = [("status_code", pa.int32()), ("status_name", pa.string())]
_NAMES = pa.list_(pa.string())
_STRUCTS: dict[Kind, list[tuple[str, pa.DataType]]] = {
    Kind.BUILD_REQUEST: [*_STATUS, ("requested_partitions", _NAMES), ("message", pa.string())],
    Kind.PARTITION: [("partition_ref", pa.string()), *_STATUS, ("message", pa.string()), ("job_run_id", pa.string())],
    Kind.JOB: [
        ("job_run_id", pa.string()),
        ("job_label", pa.string()),
        ("target_partitions", _NAMES),
        *_STATUS,
        ("message", pa.string()),
        ("config", pa.string()),
        ("manifests", pa.string()),
    ],
    Kind.DELEGATION: [
        ("partition_ref", pa.string()),
        ("delegated_to_build_request_id", pa.string()),
        ("message", pa.string()),
    ],
    Kind.JOB_GRAPH: [("job_graph", pa.string()), ("message", pa.string())],
    Kind.PARTITION_INVALIDATION: [("partition_ref", pa.string()), ("reason", pa.string())],
    Kind.TASK_CANCEL: [("job_run_id", pa.string()), ("reason", pa.string())],
    Kind.BUILD_CANCEL: [("reason", pa.string())],
}

SCHEMA = pa.schema(
    [
        pa.field("event_id", pa.string(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("build_request_id", pa.string(), nullable=False),
        pa.field("event_type", pa.string(), nullable=False),
        *[pa.field(kind.column, pa.struct(fields)) for kind, fields in _STRUCTS.items()],
        pa.field(KEY, pa.int64(), nullable=False),
        pa.field("partition_date", pa.date32(), nullable=False),
    ]
)

_DOCUMENTS = frozenset({"config", "manifests", "job_graph"})
_DOCUMENTS_OF = {kind: tuple(name for name, _ in fields if name in _DOCUMENTS) for kind, fields in _STRUCTS.items()}
_TYPES = {kind: kind.event_type for kind in Kind}
_KINDS = {name: kind for kind, name in _TYPES.items()}
_DAY_NS = 86_400 * 10**9


def rows_of(events: Sequence[BuildEvent]) -> pa.Table | RowBuffer:
    """Return events, with their indexes, as rows of the table, with the columns of the kinds that occur."""
    kinds = tuple(sorted({event.payload.KIND for event in events}))
    rows = [
        (
            event.event_id,
            event.timestamp,
            event.build_request_id,
            _TYPES[event.payload.KIND],
            *[_values(event) if event.payload.KIND is kind else None for kind in kinds],
            event.index,
            event.timestamp // _DAY_NS,
        )
        for event in events
    ]
    return buffered(rows, _row_type(kinds))


@cache
def _row_type(kinds: tuple[Kind, ...]) -> pa.StructType:
    columns = {kind.column for kind in kinds}
    return pa.struct(
        [field.with_nullable(True) for field in SCHEMA if not field.name.endswith("_event") or field.name in columns]
    )


def _values(event: BuildEvent) -> dict[str, Any]:
    values = event.payload.as_dict()
    for name in _DOCUMENTS_OF[event.payload.KIND]:
        if values[name] is not None:
            values[name] = to_json(values[name])
    return values


def events_of(rows: pa.Table) -> list[BuildEvent]:
    """Return rows of the table as events. Raises Corrupted if a row is not an event.

    The column of a kind that does not occur may be missing.
    """
    types = rows["event_type"].to_pylist()
    indexes = rows[KEY].to_pylist()
    payloads: list[Any] = [None] * len(types)
    for name in set(types):
        kind = _KINDS.get(name)
        places = [place for place, found in enumerate(types) if found == name]
        if kind is None or kind.column not in rows.column_names:
            raise _not_an_event(indexes[places[0]], f"its type is {name!r}")
        for place, values in zip(places, rows[kind.column].take(places).to_pylist(), strict=True):
            try:
                for document in _DOCUMENTS_OF[kind]:
                    if values[document] is not None:
                        values[document] = json.loads(values[document])
                payloads[place] = payload_of(kind, values)
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise _not_an_event(indexes[place], f"{type(error).__name__}: {error}") from error
    envelope = (rows[name].to_pylist() for name in ("event_id", "timestamp", "build_request_id"))
    return list(map(stored_event, *envelope, payloads, indexes))


def _not_an_event(index: Any, why: str) -> Corrupted:
    return Corrupted(f"row {index} of the build log is not an event ({why}); something else wrote to its table")


Step = Callable[[OpenTable], None]

STEPS: dict[int, Step] = {}
"""The step from each version to the next."""

_MAX_ATTEMPTS = 100


def open_event_table(tables: Tables, name: TableName, uri: str) -> tuple[OpenTable, Migration]:
    """Open the table of a log; create it if it does not exist, and migrate it if it is older."""
    made = False
    try:
        table = tables.open(name)
    except NotFound:
        check_create(name, BUILDS)
        properties = {VERSION_PROPERTY: str(SCHEMA_VERSION)}
        made = tables.create(name, SCHEMA, key=[KEY], if_exists="ok", properties=properties)
        table = tables.open(name)
    migration = migrate_table(table, uri)
    return table, Migration(None, migration.after) if made else migration


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


_FORMAT = "events 3"
# To write more than this for another process costs more than to wait and commit it.
_MOST_EVENTS = 200


@dataclass(frozen=True, slots=True)
class Append:
    """The events of one call, and whether their status changes are to be checked."""

    events: list[BuildEvent]
    check_states: bool


AppendCall = Call[Append, list[int]]


class AppendMessages:
    """Writes events in as few words as will do: the process that commits has to read those of all."""

    def encode(self, calls: Sequence[AppendCall]) -> bytes | None:
        if sum(len(call.value.events) for call in calls) > _MOST_EVENTS:
            return None
        listed = [[call.value.check_states, [_written(event) for event in call.value.events]] for call in calls]
        return to_json([_FORMAT, listed]).encode()

    def decode(self, message: bytes) -> list[Append]:
        try:
            version, listed = json.loads(message)
            if version != _FORMAT:
                return []
            return [Append([_read(*event) for event in events], bool(check_states)) for check_states, events in listed]
        except (ValueError, LookupError, TypeError, AttributeError):
            return []

    def encode_result(self, result: list[int]) -> Any:
        return result

    def decode_result(self, given: Any) -> list[int]:
        return list(given)


def _written(event: BuildEvent) -> list[Any]:
    return [event.event_id, event.timestamp, event.build_request_id, int(event.payload.KIND), event.payload.as_dict()]


def _read(event_id: str, timestamp: int, build: str, kind: int, payload: dict[str, Any]) -> BuildEvent:
    # Checked by the process that made it.
    return stored_event(event_id, timestamp, build, payload_of(kind, payload), None)
