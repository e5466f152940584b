"""Spans for the tests of what is derived from them, and the same derived by plain Python: what the engines must equal."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from crannog.embedded import EmbeddedLake as Lake
from crannog.traces.derived.definitions import DERIVED_TABLES, DerivedTable
from crannog.traces.derived.views import DerivedViews
from lakes import read_delta_rs, root
from local_traces import LocalTraces

NOON = 1_760_011_200_000_000_000
"""2025-10-09, noon."""
SECOND, MINUTE, HOUR, DAY = 10**9, 60 * 10**9, 3600 * 10**9, 86_400 * 10**9
_KINDS = (None, "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_EPOCH = dt.date(1970, 1, 1)


@dataclass(frozen=True)
class Sent:
    """One span as a client sends it."""

    trace: int
    span: int
    parent: int | None = None
    service: str = "web"
    name: str = "GET /"
    start: int = NOON
    duration: int = 5 * 10**6
    kind: int = 2
    status: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def day(self) -> dt.date:
        return _EPOCH + dt.timedelta(days=self.start // DAY)


def _value(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    return AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)


def body(spans: Iterable[Sent]) -> bytes:
    """An OTLP request with these spans."""
    parts = []
    for sent in spans:
        span = Span(
            trace_id=trace_id(sent.trace),
            span_id=sent.span.to_bytes(8),
            parent_span_id=sent.parent.to_bytes(8) if sent.parent else b"",
            name=sent.name,
            kind=sent.kind,
            start_time_unix_nano=sent.start,
            end_time_unix_nano=sent.start + sent.duration,
            status=Status(code=sent.status),
            attributes=[KeyValue(key=key, value=_value(value)) for key, value in sent.attributes.items()],
        )
        named = [KeyValue(key="service.name", value=AnyValue(string_value=sent.service))]
        parts.append(ResourceSpans(resource=Resource(attributes=named), scope_spans=[ScopeSpans(spans=[span])]))
    return ExportTraceServiceRequest(resource_spans=parts).SerializeToString()


def trace_id(trace: int) -> bytes:
    return (trace * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8) + trace.to_bytes(8)


# -- by plain Python -------------------------------------------------------------------------------------------------


def counted(requests: Sequence[Sequence[Sent]]) -> list[Sent]:
    """The spans that count: of those sent again on the same day, the newest."""
    newest: dict[tuple[dt.date, int, int], tuple[Any, Sent]] = {}
    for arrived, request in enumerate(requests):
        for sent in request:
            place = (arrived, sent.start + sent.duration, sent.start, sent.service, sent.name, sent.kind, sent.status)
            known = newest.get((sent.day, sent.trace, sent.span))
            if known is None or place > known[0]:
                newest[sent.day, sent.trace, sent.span] = place, sent
    return [sent for _, sent in newest.values()]


def bucket_of(duration: int) -> int:
    exponent = max(duration.bit_length() - 1, 0)
    return duration if exponent < 6 else (exponent - 5) * 32 + (duration >> (exponent - 5))


def derived_by_hand(spans: Sequence[Sent]) -> dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]:
    """Each derived table of these spans: its values by its keys."""
    return {
        "summaries": _grouped(spans, lambda s: (s.day, trace_id(s.trace)), _summary),
        "red": _grouped(
            spans, lambda s: (s.day, s.start // MINUTE, s.service, s.name, _KINDS[s.kind], bucket_of(s.duration)), _red
        ),
        "edges": _edges(spans),
        "attribute_keys": _attributes(spans),
    }


def _grouped(items: Iterable[Any], key: Any, value: Any) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    found: dict[tuple[Any, ...], list[Any]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return {name: value(members) for name, members in found.items()}


def _errors(spans: Sequence[Sent]) -> int:
    return sum(sent.status == 2 for sent in spans)


def _summary(spans: Sequence[Sent]) -> tuple[Any, ...]:
    roots = sorted((sent.start, sent.span, sent.service, sent.name) for sent in spans if sent.parent is None)
    root = (roots[0][1].to_bytes(8), roots[0][0], *roots[0][2:]) if roots else (None, None, None, None)
    ends = [sent.start + sent.duration for sent in spans]
    starts, statuses = [sent.start for sent in spans], [sent.status for sent in spans]
    return (min(starts), max(ends), len(spans), _errors(spans), max(statuses), *root)


def _red(spans: Sequence[Sent]) -> tuple[Any, ...]:
    durations = [sent.duration for sent in spans]
    seconds, missing = sum(d // SECOND for d in durations), sum(d % SECOND for d in durations)
    return (len(spans), _errors(spans), seconds, missing, min(durations), max(durations))


def _edges(spans: Sequence[Sent]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    pairs = [
        (child, parent.service)
        for child in spans
        for parent in spans
        if (parent.trace, parent.span) == (child.trace, child.parent)
        and parent.service != child.service
        and abs((parent.day - child.day).days) <= 1
    ]
    return _grouped(
        pairs,
        lambda pair: (pair[0].day, pair[0].start // MINUTE, pair[1], pair[0].service),
        lambda found: (len(found), _errors([child for child, _ in found])),
    )


def _attributes(spans: Sequence[Sent]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    uses = [(sent.day, "span", key, value) for sent in spans for key, value in sent.attributes.items()]
    uses += [(sent.day, "resource", "service.name", sent.service) for sent in spans]
    written = [(day, level, key, *_written(value)) for day, level, key, value in uses]

    def examples(found: list[tuple[Any, ...]]) -> tuple[Any, ...]:
        texts = [text for *_, text in found]
        return (len(found), *(min((t for t in texts if len(t) % 3 == third), default=None) for third in range(3)))

    return _grouped(written, lambda use: use[:4], examples)


def _written(value: Any) -> tuple[str, str]:
    if isinstance(value, bool):
        return "bool", str(value).lower()
    return ("int", str(value)) if isinstance(value, int) else ("string", f'"{value}"')


# -- what Crannog has ------------------------------------------------------------------------------------------------

_LEFT_OUT = ("trace_hi", "spans_version")


def as_dict(derived: DerivedTable, rows: pa.Table) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Merged rows in the form of `derived_by_hand`."""
    keys = [name for name in derived.group_by if name not in _LEFT_OUT]
    values = [name for name in derived.columns.names if name not in (*derived.group_by, *_LEFT_OUT)]
    found = {tuple(row[name] for name in keys): tuple(row[name] for name in values) for row in rows.to_pylist()}
    assert len(found) == rows.num_rows, f"{derived.name}: a key stands twice"
    return found


