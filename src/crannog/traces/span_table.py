"""The span table `crannog.traces.spans`: its columns, layout and ids; created on first use.

The first 24 columns are for queries; the others hold the rest of OTLP, so that an export equals what was received. A missing
resource or scope has null attributes, one without attributes an empty map. Unsigned numbers of OTLP have the next wider
signed type.
"""

from __future__ import annotations

import binascii
import json

import pyarrow as pa

from crannog.delta.layout import BLOOM_FPP
from crannog.delta.schema_json import INSTANT, list_of, map_of
from crannog.engine.maintenance.evolve import evolve
from crannog.engine.open_table import OpenTable
from crannog.engine.owned_tables import TRACES
from crannog.engine.tables import Tables
from crannog.errors import CallerError, NotFound, Refused
from crannog.names import OWN_CATALOG, TableName

SPANS = TableName(OWN_CATALOG, TRACES.schema, "spans")
VERSION_PROPERTY, SCHEMA_VERSION = TRACES.properties[0], 1
"""Increased for changes that older versions of Crannog cannot read; not for new nullable columns."""

TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
NO_TRACE_ID, NO_SPAN_ID = bytes(TRACE_ID_BYTES), bytes(SPAN_ID_BYTES)

ATTRIBUTES = map_of(pa.string(), pa.string())
"""Values are JSON text, see `crannog.traces.attribute_values`."""

ATTRIBUTE_MAPS = {"span": "attributes", "resource": "resource_attributes", "scope": "scope_attributes"}
"""The columns of attributes, by level."""

EVENT = pa.struct(
    [
        pa.field("name", pa.string()),
        pa.field("timestamp", INSTANT),
        pa.field("time_ns", pa.int64()),
        pa.field("attributes", ATTRIBUTES),
        pa.field("dropped_attributes_count", pa.int64()),
    ]
)
LINK = pa.struct(
    [
        pa.field("trace_id", pa.binary()),
        pa.field("span_id", pa.binary()),
        pa.field("trace_state", pa.string()),
        pa.field("attributes", ATTRIBUTES),
        pa.field("dropped_attributes_count", pa.int64()),
        pa.field("flags", pa.int64()),
    ]
)

SCHEMA = pa.schema(
    [
        pa.field("trace_id", pa.binary(), nullable=False),
        pa.field("span_id", pa.binary(), nullable=False),
        pa.field("parent_span_id", pa.binary()),
        pa.field("flags", pa.int64(), nullable=False),
        pa.field("trace_state", pa.string(), nullable=False),
        pa.field("scope_name", pa.string(), nullable=False),
        pa.field("scope_version", pa.string()),
        pa.field("service_name", pa.string(), nullable=False),
        pa.field("span_name", pa.string(), nullable=False),
        pa.field("span_kind", pa.string()),
        pa.field("start_time", INSTANT, nullable=False),
        pa.field("end_time", INSTANT, nullable=False),
        pa.field("duration_ms", pa.int64(), nullable=False),
        pa.field("status_code", pa.int32(), nullable=False),
        pa.field("status_message", pa.string()),
        pa.field("label", pa.string()),
        pa.field("attributes", ATTRIBUTES),
        pa.field("resource_attributes", ATTRIBUTES),
        pa.field("events", list_of(EVENT)),
        pa.field("links", list_of(LINK)),
        pa.field("input", pa.string()),
        pa.field("output", pa.string()),
        pa.field("search_blob", pa.string(), nullable=False),
        pa.field("partition_date", pa.date32(), nullable=False),
        pa.field("start_ns", pa.int64(), nullable=False),
        pa.field("end_ns", pa.int64(), nullable=False),
        pa.field("duration_ns", pa.int64(), nullable=False),
        pa.field("trace_hi", pa.int64(), nullable=False),
        pa.field("start_minute", pa.int32(), nullable=False),
        pa.field("kind", pa.int32(), nullable=False),
        pa.field("model", pa.string()),
        pa.field("provider", pa.string()),
        pa.field("input_tokens", pa.int64()),
        pa.field("output_tokens", pa.int64()),
        pa.field("session_id", pa.string()),
        pa.field("user_id", pa.string()),
        pa.field("scope_attributes", ATTRIBUTES),
        pa.field("dropped_attributes_count", pa.int64(), nullable=False),
        pa.field("dropped_events_count", pa.int64(), nullable=False),
        pa.field("dropped_links_count", pa.int64(), nullable=False),
        pa.field("resource_dropped_attributes_count", pa.int64(), nullable=False),
        pa.field("scope_dropped_attributes_count", pa.int64(), nullable=False),
        pa.field("resource_schema_url", pa.string()),
        pa.field("scope_schema_url", pa.string()),
        pa.field("resource_entity_refs", pa.string()),
        # Added after version 1; older tables get these columns when they are opened.
        pa.field("cost", pa.float64()),
        pa.field("total_input_tokens", pa.int64()),
        pa.field("total_output_tokens", pa.int64()),
        pa.field("total_cost", pa.float64()),
        pa.field("reported_end_ns", pa.int64()),
    ]
)

