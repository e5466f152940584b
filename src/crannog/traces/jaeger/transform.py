"""The traces of an OTLP file that was opened in Jaeger's UI: read like incoming spans, and not stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.compute as pc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from crannog.api.traces import Trace
from crannog.errors import CallerError, TooLarge
from crannog.traces.ingest.decode import parse_otlp_json, resource_spans
from crannog.traces.ingest.flatten import RejectedSpans, rejection_reason, span_rows
from crannog.traces.lookup import split_by_trace
from crannog.traces.span_table import NO_TRACE_ID, TRACE_ID_BYTES
from crannog.traces.trace import spans_in_tree_order

_NO_TRACE = ""


@dataclass(frozen=True, slots=True)
class FileTraces:
    """The traces of a file in the order of their first span, and the spans that are not valid."""

    traces: list[Trace]
    rejected: Mapping[str, RejectedSpans]
    """By trace id; spans without a valid one are under the empty id."""

    @property
    def message(self) -> str:
        """What of the whole file cannot be shown; empty if all of it can."""
        by_reason: Counter[str] = Counter()
        for rejected in self.rejected.values():
            by_reason.update(rejected.by_reason)
        return _message(RejectedSpans(by_reason), "the file") if by_reason else ""

    def warnings(self, trace_id: str) -> list[str]:
        """What of a trace, or of no trace in particular, cannot be shown."""
        places = {trace_id: "this trace", _NO_TRACE: "the file"}
        return [_message(self.rejected[key], place) for key, place in places.items() if key in self.rejected]


def file_traces(body: bytes, *, max_bytes: int, max_spans: int) -> FileTraces:
    """Read the traces of an OTLP request in JSON.

    Raises CallerError if the body is not such a request or none of its spans is valid, TooLarge beyond a limit.
    """
    if len(body) > max_bytes:
        raise TooLarge(f"the file has {len(body):,} bytes; at most {max_bytes:,} can be shown")
    request = parse_otlp_json(body)
    rows, rejected = span_rows(resource_spans(request))
    if rows.num_rows > max_spans:
        raise TooLarge(
            f"the file has {rows.num_rows:,} spans; at most {max_spans:,} can be shown: send it to the server as OTLP instead"
        )
    if rejected.count and not rows.num_rows:
        raise CallerError(_message(rejected, "the file"))
    by_trace = dict(split_by_trace(rows.take(pc.sort_indices(rows["trace_id"]))))
    traces = [
        Trace(trace_id.hex(), tuple(spans_in_tree_order(by_trace[trace_id])))
        for trace_id in rows["trace_id"].unique().to_pylist()
    ]
    return FileTraces(traces, _rejected_by_trace(request) if rejected.count else {})


def _message(rejected: RejectedSpans, where: str) -> str:
    count = rejected.count
    return f"{count:,} span{'s' if count > 1 else ''} of {where} cannot be shown: {rejected.reasons}"


def _rejected_by_trace(request: ExportTraceServiceRequest) -> dict[str, RejectedSpans]:
    found: dict[str, Counter[str]] = {}
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                reason = rejection_reason(
                    span.trace_id,
                    span.span_id,
                    span.parent_span_id,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                )
                if reason is not None:
                    valid = len(span.trace_id) == TRACE_ID_BYTES and span.trace_id != NO_TRACE_ID
                    found.setdefault(span.trace_id.hex() if valid else _NO_TRACE, Counter())[reason] += 1
    return {trace_id: RejectedSpans(reasons) for trace_id, reasons in found.items()}
