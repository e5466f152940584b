"""The table `build_events`: its columns, and events as its rows and back.

One nullable struct per kind, and inside them the documents as JSON text, as any Delta reader finds them. `index` is
the key: the place in commit order, so that what is new lies at the end of the table and a wiped event can be named.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from crannog.builds.events import BuildEvent, Kind
from crannog.builds.model.stored import payload_of
from crannog.builds.values import to_json
from crannog.errors import Corrupted

SCHEMA_VERSION = 1
VERSION_PROPERTY = "crannog.builds.schemaVersion"
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
    Kind.DELEGATION: [("partition_ref", pa.string()), ("delegated_to_build_request_id", pa.string()), ("message", pa.string())],
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
_DAY_NS = 86_400 * 10**9
_EPOCH = dt.date(1970, 1, 1)


def rows_of(events: Sequence[BuildEvent]) -> list[dict[str, Any]]:
    """Return events, their indexes given, as rows of the table."""
    return [_row(event) for event in events]


def _row(event: BuildEvent) -> dict[str, Any]:
    values = event.payload.as_dict()
    for name in _DOCUMENTS & values.keys():
        if values[name] is not None:
            values[name] = to_json(values[name])
    kind = event.kind
    row: dict[str, Any] = dict.fromkeys(_COLUMNS)
    row["event_id"], row["timestamp"], row["build_request_id"] = event.event_id, event.timestamp, event.build_request_id
    row["event_type"], row[kind.column], row[KEY] = kind.event_type, values, event.index
    row["partition_date"] = _EPOCH + dt.timedelta(days=event.timestamp // _DAY_NS)
    return row


_COLUMNS = tuple(SCHEMA.names)


def events_of(rows: pa.Table) -> Iterator[BuildEvent]:
    """Yield the events of rows of the table, whoever wrote them; Corrupted names one that is no event."""
    kinds = {kind.event_type: kind for kind in Kind}
    for row in rows.select(_COLUMNS).to_pylist():
        try:
            kind = kinds[row["event_type"]]
            values = row[kind.column]
            for name in _DOCUMENTS & values.keys():
                if values[name] is not None:
                    values[name] = json.loads(values[name])
            payload = payload_of(kind, values)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise Corrupted(f"row {row[KEY]} of the build log is no event ({type(error).__name__}: {error}); it was not written by a log") from error
        yield BuildEvent(row["event_id"], row["timestamp"], row["build_request_id"], payload, row[KEY])
