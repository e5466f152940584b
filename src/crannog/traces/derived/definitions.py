"""Definitions of the derived tables: columns, the SQL that computes rows from spans, and the SQL that merges rows; opens and creates them.

The SQL is DuckDB's, which runs it in the process for readers and in Spark tasks for the tables. All values are integers, so the
order of additions does not change a result. Rows are partial: several rows may have the same key, and readers merge them.

Each commit of a derive sets the version of the spans as a table property, so rows and version change together, and of two
concurrent derives only one can commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from crannog.delta.log import Base
from crannog.engine.open_table import OpenTable
from crannog.engine.owned_tables import TRACES
from crannog.engine.tables import Tables
from crannog.errors import NotFound, Refused
from crannog.names import OWN_CATALOG, TableName

ERROR_STATUS = 2
"""OTLP's status code of a failed span."""

# Below 64 ns each duration is a bucket; above, each power of two is split into 32 buckets of equal width.
_BUCKET = (
    "cast(CASE WHEN duration_ns < 64 THEN duration_ns ELSE"
    " 32 * (length(bin(duration_ns)) - 6) + (duration_ns >> (length(bin(duration_ns)) - 6)) END AS INT)"
)
_NS_PER_S = 1_000_000_000
EXAMPLE_CHARACTERS = 200


@dataclass(frozen=True)
class DerivedTable:
    """One derived table.

    `span_columns` are the columns of spans that its rows are computed from. A row of one day depends on spans up to
    `reach_days` days away. The sum of `spans` over all rows is the number of spans in them; None if rows do not have it.
    """

    name: TableName
    columns: pa.Schema
    group_by: tuple[str, ...]
    values: str
    merged_values: str
    cluster_by: tuple[str, ...]
    span_columns: tuple[str, ...]
    bloom: tuple[str, ...] = ()
    reach_days: int = 0
    spans: str | None = None

    def partial_rows_sql(self, rows: str) -> str:
        """Return the SQL of the partial rows of some distinct spans.

        `rows` is a relation of spans, of call pairs for `EDGES`, or of single attributes for `ATTRIBUTE_KEYS`.
        """
        columns = ", ".join(str(number + 1) for number in range(len(self.group_by)))
        return f"SELECT {self.values} FROM {rows} GROUP BY {columns}"

    def merged_sql(self, rows: str) -> str:
        """Return the SQL that merges a relation of partial rows to one row for each value of `group_by`."""
        keys = ", ".join(self.group_by)
        return f"SELECT {keys}, {self.merged_values} FROM {rows} GROUP BY {keys}"


def _table(name: str) -> TableName:
    return TableName(OWN_CATALOG, TRACES.schema, name)


def _derived_schema(
    keys: Sequence[tuple[str, pa.DataType, bool]], values: Sequence[tuple[str, pa.DataType, bool]]
) -> pa.Schema:
    listed = [("partition_date", pa.date32(), False), *keys, *values, ("spans_version", pa.int64(), False)]
    return pa.schema([pa.field(name, kind, nullable=nullable) for name, kind, nullable in listed])


def _sum(condition: str) -> str:
    return f"cast(sum({condition}) AS BIGINT)"


def _errors() -> str:
    return f"{_sum(f'CASE WHEN status_code = {ERROR_STATUS} THEN 1 ELSE 0 END')} AS error_count"


def _root_key(start: str, span: str, is_root: str) -> str:
    # Text of equal length, which both engines compare alike: the earliest root, the lower id if two start at once.
    return f"CASE WHEN {is_root} THEN lpad(cast({start} AS STRING), 19, '0') || hex({span}) END"


_ROOT = _root_key("start_ns", "span_id", "parent_span_id IS NULL")
_MERGED_ROOT = _root_key("root_start_ns", "root_span_id", "root_span_id IS NOT NULL")

