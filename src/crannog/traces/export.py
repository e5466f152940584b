"""Export of stored spans as OTLP, grouped by resource and scope.

The export equals what was received, except for equivalent forms: a parent id of zeros and an empty status are omitted, an
attribute without a value has an empty one, and the values of a repeated key are adjacent.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import EntityRef
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from crannog.traces.attribute_values import to_key_values

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
