"""The traces of a server: the same verbs and values as embedded ones, each of them a request."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from crannog.api.arguments import checked_query_id, checked_timeout
from crannog.api.cancellation import Cancellation
from crannog.api.reports import ErasureReceipt, Progress
from crannog.api.traces import (
    AttributeKey,
    Dependency,
    DeriveReport,
    ErasurePlan,
    MetricPoint,
    Span,
    SpanPage,
    Suggestion,
    Trace,
    TraceComparison,
    TraceExpiry,
    TracePage,
    TraceView,
    WriteOutcome,
)
from crannog.errors import CallerError
from crannog.formats.lossless_json import unmarked
from crannog.remote.connection import ONE_TRY, READ_TRIES, WRITE_TRIES, Connection, Params
from crannog.remote.jobs import read_as, run_job

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
_PROTOBUF, _ZIPKIN = "application/x-protobuf", "application/vnd.zipkin.v2+json"
_OF_SPAN = frozenset(field.name for field in fields(Span))


class RemoteTraces:
    """Spans in, traces out. Safe for threads; arguments, answers and errors are those of an embedded connection."""

    def __init__(self, connection: Connection, *, timeout_s: float | None = None, query_id: str | None = None) -> None:
        self._connection = connection
        # What is asked under an id is asked once: sent again, it might meet itself.
        self._tries = READ_TRIES if query_id is None else ONE_TRY
        self._limits = {"Crannog-Query-Id": quote(query_id)} if query_id is not None else {}
        if timeout_s is not None:
            self._limits["Crannog-Timeout-S"] = repr(timeout_s)

    # -- limits ------------------------------------------------------------------------------------------------------

    def within(self, *, timeout_s: float | None = None, query_id: str | None = None) -> RemoteTraces:
        """Return the same traces for questions that may take so long, or that `cancel` can end by an id of the caller's."""
        given = None if query_id is None else checked_query_id(query_id)
        return RemoteTraces(self._connection, timeout_s=checked_timeout(timeout_s), query_id=given)

    def cancel(self, query_id: str) -> None:
        """End a question that runs or waits, which raises Cancelled; NotFound if there is none by this id."""
        self._connection.ask("DELETE", f"/traces/questions/{quote(str(query_id), safe='')}")

    # -- writing -----------------------------------------------------------------------------------------------------

    def write_otlp(self, body: bytes, *, content_type: str = _PROTOBUF, encoding: str | None = None) -> WriteOutcome:
        """Keep the spans of an OTLP request; durable and visible when it returns. The same request again is kept once."""
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise CallerError(f"the body of a request is bytes, got {type(body).__name__}")
        headers = {"Content-Type": content_type} | ({"Content-Encoding": encoding} if encoding else {})
        # Kept once by its content: what got no answer may be sent again.
        answer = self._connection.ask("POST", "/traces/otlp", content=bytes(body), headers=headers, tries=WRITE_TRIES)
        return read_as(WriteOutcome, answer.json())

    def write_zipkin(self, body: bytes, *, encoding: str | None = None) -> WriteOutcome:
        """Keep the spans of Zipkin's v2 JSON, an array; as `write_otlp` otherwise."""
        return self.write_otlp(body, content_type=_ZIPKIN, encoding=encoding)

    # -- reading -----------------------------------------------------------------------------------------------------

    def get(self, trace_id: str) -> Trace:
        """Return a trace by its id, at any age; NotFound if no span has it."""
        return self._got(Trace, f"/traces/{_part(trace_id)}/spans")

    def services(self) -> list[str]:
        """Return the names of all services, in order; the first 10,000."""
        return self._got(list[str], "/services")

    def operations(self, service: str, kind: str | None = None) -> list[str]:
        """Return the names of a service's operations, in order; the first 10,000. `kind` asks for one kind only."""
        found = self.operations_by_kind(service)
        return list(dict.fromkeys(name for name, of in found if kind is None or of == kind))

    def operations_by_kind(self, service: str) -> list[tuple[str, str | None]]:
        """Return each operation of a service with each kind it has, in order; the first 10,000."""
        return self._got(list[tuple[str, str | None]], "/operations", {"service": service})

    def export(self, trace_ids: Sequence[str]) -> dict[str, Any]:
        """Return traces as one OTLP request in JSON, as they came in; NotFound names one that there is none of."""
        return dict(self._asked(dict[str, Any], "export", {"trace_ids": list(trace_ids)}))

    def export_protobuf(self, trace_ids: Sequence[str]) -> bytes:
        """Return traces as one OTLP request in protobuf, which `write_otlp` takes back."""
        asked = {"trace_ids": list(trace_ids)}
        return self._read("POST", "/traces/export", document=asked, headers={"Accept": _PROTOBUF}).content

    def export_lines(self, trace_ids: Sequence[str]) -> Generator[str, None, None]:
        """Yield traces of any size as OTLP requests in JSON, one a line, as the server reads them; close it, or read all."""
        from crannog.remote.streaming import opened_lines

        return opened_lines(self._connection, "/traces/export", {"trace_ids": list(trace_ids)}, self._limits)

    # -- finding -----------------------------------------------------------------------------------------------------

    def search(
        self,
        service: str | None = None,
        operation: str | None = None,
        text: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        where: str | None = None,
        has_errors: bool | None = None,
        min_duration_ms: float | None = None,
        max_duration_ms: float | None = None,
        start: Any = None,
        end: Any = None,
        limit: int = 50,
        cursor: str | None = None,
        *,
        order: str = "newest",
        count: bool = False,
    ) -> TracePage:
        """Return a page of the traces of which one span meets `where` and all the arguments about a span."""
        chosen = _chosen(service, operation, text, attributes, where, start, end)
        whole = {"has_errors": has_errors, "min_duration_ms": min_duration_ms, "max_duration_ms": max_duration_ms}
        return self._asked(
            TracePage, "search", {**chosen, **whole, "limit": limit, "cursor": cursor, "order": order, "count": count}
        )

    def search_spans(
        self,
        service: str | None = None,
        operation: str | None = None,
        text: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        where: str | None = None,
        start: Any = None,
        end: Any = None,
        limit: int = 50,
        cursor: str | None = None,
        *,
        order: str = "newest",
        count: bool = False,
    ) -> SpanPage:
        """Return a page of the spans that meet all arguments, as `search`; `order` is newest, oldest, longest or shortest."""
        chosen = _chosen(service, operation, text, attributes, where, start, end)
        return self._asked(
            SpanPage, "spans", {**chosen, "limit": limit, "cursor": cursor, "order": order, "count": count}
        )

    def complete(
        self,
        what: str,
        prefix: str = "",
        *,
        key: str | None = None,
        where: str | None = None,
        limit: int = 20,
        **asked: Any,
    ) -> list[Suggestion]:
        """Suggest what begins with `prefix` in the spans of a filter: "service", "operation", "key", or "value" of `key`."""
        document = {"what": what, "prefix": prefix, "key": key, "where": where, "limit": limit, **asked}
        return self._asked(list[Suggestion], "complete", document)

    # -- showing -----------------------------------------------------------------------------------------------------

    def show(
        self, trace_id: str, offset: int = 0, limit: int = 1_000, *, depth: int | None = None, under: str | None = None
    ) -> TraceView:
        """Return a window of a trace's tree: `limit` spans from `offset` on, with their own time and the critical path."""
        params = {"offset": offset, "limit": limit, "depth": depth, "under": under}
        given: Params = {name: str(value) for name, value in params.items() if value is not None}
        found = self._read("GET", f"/traces/{_part(trace_id)}", params=given).json()
        found["spans"] = [_placed(span) for span in found["spans"]]
        return read_as(TraceView, unmarked(found))

    def compare(self, before: str, after: str, limit: int = 1_000, *, tolerance: float = 0.0) -> TraceComparison:
        """Compare two traces by the paths of services and operations in them: what was added, removed, slower, faster."""
        params = {"before": before, "after": after, "limit": str(limit), "tolerance": str(tolerance)}
        return self._got(TraceComparison, "/traces/compare", params)

    # -- numbers -----------------------------------------------------------------------------------------------------

    def metrics(
        self,
        service: str | None = None,
        operation: str | None = None,
        kind: str | None = None,
        start: Any = None,
        end: Any = None,
        step: str = "1m",
        group_by: Sequence[str] | str | None = None,
        where: str | Mapping[str, Any] | None = None,
        *,
        of: str = "spans",
        quantiles: Sequence[float] = (),
    ) -> list[MetricPoint]:
        """Return count, rate, errors and latencies of spans, or of whole traces, by time and by fields or attributes; staged spans count."""
        asked = {"service": service, "operation": operation, "kind": kind, "start": start, "end": end, "step": step}
        found = self._asked(
            list[dict[str, Any]],
            "metrics",
            {**asked, "group_by": group_by, "where": where, "of": of, "quantiles": quantiles},
        )
        # Read here, so that the zone is the same UTC as everywhere.
        return read_as(
            list[MetricPoint], [{**point, "start": dt.datetime.fromisoformat(point["start"])} for point in found]
        )

    def dependencies(self, start: Any = None, end: Any = None) -> list[Dependency]:
        """Return which services call which, how often and with how many errors, in the whole minutes of a time."""
        return self._asked(list[Dependency], "dependencies", {"start": start, "end": end})

    def attribute_keys(self, first: dt.date | None = None, last: dt.date | None = None) -> list[AttributeKey]:
        """Return the attribute keys that spans of some days have, those used most first; the first 10,000."""
        days = {"first": first, "last": last}
        return self._got(
            list[AttributeKey], "/traces/attributes", {name: day.isoformat() for name, day in days.items() if day}
        )

    # -- keeping -----------------------------------------------------------------------------------------------------

    def derive(
        self,
        anew: Sequence[dt.date] = (),
        *,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> DeriveReport:
        """Fold what is staged and bring the derived tables up to it, with Spark; days in `anew` from all their spans."""
        days = [day.isoformat() for day in anew]
        return run_job(
            self._connection,
            "/traces/derive",
            DeriveReport,
            document={"anew": days},
            progress=progress,
            cancellation=cancellation,
        )

    def expire(
        self,
        before: dt.date,
        service: str | Sequence[str] | None = None,
        *,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> TraceExpiry:
        """Drop the spans that started before a day, UTC, and what is derived from them; with `service`, only theirs."""
        if not isinstance(before, dt.date) or isinstance(before, dt.datetime):
            raise CallerError(f"before is a date, got {before!r}")
        document = {"before": before.isoformat(), "service": _plain(service)}
        return run_job(
            self._connection,
            "/traces/expire",
            TraceExpiry,
            document=document,
            progress=progress,
            cancellation=cancellation,
        )

    def erasure_plan(
        self, trace_ids: Sequence[str] | None = None, where: str | Mapping[str, Any] | None = None
    ) -> ErasurePlan:
        """Tell what `erase` would erase; changes nothing."""
        document = {**_doomed(trace_ids, where), "dry_run": True}
        return read_as(ErasurePlan, self._read("POST", "/traces/erase", document=document).json())

    def erase(
        self,
        trace_ids: Sequence[str] | None = None,
        where: str | Mapping[str, Any] | None = None,
        *,
        actor: str = "",
        reason: str = "",
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> ErasureReceipt:
        """Erase whole traces for good: those named, or those with a span that meets a filter; derived tables too."""
        document = {**_doomed(trace_ids, where), "actor": actor, "reason": reason}
        return run_job(
            self._connection,
            "/traces/erase",
            ErasureReceipt,
            document=document,
            progress=progress,
            cancellation=cancellation,
        )

    # -- the wire ----------------------------------------------------------------------------------------------------

    def _got(self, kind: type[T], path: str, params: Params | None = None) -> T:
        return read_as(kind, unmarked(self._read("GET", path, params=params).json()))

    def _asked(self, kind: type[T], what: str, asked: Mapping[str, Any]) -> T:
        document = {name: _plain(value) for name, value in asked.items() if value is not None}
        return read_as(kind, unmarked(self._read("POST", f"/traces/{what}", document=document).json()))

    def _read(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **request: Any
    ) -> httpx.Response:
        """Ask within the limits, and wait as long as the server lets it take."""
        return self._connection.ask(
            method, path, headers={**(headers or {}), **self._limits}, tries=self._tries, read_s=None, **request
        )


def _chosen(
    service: str | None,
    operation: str | None,
    text: str | None,
    attributes: Any,
    where: str | None,
    start: Any,
    end: Any,
) -> dict[str, Any]:
    return {
        "service": service,
        "operation": operation,
        "text": text,
        "attributes": attributes,
        "where": where,
        "start": start,
        "end": end,
    }


def _doomed(trace_ids: Sequence[str] | None, where: Any) -> dict[str, Any]:
    if isinstance(trace_ids, str):
        raise CallerError("trace_ids is a list of trace ids, not one text")
    return {"trace_ids": None if trace_ids is None else list(trace_ids), "where": _plain(where)}


def _plain(value: Any) -> Any:
    """Return an argument as JSON has it; times as text, which keeps them to the microsecond."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(inner) for inner in value]
    return value.isoformat() if isinstance(value, dt.datetime) else value


def _part(trace_id: str) -> str:
    # Here already: as a part of an address, another word would be another question.
    if not isinstance(trace_id, str) or not re.fullmatch(r"([0-9a-fA-F]{16}){1,2}", trace_id):
        raise CallerError(f"a trace id has 32 hexadecimal digits (or 16), got {trace_id!r}"[:120])
    return trace_id


def _placed(flat: dict[str, Any]) -> dict[str, Any]:
    """Return a span and its place, which came as one object, as the two that they are."""
    span = {name: flat[name] for name in flat if name in _OF_SPAN}
    return {"span": span, **{name: flat[name] for name in flat if name not in _OF_SPAN}}
