"""The table `build_events`: its columns, and events as its rows and back.

One nullable struct per kind, with documents as JSON text, readable by any Delta reader. `index` is the key: it is the
position in commit order, so new events are at the end of the table, and an event can be deleted by its index.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from crannog.builds.event_values import to_json
from crannog.builds.events import BuildEvent, Kind, stored_event
from crannog.builds.read_model.stored_events import payload_of
from crannog.engine.owned_tables import BUILDS
from crannog.errors import Corrupted
from crannog.protocol.row_buffer import RowBuffer, buffered

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