SUMMARIES = DerivedTable(
    name=_table("summaries"),
    columns=_derived_schema(
        [("trace_id", pa.binary(), False), ("trace_hi", pa.int64(), False)],
        [
            ("start_ns", pa.int64(), False),
            ("end_ns", pa.int64(), False),
            ("span_count", pa.int64(), False),
            ("error_count", pa.int64(), False),
            ("max_status", pa.int32(), False),
            ("root_span_id", pa.binary(), True),
            ("root_start_ns", pa.int64(), True),
            ("root_service", pa.string(), True),
            ("root_operation", pa.string(), True),
        ],
    ),
    group_by=("partition_date", "trace_id", "trace_hi"),
    values=(
        "partition_date, trace_id, trace_hi, min(start_ns) AS start_ns, max(end_ns) AS end_ns,"
        f" count(*) AS span_count, {_errors()}, max(status_code) AS max_status,"
        f" min_by(span_id, {_ROOT}) AS root_span_id, min_by(start_ns, {_ROOT}) AS root_start_ns,"
        f" min_by(service_name, {_ROOT}) AS root_service, min_by(span_name, {_ROOT}) AS root_operation"
    ),
    merged_values=(
        f"min(start_ns) AS start_ns, max(end_ns) AS end_ns, {_sum('span_count')} AS span_count,"
        f" {_sum('error_count')} AS error_count, max(max_status) AS max_status,"
        f" min_by(root_span_id, {_MERGED_ROOT}) AS root_span_id, min_by(root_start_ns, {_MERGED_ROOT}) AS root_start_ns,"
        f" min_by(root_service, {_MERGED_ROOT}) AS root_service, min_by(root_operation, {_MERGED_ROOT}) AS root_operation"
    ),
    cluster_by=("start_ns", "trace_id"),
    span_columns=("trace_hi", "parent_span_id", "service_name", "span_name", "start_ns", "end_ns", "status_code"),
    bloom=("trace_id",),
    spans="span_count",
)
"""One row per trace and day. A row for each of its services as well would cost as much as all else that is derived."""

HISTOGRAM = (
    f"{_BUCKET} AS bucket, count(*) AS span_count, {_errors()},"
    # Two numbers, because the sum of a few spans that last centuries does not fit into one.
    f" {_sum(f'duration_ns // {_NS_PER_S}')} AS duration_s, {_sum(f'duration_ns % {_NS_PER_S}')} AS duration_rest_ns,"
    " min(duration_ns) AS min_ns, max(duration_ns) AS max_ns"
)
"""The SQL of a histogram of durations; group by `bucket` as well."""

RED = DerivedTable(
    name=_table("red"),
    columns=_derived_schema(
        [
            ("minute", pa.int32(), False),
            ("service_name", pa.string(), False),
            ("operation", pa.string(), False),
            ("span_kind", pa.string(), True),
            ("bucket", pa.int32(), False),
        ],
        [
            ("span_count", pa.int64(), False),
            ("error_count", pa.int64(), False),
            ("duration_s", pa.int64(), False),
            ("duration_rest_ns", pa.int64(), False),
            ("min_ns", pa.int64(), False),
            ("max_ns", pa.int64(), False),
        ],
    ),
    group_by=("partition_date", "minute", "service_name", "operation", "span_kind", "bucket"),
    values=f"partition_date, start_minute AS minute, service_name, span_name AS operation, span_kind, {HISTOGRAM}",
    merged_values=(
        f"{_sum('span_count')} AS span_count, {_sum('error_count')} AS error_count, {_sum('duration_s')} AS duration_s,"
        f" {_sum('duration_rest_ns')} AS duration_rest_ns, min(min_ns) AS min_ns, max(max_ns) AS max_ns"
    ),
    cluster_by=("minute", "service_name"),
    span_columns=("start_minute", "service_name", "span_name", "span_kind", "duration_ns", "status_code"),
    spans="span_count",
)
"""One row per minute, service, operation, kind and duration bucket: a latency histogram."""

EDGES = DerivedTable(
    name=_table("edges"),
    columns=_derived_schema(
        [("minute", pa.int32(), False), ("parent_service", pa.string(), False), ("child_service", pa.string(), False)],
        [("call_count", pa.int64(), False), ("error_count", pa.int64(), False)],
    ),
    group_by=("partition_date", "minute", "parent_service", "child_service"),
    values=f"partition_date, start_minute AS minute, parent_service, child_service, count(*) AS call_count, {_errors()}",
    merged_values=f"{_sum('call_count')} AS call_count, {_sum('error_count')} AS error_count",
    cluster_by=("minute",),
    span_columns=("trace_hi", "parent_span_id", "service_name", "start_minute", "status_code"),
    # A trace may continue after midnight.
    reach_days=1,
)
"""One row per minute and pair of services: spans of one whose parent is a span of the other."""

