"""Export of stored spans as OTLP, grouped by resource and scope; of any size as lines of requests in JSON.

The export equals what was received, except for equivalent forms: a parent id of zeros and an empty status are omitted, an
attribute without a value has an empty one, and the values of a repeated key are adjacent.

Lines are never completely in memory. They come from one snapshot, which a lease protects, and are read from DuckDB in
batches. A large trace is not sorted: only for duplicated spans, a first query over a few columns finds the copy that counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import EntityRef
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from crannog.api.traces.requests import ExportTraces
from crannog.engine.duckdb.engine import quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.errors import TooLarge
from crannog.traces import lookup
from crannog.traces.attribute_values import to_key_values
from crannog.traces.ingest.decode import json_of_request
from crannog.traces.lookup import with_copy_order
from crannog.traces.search.snapshot_reader import NEWEST_COPY_FIRST, SnapshotReader, open_reader
from crannog.traces.search.summaries import newest_copies_sql
from crannog.traces.span_store import SpanStore
from crannog.traces.span_table import COPY_ORDER, SCHEMA, no_trace, parse_trace_id


def export(store: SpanStore, request: ExportTraces) -> dict[str, Any]:
    """Return traces as one OTLP request in JSON."""
    return json_of_request(_request_of(store, request))


def export_protobuf(store: SpanStore, request: ExportTraces) -> bytes:
    """Return traces as one OTLP request in protobuf."""
    return bytes(_request_of(store, request).SerializeToString())


def _request_of(store: SpanStore, request: ExportTraces) -> ExportTraceServiceRequest:
    ids = list(dict.fromkeys(map(parse_trace_id, request.trace_ids)))
    limit = store.settings.trace_spans_limit
    found: dict[bytes, pa.Table] = {}
    with store.query_scope():
        for trace_id, rows, truncated in lookup.rows_of_traces(store.read_newest, ids, SCHEMA.names, limit):
            if truncated:
                raise TooLarge(
                    f"trace {trace_id.hex()} has more than {limit:,} spans, the limit of one request:"
                    " export it as lines (NDJSON), or raise `trace_spans_limit`"
                )
            found[trace_id] = rows
    for trace_id in ids:
        if trace_id not in found:
            raise no_trace(trace_id)
    return request_of_rows(pa.concat_tables(found.values()) if found else SCHEMA.empty_table())


def export_lines(store: SpanStore, request: ExportTraces) -> Generator[str, None, None]:
    """Yield OTLP requests in JSON. A trace's spans are sorted by start, or in stored order if there are over 50,000."""
    return lines_of_traces(store, request.trace_ids, lambda found: (_line(rows) for rows in found.parts()))


def _line(rows: pa.Table) -> str:
    # In ASCII, so that no reader finds a line separator of Unicode inside a line.
    return json.dumps(json_of_request(request_of_rows(rows)), separators=(",", ":"))


def lines_of_traces(
    store: SpanStore, trace_ids: Sequence[str], write: Callable[[TraceExport], Iterable[str]]
) -> Generator[str, None, None]:
    """Yield the lines that `write` makes of traces. Raises NotFound here if one does not exist."""
    ids = list(dict.fromkeys(map(parse_trace_id, trace_ids)))
    lines = store.stream(_found_and_lines(store, ids, write))
    next(lines)  # raises errors of the request here
    return lines


def _found_and_lines(
    store: SpanStore, ids: Sequence[bytes], write: Callable[[TraceExport], Iterable[str]]
) -> Generator[str, None, None]:
    """Yield an empty line once all traces are found, then the lines."""
    with ExitStack() as stack:
        found = store.read_in_scope(
            lambda table: table.newest(lambda snapshot: _open_export(table, snapshot, ids, stack)), None
        )
        for trace_id in ids:
            if found is None or trace_id not in found.counts:
                raise no_trace(trace_id)
        yield ""
        if found is not None:
            yield from write(found)


_RESOURCE = ("resource_attributes", "resource_dropped_attributes_count", "resource_schema_url", "resource_entity_refs")
_SCOPE = ("scope_name", "scope_version", "scope_attributes", "scope_dropped_attributes_count", "scope_schema_url")


def request_of_rows(rows: pa.Table) -> ExportTraceServiceRequest:
    """Return rows of the span table as one request; groups are in the order of their first span."""
    request = ExportTraceServiceRequest()
    resources: dict[str, Any] = {}
    scopes: dict[tuple[str, str], Any] = {}
    for row in rows.to_pylist():
        resource, scope = repr([row[name] for name in _RESOURCE]), repr([row[name] for name in _SCOPE])
        if resource not in resources:
            resources[resource] = _add_resource(request, row)
        if (resource, scope) not in scopes:
            scopes[resource, scope] = _add_scope(resources[resource], row)
        scopes[resource, scope].spans.append(_span(row))
    return request