def seen(lake: Lake, traces: LocalTraces) -> dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]:
    """Each derived table as readers see it: merged, with what was not derived yet."""
    views = DerivedViews(lake.operations.tables)
    return {
        derived.name.table: as_dict(derived, views.query(traces.spans, derived, lambda rows: f"SELECT * FROM {rows}"))
        for derived in DERIVED_TABLES
    }


def stored(lake: Lake) -> dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]:
    """Each derived table as it stands on disk, read by delta-rs and merged by Python."""
    return {
        derived.name.table: _merged(derived, read_delta_rs(root(lake, str(derived.name)))) for derived in DERIVED_TABLES
    }


def _merged(derived: DerivedTable, rows: pa.Table) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    keys = [name for name in derived.group_by if name not in _LEFT_OUT]
    values = [name for name in derived.columns.names if name not in (*derived.group_by, *_LEFT_OUT)]

    def one(found: list[dict[str, Any]]) -> tuple[Any, ...]:
        merged_sql: dict[str, Any] = {}
        of_root = ("root_start_ns", "root_span_id", "root_service", "root_operation")
        roots = sorted(tuple(row[name] for name in of_root) for row in found if row.get("root_span_id"))
        for name in values:
            present = [row[name] for row in found if row[name] is not None]
            if name.startswith("root_"):
                merged_sql[name] = roots[0][of_root.index(name)] if roots else None
            elif name in ("start_ns", "min_ns") or name.startswith("example_"):
                merged_sql[name] = min(present, default=None)
            elif name in ("end_ns", "max_ns", "max_status"):
                merged_sql[name] = max(present)
            else:
                merged_sql[name] = sum(present)
        return tuple(merged_sql[name] for name in values)

    return _grouped(rows.to_pylist(), lambda row: tuple(row[name] for name in keys), one)


# -- any spans -------------------------------------------------------------------------------------------------------

_durations = st.one_of(
    st.integers(0, 200), st.integers(0, 10**10), st.sampled_from([0, 63, 64, 2**40, 2**62, 2**63 - 1 - NOON - 2 * DAY])
)


@st.composite
def any_spans(draw: st.DrawFn, *, days: Sequence[int] = (-1, 0, 1), most: int = 8) -> list[Sent]:
    """Few traces and ids, so that parents meet children, and some are sent again, alike or not."""
    offsets = st.sampled_from([0, 1, MINUTE - 1, MINUTE, 11 * HOUR + 59 * MINUTE, 12 * HOUR, 12 * HOUR - 1])
    span = st.builds(
        Sent,
        trace=st.integers(1, 3),
        span=st.integers(1, 5),
        parent=st.one_of(st.none(), st.integers(1, 5)),
        service=st.sampled_from(["web", "api", "db"]),
        name=st.sampled_from(["GET /", "list", "q|=\\"]),
        start=st.builds(lambda day, offset: NOON + day * DAY + offset, st.sampled_from(list(days)), offsets),
        duration=_durations,
        kind=st.integers(0, 5),
        status=st.integers(0, 2),
        attributes=st.dictionaries(
            st.sampled_from(["user.id", "n"]),
            st.one_of(st.integers(0, 3), st.sampled_from(["x", "äöü🦀", "longer"]), st.booleans()),
            max_size=2,
        ),
    )
    found: dict[tuple[dt.date, int, int], Sent] = {}
    for sent in draw(st.lists(span, min_size=1, max_size=most)):
        found.setdefault((sent.day, sent.trace, sent.span), sent)  # which of two in one request counts is no promise
    return list(found.values())
