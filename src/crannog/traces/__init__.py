"""The trace store: OTLP and Zipkin in, durable at the acknowledgement; traces out."""

from crannog.traces.trace import Event, Link, Span, Trace
from crannog.traces.traces import Traces, WriteOutcome

__all__ = ["Event", "Link", "Span", "Trace", "Traces", "WriteOutcome"]
