"""Converts nested OTLP to the columns of the span table, with Arrow's compute functions only; rejects invalid spans."""

from __future__ import annotations

import array
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from crannog.delta.schema_json import INSTANT, list_of
from crannog.errors import TooLarge
from crannog.traces.attribute_values import escaped_names, search_texts
from crannog.traces.ingest.attributes import Attributes, attributes_of, offsets_of, words_per_owner
from crannog.traces.ingest.llm_columns import llm_columns
from crannog.traces.span_table import (
    EVENT,
    LINK,
    NO_SPAN_ID,
    NO_TRACE_ID,
    SCHEMA,
    SPAN_ID_BYTES,
    SPAN_KINDS,
    TRACE_ID_BYTES,
    UNKNOWN_SERVICE,
)

_NS_PER_DAY, _NS_PER_MINUTE = 86_400 * 10**9, 60 * 10**9
_KIND_NAMES = pa.array([None, *SPAN_KINDS[1:]], pa.string())
_MAX_SHARED_BYTES = 512 * 1024**2
_INT64 = pa.int64()
_ZERO = pa.scalar(0, pa.int32())
_EMPTY = {kind: pa.array([], kind) for kind in (EVENT, LINK)}
_NO_TEXT = pa.scalar(None, pa.string())


def span_rows(resource_spans: pa.StructArray) -> tuple[pa.Table, RejectedSpans]:
    """Return the valid spans of a request as a table of `SCHEMA`, and the rejected spans."""
    scopes = resource_spans.field("scope_spans")
    scope_spans = scopes.flatten()
    lists = scope_spans.field("spans")
    spans, scope_of = lists.flatten(), pc.list_parent_indices(lists)
    valid, rejected = validate_spans(spans)
    if valid is not None:
        spans, scope_of = spans.filter(valid), scope_of.filter(valid)
    resource_of = pc.list_parent_indices(scopes).take(scope_of)
    resources, scoped = _Resources(resource_spans), _Scopes(scope_spans)
    _check_size([(resources.columns, resource_of), (scoped.columns, scope_of)])
    columns = _of_spans(spans, resources.services.take(resource_of), scoped, scope_of)
    columns |= {name: column.take(resource_of) for name, column in resources.columns.items()}
    return pa.Table.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA), rejected


def _check_size(shared: list[tuple[dict[str, pa.Array], pa.Array]]) -> None:
    """Raise TooLarge if the columns of resources and scopes, repeated for each span, would be too large."""
    for columns, places in shared:
        if sum(column.nbytes for column in columns.values()) * len(places) <= _MAX_SHARED_BYTES:
            continue  # an upper bound, without a look at single values
        size = sum(pc.sum(_sizes(column).take(places)).as_py() or 0 for column in columns.values())
        if size > _MAX_SHARED_BYTES:
            raise TooLarge(
                f"the resources and scopes of the request, repeated for each of its {len(places):,} spans, have {size:,} bytes;"
                f" the limit is {_MAX_SHARED_BYTES:,}: send fewer spans per request"
            )


def _sizes(column: pa.Array) -> pa.Array:
    """Return the size in bytes of each value of a column."""
    if pa.types.is_string(column.type):
        return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
    if not pa.types.is_map(column.type):
        return pa.repeat(pa.scalar(8, pa.int64()), len(column))
    lengths = pc.add(pc.binary_length(column.keys), pc.binary_length(column.items)).cast(pa.int64())
    ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    return pc.subtract(ends.take(column.offsets[1:]), ends.take(column.offsets[:-1]))


class _Resources:
    """The columns that the spans of each resource share."""

    def __init__(self, resource_spans: pa.StructArray) -> None:
        given = resource_spans.field("resource")
        attributes = attributes_of(_list_field(given, "attributes"))
        self.services = _services(attributes, len(resource_spans))
        self.columns = {
            "resource_attributes": attributes.maps(given.is_null()),
            "resource_dropped_attributes_count": _dropped_count(given),
            "resource_schema_url": _empty_to_null(resource_spans.field("schema_url")),
            "resource_entity_refs": _entity_refs(given),
        }


class _Scopes:
    """The columns that the spans of each scope share."""

    def __init__(self, scope_spans: pa.StructArray) -> None:
        given = scope_spans.field("scope")
        self.names = pc.fill_null(pc.struct_field(given, "name"), "")
        self.columns = {
            "scope_name": self.names,
            "scope_version": _empty_to_null(pc.fill_null(pc.struct_field(given, "version"), "")),
            "scope_attributes": attributes_of(_list_field(given, "attributes")).maps(given.is_null()),
            "scope_dropped_attributes_count": _dropped_count(given),
            "scope_schema_url": _empty_to_null(scope_spans.field("schema_url")),
        }