def _add_resource(request: ExportTraceServiceRequest, row: dict[str, Any]) -> Any:
    added = request.resource_spans.add(schema_url=row["resource_schema_url"] or "")
    if row["resource_attributes"] is not None:
        added.resource.SetInParent()
        added.resource.attributes.extend(to_key_values(row["resource_attributes"]))
        added.resource.dropped_attributes_count = row["resource_dropped_attributes_count"]
        for ref in json.loads(row["resource_entity_refs"] or "[]"):
            added.resource.entity_refs.append(EntityRef(**ref))
    return added


def _add_scope(resource: Any, row: dict[str, Any]) -> Any:
    added = resource.scope_spans.add(schema_url=row["scope_schema_url"] or "")
    if row["scope_attributes"] is not None:
        added.scope.SetInParent()
        added.scope.name, added.scope.version = row["scope_name"], row["scope_version"] or ""
        added.scope.attributes.extend(to_key_values(row["scope_attributes"]))
        added.scope.dropped_attributes_count = row["scope_dropped_attributes_count"]
    return added


def _span(row: dict[str, Any]) -> Span:
    span = Span(
        trace_id=row["trace_id"],
        span_id=row["span_id"],
        trace_state=row["trace_state"],
        parent_span_id=row["parent_span_id"] or b"",
        flags=row["flags"],
        name=row["span_name"],
        kind=row["kind"],
        start_time_unix_nano=row["start_ns"],
        end_time_unix_nano=row["end_ns"] if row["reported_end_ns"] is None else row["reported_end_ns"],
        attributes=to_key_values(row["attributes"] or ()),
        dropped_attributes_count=row["dropped_attributes_count"],
        dropped_events_count=row["dropped_events_count"],
        dropped_links_count=row["dropped_links_count"],
    )
    for event in row["events"] or ():
        span.events.add(
            time_unix_nano=event["time_ns"] % 2**64,
            name=event["name"],
            attributes=to_key_values(event["attributes"] or ()),
            dropped_attributes_count=event["dropped_attributes_count"],
        )
    for link in row["links"] or ():
        span.links.add(
            trace_id=link["trace_id"],
            span_id=link["span_id"],
            trace_state=link["trace_state"],
            attributes=to_key_values(link["attributes"] or ()),
            dropped_attributes_count=link["dropped_attributes_count"],
            flags=link["flags"],
        )
    if row["status_code"] or row["status_message"]:
        span.status.code = row["status_code"]
        span.status.message = row["status_message"] or ""
    return span


SPANS_PER_LINE = 5_000
BYTES_PER_LINE = 8 * 1024**2
"""Size of the rows in memory; as JSON, a line stays below 64 MiB, the default limit of receivers."""
_BLOCK_ROWS = 500
_COPY_ORDER_COLUMNS = ", ".join(COPY_ORDER)


@dataclass(frozen=True)
class TraceExport:
    """Some traces in one snapshot; `counts` has the number of rows of each trace that exists."""

    table: OpenTable
    snapshot: Snapshot
    ids: Sequence[bytes]
    counts: Mapping[bytes, int]

    def parts(self) -> Iterator[pa.Table]:
        """Yield the rows of each line, with the traces in order and each span once.

        A line has up to `SPANS_PER_LINE` spans of one trace, sorted by start, or in stored order if the trace has more than
        `lookup.MAX_ROWS` rows.
        """
        for batch in lookup.id_batches(self.ids):
            for traces in lookup.read_batches(batch, self.counts):
                yield from _lines(_blocks(self._batches(traces), min(_BLOCK_ROWS, SPANS_PER_LINE)))

    def _batches(self, ids: Sequence[bytes]) -> Iterator[pa.Table]:
        schema = pa.schema([self.snapshot.base.read_schema.field(name) for name in SCHEMA.names])
        large = sum(self.counts[trace_id] for trace_id in ids) > lookup.MAX_ROWS
        with open_reader(self.table, self.snapshot) as reader:
            rows = lookup.rows_of_ids_sql(reader, ids)
            spans = _without_duplicates(reader, rows) if large else _sorted_traces(rows, ids)
            for batch in reader.batches(f"SELECT {_column_list(SCHEMA.names)} FROM ({spans})", _BLOCK_ROWS):
                yield pa.Table.from_batches([batch]).cast(schema)


