"""The traces of an OTLP file that somebody looks at in Jaeger's pages: read as spans that come in are, and kept nowhere."""

from __future__ import annotations

from crannog.api.traces import Span, Trace
from crannog.errors import TooLarge
from crannog.traces.ingest.receive import JSON, received
from crannog.traces.ingest.span_validation import Rejected
from crannog.traces.trace import COLUMNS, in_tree_order, span_of


def traces_of(body: bytes, *, bytes_limit: int, spans_limit: int) -> tuple[list[Trace], Rejected]:
    """Return the traces of an OTLP request in JSON, in the order of their first span, and what of it is no span.

    Raises CallerError if the body is no such request, TooLarge if it has more bytes or spans than allowed.
    """
    got = received(body, content_type=JSON, limit=bytes_limit)
    if got.rows.num_rows > spans_limit:
        raise TooLarge(
            f"the file has {got.rows.num_rows:,} spans, and {spans_limit:,} can be shown at once: send it to the server as OTLP instead"
        )
    traces: dict[str, list[Span]] = {}
    for row in got.rows.select(COLUMNS).to_pylist():
        span = span_of(row)
        traces.setdefault(span.trace_id, []).append(span)
    return [Trace(trace_id, tuple(in_tree_order(spans)), False) for trace_id, spans in traces.items()], got.rejected