def _of_spans(spans: pa.StructArray, services: pa.Array, scopes: _Scopes, scope_of: pa.Array) -> dict[str, pa.Array]:
    count = len(spans)
    attributes = attributes_of(spans.field("attributes"))
    start, end = (spans.field(f"{name}_time_unix_nano").view(pa.int64()) for name in ("start", "end"))
    end, reported_end = _valid_ends(start, end)
    duration = pc.subtract(end, start)
    kind, parents, names = spans.field("kind"), spans.field("parent_span_id"), spans.field("name")
    is_kind = pc.and_(pc.greater_equal(kind, 0), pc.less(kind, len(SPAN_KINDS)))
    no_parent = pc.or_(pc.equal(pc.binary_length(parents), 0), pc.equal(parents, pa.scalar(NO_SPAN_ID, pa.binary())))
    message = _empty_to_null(pc.fill_null(pc.struct_field(spans.field("status"), "message"), ""))
    events, event_words = _events(spans.field("events"))
    by_scope = {name: column.take(scope_of) for name, column in scopes.columns.items()}
    return {
        **by_scope,
        **llm_columns(attributes, count),
        "trace_id": spans.field("trace_id"),
        "span_id": spans.field("span_id"),
        "parent_span_id": pc.if_else(no_parent, pa.scalar(None, pa.binary()), parents),
        "flags": spans.field("flags").cast(_INT64),
        "trace_state": spans.field("trace_state"),
        "service_name": services,
        "span_name": names,
        "span_kind": _KIND_NAMES.take(pc.if_else(is_kind, kind, 0)),
        "start_time": _to_timestamps(start),
        "end_time": _to_timestamps(end),
        "duration_ms": pc.divide(duration, 1_000_000),
        "status_code": pc.fill_null(pc.struct_field(spans.field("status"), "code"), 0),
        "status_message": message,
        "attributes": attributes.maps(),
        "events": events,
        "links": _links(spans.field("links")),
        "search_blob": search_texts(
            escaped_names(services),
            escaped_names(names),
            escaped_names(by_scope["scope_name"]),
            escaped_names(message),
            attributes.words(),
            event_words,
        ),
        "partition_date": pc.divide(start, _NS_PER_DAY).cast(pa.int32()).view(pa.date32()),
        "start_ns": start,
        "end_ns": end,
        "duration_ns": duration,
        "reported_end_ns": reported_end,
        "trace_hi": trace_id_highs(spans.field("trace_id")),
        "start_minute": pc.divide(start, _NS_PER_MINUTE).cast(pa.int32()),
        "kind": kind,
        "dropped_attributes_count": spans.field("dropped_attributes_count").cast(_INT64),
        "dropped_events_count": spans.field("dropped_events_count").cast(_INT64),
        "dropped_links_count": spans.field("dropped_links_count").cast(_INT64),
    }