def _column_list(columns: Sequence[str]) -> str:
    return ", ".join(map(quoted, columns))


def _sorted_traces(rows: str, ids: Sequence[bytes]) -> str:
    """Return the SQL of some traces, sorted in memory."""
    order = ", ".join(f"from_hex('{trace_id.hex()}')" for trace_id in ids)
    spans = newest_copies_sql(f"SELECT {_column_list(with_copy_order(SCHEMA.names))} FROM {rows}")
    return f"{spans} ORDER BY list_position([{order}], trace_id), start_ns, span_id"


def _without_duplicates(reader: SnapshotReader, rows: str) -> str:
    """Return the SQL of one trace in stored order; DuckDB cannot sort any number of wide rows."""
    # Compared by hash: a collision costs time, and changes no result.
    reader.create_temp_table("duplicated", f"SELECT hash(span_id) AS h FROM {rows} GROUP BY h HAVING count(*) > 1")
    newest = reader.create_temp_table(
        "newest",
        # The copies that count: several if one request had a span twice, with the same time.
        f"SELECT span_id, {_COPY_ORDER_COLUMNS}, count(*) OVER (PARTITION BY span_id) AS copies FROM"
        f" (SELECT span_id, {_COPY_ORDER_COLUMNS} FROM {rows} WHERE hash(span_id) IN (FROM duplicated)"
        f" QUALIFY rank() OVER (PARTITION BY span_id ORDER BY {NEWEST_COPY_FIRST}) = 1)",
    )
    if not newest:
        return rows
    wide = f"SELECT {_column_list(with_copy_order(SCHEMA.names))} FROM {rows}"
    return (
        f"{wide} WHERE hash(span_id) NOT IN (FROM duplicated)"
        f" UNION ALL {wide} SEMI JOIN (SELECT * FROM newest WHERE copies = 1) USING (span_id, {_COPY_ORDER_COLUMNS})"
        f" UNION ALL {newest_copies_sql(f'{wide} SEMI JOIN (SELECT * FROM newest WHERE copies > 1) USING (span_id, {_COPY_ORDER_COLUMNS})')}"
    )


def _open_export(table: OpenTable, snapshot: Snapshot, ids: Sequence[bytes], stack: ExitStack) -> TraceExport:
    """Count the rows of some traces, and protect the files of the snapshot until `stack` is closed."""
    with ExitStack() as opening:
        opening.enter_context(table.reading(snapshot))
        counts: dict[bytes, int] = {}
        for batch in lookup.id_batches(ids):
            counts |= lookup.row_counts_in(table, snapshot, batch)
        stack.enter_context(opening.pop_all())
    return TraceExport(table, snapshot, ids, counts)


def _blocks(batches: Iterable[pa.Table], size: int) -> Iterator[tuple[bytes, pa.Table]]:
    """Split rows into blocks of one trace each, independent of the sizes of the batches."""
    block: list[pa.Table] = []
    block_trace, room = b"", size
    for batch in batches:
        for trace_id, rows in lookup.split_by_trace(batch):
            if block and trace_id != block_trace:
                yield block_trace, pa.concat_tables(block)
                block, room = [], size
            block_trace = trace_id
            while rows.num_rows:
                block.append(rows.slice(0, room))
                rows, room = rows.slice(room), room - block[-1].num_rows
                if not room:
                    yield block_trace, pa.concat_tables(block)
                    block, room = [], size
    if block:
        yield block_trace, pa.concat_tables(block)


def _lines(blocks: Iterable[tuple[bytes, pa.Table]]) -> Iterator[pa.Table]:
    """Join the blocks of a trace to lines within the limits, and split blocks that are too large."""
    line: list[pa.Table] = []
    line_trace, spans, size = b"", 0, 0
    for trace_id, block in blocks:
        if line and (
            trace_id != line_trace or spans + block.num_rows > SPANS_PER_LINE or size + block.nbytes > BYTES_PER_LINE
        ):
            yield from _split_large(pa.concat_tables(line))
            line, spans, size = [], 0, 0
        line.append(block)
        line_trace, spans, size = trace_id, spans + block.num_rows, size + block.nbytes
    if line:
        yield from _split_large(pa.concat_tables(line))


def _split_large(rows: pa.Table) -> Iterator[pa.Table]:
    if rows.nbytes <= BYTES_PER_LINE or rows.num_rows == 1:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _split_large(rows.slice(0, half))
    yield from _split_large(rows.slice(half))
