"""Finds the invalid spans of a request, which are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
NO_TRACE_ID, NO_SPAN_ID = bytes(TRACE_ID_BYTES), bytes(SPAN_ID_BYTES)
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