def _valid_ends(start: pa.Array, reported: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the stored ends, and the reported ends that are before the start, null for the others."""
    nothing = pa.scalar(None, pa.int64())
    backwards = pc.less(reported, start)
    if not pc.any(backwards).as_py():
        return reported, pa.nulls(len(reported), pa.int64())
    return pc.if_else(backwards, start, reported), pc.if_else(backwards, reported, nothing)


def trace_id_highs(trace_ids: pa.Array) -> pa.Array:
    """Return the first eight bytes of each trace id as a signed big-endian integer."""
    if not len(trace_ids):
        return pa.array([], pa.int64())
    halves = array.array("q", b"")
    data = trace_ids.buffers()[2]
    offsets = pa.Array.from_buffers(
        pa.int32(), len(trace_ids) + 1, [None, trace_ids.buffers()[1]], offset=trace_ids.offset
    )
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    halves.frombytes(data.slice(start, end - start))
    if sys.byteorder == "little":
        halves.byteswap()
    return pa.Array.from_buffers(pa.int64(), len(trace_ids), [None, pa.py_buffer(halves[::2])])


def _events(lists: pa.ListArray) -> tuple[pa.Array, pa.Array]:
    """Return the events of each span, and their names as words of the search text."""
    if not len(lists.flatten()):
        return _empty_lists(EVENT, len(lists)), pa.nulls(len(lists), pa.string())
    given, offsets = lists.flatten(), offsets_of(lists)
    # An event after the year 2262 overflows; an export reverses that.
    time_ns = given.field("time_unix_nano").view(pa.int64())
    columns = [
        given.field("name"),
        _to_timestamps(time_ns),
        time_ns,
        attributes_of(given.field("attributes")).maps(),
        given.field("dropped_attributes_count").cast(_INT64),
    ]
    made = pa.StructArray.from_arrays(columns, fields=list(EVENT))
    return pa.ListArray.from_arrays(offsets, made, type=list_of(EVENT)), words_per_owner(
        offsets, escaped_names(given.field("name"))
    )


def _links(lists: pa.ListArray) -> pa.Array:
    given = lists.flatten()
    if not len(given):
        return _empty_lists(LINK, len(lists))
    columns = [
        given.field("trace_id"),
        given.field("span_id"),
        given.field("trace_state"),
        attributes_of(given.field("attributes")).maps(),
        given.field("dropped_attributes_count").cast(_INT64),
        given.field("flags").cast(_INT64),
    ]
    return pa.ListArray.from_arrays(
        offsets_of(lists), pa.StructArray.from_arrays(columns, fields=list(LINK)), type=list_of(LINK)
    )


def _empty_lists(kind: pa.DataType, count: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.repeat(_ZERO, count + 1), _EMPTY[kind], type=list_of(kind))


def _services(attributes: Attributes, count: int) -> pa.Array:
    named = pc.indices_nonzero(pc.equal(attributes.keys, "service.name"))
    found = dict(zip(attributes.owners.take(named).to_pylist(), attributes.text.take(named).to_pylist(), strict=True))
    return pa.array([found.get(place) or UNKNOWN_SERVICE for place in range(count)], pa.string())


def _entity_refs(resources: pa.StructArray) -> pa.Array:
    refs = pc.struct_field(resources, "entity_refs")
    if not len(refs.flatten()):
        return pa.nulls(len(resources), pa.string())
    texts = [entity_refs_text(listed) if listed else None for listed in refs.to_pylist()]
    return pa.array(texts, pa.string())


def entity_refs_text(refs: list[dict[str, object]]) -> str:
    """Return the entity references of a resource as JSON."""
    return json.dumps(refs, ensure_ascii=False, separators=(",", ":"))


def _list_field(structs: pa.StructArray, name: str) -> pa.ListArray:
    """Return a list field of structs; empty for a null struct."""
    child = structs.field(name)
    if child.null_count:
        lengths = pc.fill_null(pc.list_value_length(child), 0)
        ends = pc.cumulative_sum(lengths).cast(pa.int32())
        return pa.ListArray.from_arrays(pa.concat_arrays([pa.array([0], pa.int32()), ends]), child.flatten())
    return child


def _dropped_count(structs: pa.StructArray) -> pa.Array:
    """Return the number of dropped attributes; 0 for a struct that is null."""
    return pc.fill_null(pc.struct_field(structs, "dropped_attributes_count"), 0).cast(_INT64)


def _empty_to_null(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, ""), _NO_TEXT, texts)


def _to_timestamps(nanoseconds: pa.Array) -> pa.Array:
    return pc.divide(nanoseconds, 1000).view(INSTANT)


MAX_TIME_NS = 2**63 - 1

REASONS = (
    "the trace id is not 16 bytes, or all zero",
    "the span id is not 8 bytes, or all zero",
    "the parent span id is not 8 bytes",
    "the start or end is after the year 2262",
)


@dataclass(frozen=True, slots=True)
class RejectedSpans:
    """How many spans were rejected for each reason."""

    by_reason: Mapping[str, int]

    @property
    def count(self) -> int:
        return sum(self.by_reason.values())

    @property
    def message(self) -> str:
        """The number of rejected spans and the reasons, in one line; empty if none was rejected."""
        if not self.by_reason:
            return ""
        return f"{self.count:,} span{'s were' if self.count > 1 else ' was'} rejected, do not send them again: {self.reasons}"

    @property
    def reasons(self) -> str:
        """The reasons, with the number of spans rejected for each."""
        return "; ".join(f"{count:,} because {reason}" for reason, count in self.by_reason.items())


def rejection_reason(trace_id: bytes, span_id: bytes, parent: bytes, start_ns: int, end_ns: int) -> str | None:
    """Return why a span is rejected; None if it is valid."""
    if len(trace_id) != TRACE_ID_BYTES or trace_id == NO_TRACE_ID:
        return REASONS[0]
    if len(span_id) != SPAN_ID_BYTES or span_id == NO_SPAN_ID:
        return REASONS[1]
    if len(parent) not in (0, SPAN_ID_BYTES):
        return REASONS[2]
    return REASONS[3] if max(start_ns, end_ns) > MAX_TIME_NS else None


def validate_spans(spans: pa.StructArray) -> tuple[pa.Array | None, RejectedSpans]:
    """Return a mask of the valid spans, None if all are valid, and the rejected spans by reason."""
    trace_ids, span_ids, parents = (spans.field(name) for name in ("trace_id", "span_id", "parent_span_id"))
    start, end = spans.field("start_time_unix_nano"), spans.field("end_time_unix_nano")
    lengths = pc.binary_length(parents)
    invalid = (
        _is_invalid_id(trace_ids, TRACE_ID_BYTES, NO_TRACE_ID),
        _is_invalid_id(span_ids, SPAN_ID_BYTES, NO_SPAN_ID),
        pc.and_(pc.not_equal(lengths, 0), pc.not_equal(lengths, SPAN_ID_BYTES)),
        pc.greater(pc.max_element_wise(start, end), pa.scalar(MAX_TIME_NS, pa.uint64())),
    )
    valid: pa.Array | None = None
    counts: dict[str, int] = {}
    for reason, mask in zip(REASONS, invalid, strict=True):
        rejected = mask if valid is None else pc.and_(mask, valid)
        count = pc.sum(rejected).as_py() or 0
        if count:
            counts[reason] = count
            valid = pc.invert(rejected) if valid is None else pc.and_(valid, pc.invert(rejected))
    return valid, RejectedSpans(counts)


def _is_invalid_id(ids: pa.Array, length: int, zero: bytes) -> pa.Array:
    return pc.or_(pc.not_equal(pc.binary_length(ids), length), pc.equal(ids, pa.scalar(zero, pa.binary())))