_COLUMN_NAMES = frozenset(SCHEMA.names)

SPAN_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
"""The names of OTLP's span kinds, by number; `span_kind` is null for the first and for unknown numbers."""

UNKNOWN_SERVICE = "unknown_service"

SPAN_IDENTITY = ("partition_date", "trace_id", "span_id")
"""Rows with the same values are copies of the same span."""
COPY_ORDER = ("_created_at", "end_ns", "start_ns", "_batch_id")
"""Sorts the copies of a span: the one that is highest by these columns, in order, counts."""
NEWEST_COPY_BY = (*COPY_ORDER, "service_name", "span_name", "kind", "status_code")
"""The copy that is highest by these columns survives compaction."""

# By two seconds and trace: a trace's spans are adjacent, equal ids compress well, and a search of the newest spans reads a
# few row groups, under heavy load too. Sorted by minute it read all of the last minute, a million spans and more.
_CLUSTER_BY = ("start_ns", "trace_id", "service_name")
_CLUSTER_UNITS = {"start_ns": 2 * 10**9}
# The Parquet writer chooses per column chunk: a dictionary, or a bloom filter if the dictionary grows too large.
_DICTIONARY_OR_BLOOM = ("service_name", "span_name")


def open_spans(tables: Tables) -> OpenTable:
    """Open the span table, or create it; needs no Spark.

    Raises Refused if a table of that name is not a span table, or was created by a newer version of Crannog.
    """
    try:
        return existing_spans(tables)
    except NotFound:
        tables.create(
            SPANS,
            SCHEMA,
            partition_by=["partition_date"],
            cluster_by=_CLUSTER_BY,
            bloom=["trace_id"],
            if_exists="ok",
            properties=_properties(),
        )
        return existing_spans(tables)


def existing_spans(tables: Tables) -> OpenTable:
    """Open the span table, and add columns that it lacks. Raises NotFound if it does not exist, Refused as `open_spans`."""
    table = tables.open(SPANS)
    base = table.log.last_seen_base()
    stored = base.properties.get(VERSION_PROPERTY)
    if stored is None:
        raise Refused(f"{SPANS} is not a span table: it has no property {VERSION_PROPERTY}; drop or move it")
    if int(stored) > SCHEMA_VERSION:
        raise Refused(f"{SPANS} has schema version {stored}, this Crannog supports {SCHEMA_VERSION}; upgrade Crannog")
    if not _COLUMN_NAMES.issubset(base.schema.names):
        _add_columns(table)
    return table


def _add_columns(table: OpenTable) -> None:
    """Add the columns that an older table lacks, in one log entry that rewrites no files."""
    present = table.log.refresh()[0].user_schema
    further = [field for field in present if field.name not in _COLUMN_NAMES]
    evolve(table, pa.schema([*SCHEMA, *further]))


def _properties() -> dict[str, str]:
    properties = {
        VERSION_PROPERTY: str(SCHEMA_VERSION),
        "crannog.distinctBy": json.dumps(SPAN_IDENTITY),
        "crannog.newestBy": json.dumps(NEWEST_COPY_BY),
        "crannog.clusterUnits": json.dumps(_CLUSTER_UNITS),
    }
    for name in _DICTIONARY_OR_BLOOM:
        properties[f"parquet.bloom.filter.enabled#{name}"] = "true"
        properties[f"parquet.bloom.filter.fpp#{name}"] = str(BLOOM_FPP)
    return properties


def parse_trace_id(text: str) -> bytes:
    """Parse a trace id of 32 hexadecimal digits, or of 16 if its first half is zero. Raises CallerError if it is invalid."""
    try:
        if not isinstance(text, str) or len(text) not in (16, 32):
            raise ValueError
        trace_id = binascii.unhexlify(text.rjust(32, "0"))
    except ValueError:
        raise CallerError(
            f"a trace id must have {2 * TRACE_ID_BYTES} (or 16) hexadecimal digits, got {repr(text)[:80]}"
        ) from None
    if trace_id == NO_TRACE_ID:
        raise CallerError("a trace id cannot be all zeros: such spans are rejected")
    return trace_id


def no_trace(trace_id: bytes) -> NotFound:
    """Return the error for a trace that does not exist."""
    return NotFound(f"trace {trace_id.hex()} not found: no span with this id was received, or it has expired")


def trace_id_high(trace_id: bytes) -> int:
    """Return the first eight bytes as a signed integer, as in the column `trace_hi`."""
    return int.from_bytes(trace_id[:8], signed=True)
