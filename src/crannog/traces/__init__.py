"""The trace store: OTLP and Zipkin in, durable at the acknowledgement; traces out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crannog.api.traces import Event, Link, Span, Trace, WriteOutcome

if TYPE_CHECKING:
    from crannog.traces.traces import Traces

__all__ = ["Event", "Link", "Span", "Trace", "Traces", "WriteOutcome"]


def __getattr__(name: str) -> Any:
    # On first use: whoever wants one part of the package need not load protobuf and all the others.
    if name == "Traces":
        from crannog.traces.traces import Traces

        return Traces
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