ATTRIBUTE_KEYS = DerivedTable(
    name=_table("attribute_keys"),
    columns=_derived_schema(
        [("level", pa.string(), False), ("key", pa.string(), False), ("type", pa.string(), False)],
        [
            ("use_count", pa.int64(), False),
            ("example_1", pa.string(), True),
            ("example_2", pa.string(), True),
            ("example_3", pa.string(), True),
        ],
    ),
    group_by=("partition_date", "level", "key", "type"),
    values=(
        "partition_date, level, key, CASE WHEN value IS NULL OR value = 'null' THEN 'null'"
        " WHEN starts_with(value, '\"') THEN 'string' WHEN value = 'true' OR value = 'false' THEN 'bool'"
        " WHEN starts_with(value, '[') THEN 'array' WHEN starts_with(value, '{\"$bytes\"') THEN 'bytes'"
        " WHEN starts_with(value, '{\"$double\"') THEN 'double' WHEN starts_with(value, '{\"$each\"') THEN 'each'"
        " WHEN starts_with(value, '{') THEN 'map'"
        " WHEN contains(value, '.') OR contains(value, 'e') THEN 'double' ELSE 'int' END AS type,"
        " count(*) AS use_count, "
        # The lowest value of each third by length: few, varied, and independent of the order of merging. The beginning of
        # the lowest value is the lowest of all beginnings.
        + ", ".join(
            f"left(min(value) FILTER (length(value) % 3 = {third}), {EXAMPLE_CHARACTERS}) AS example_{third + 1}"
            for third in range(3)
        )
    ),
    merged_values=(
        f"{_sum('use_count')} AS use_count, min(example_1) AS example_1, min(example_2) AS example_2,"
        " min(example_3) AS example_3"
    ),
    cluster_by=("level",),
    span_columns=("attributes", "resource_attributes", "scope_attributes", "events", "links"),
)
"""One row per attribute key, level (span, resource, scope, event, link), type of value and day."""

DERIVED_TABLES = (SUMMARIES, RED, EDGES, ATTRIBUTE_KEYS)


FROM_PROPERTY, TO_PROPERTY = "crannog.derivedFrom", "crannog.derivedTo"
VERSION_PROPERTY, DEFINITIONS_VERSION = TRACES.properties[1], 2


def derived_version(base: Base) -> int:
    """Return the version of the span table that a derived table is up to date with; 0 before the first derive."""
    return int(base.properties.get(TO_PROPERTY, "0"))


def existing_table(tables: Tables, derived: DerivedTable, spans: OpenTable) -> OpenTable | None:
    """Return a derived table, or None if none exists for this span table and these definitions.

    Raises Refused if a table of that name is not Crannog's, or was created by a newer version.
    """
    try:
        table = tables.open(derived.name)
        properties = table.log.head().properties
    except NotFound:
        tables.forget(derived.name)
        return None
    version = properties.get(VERSION_PROPERTY)
    if version is None:
        raise Refused(
            f"{derived.name} was not created by Crannog: it has no property {VERSION_PROPERTY}; drop or move it"
        )
    if int(version) > DEFINITIONS_VERSION:
        raise Refused(
            f"{derived.name} has version {version}, this Crannog supports {DEFINITIONS_VERSION}; upgrade Crannog"
        )
    fits = int(version) == DEFINITIONS_VERSION and properties.get(FROM_PROPERTY) == spans.log.table_id
    return table if fits else None


def open_or_create(tables: Tables, derived: DerivedTable, spans: OpenTable) -> OpenTable:
    """Open or create a derived table. Replaces a table of another span table or of older definitions."""
    table = existing_table(tables, derived, spans)
    if table is not None:
        return table
    try:
        tables.drop(derived.name)
    except NotFound:
        pass
    tables.create(
        derived.name,
        derived.columns,
        partition_by=["partition_date"],
        cluster_by=derived.cluster_by,
        bloom=derived.bloom,
        if_exists="ok",
        properties={VERSION_PROPERTY: str(DEFINITIONS_VERSION), FROM_PROPERTY: spans.log.table_id, TO_PROPERTY: "0"},
    )
    return tables.open(derived.name)
