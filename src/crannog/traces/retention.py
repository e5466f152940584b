"""Expiry of traces by age, and permanent erasure, from the spans and all derived tables; the scheduler's tasks of traces."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from crannog.api.reports import Cancellation, ErasureReceipt, Place, Progress
from crannog.api.traces import ErasurePlan, TraceExpiry
from crannog.api.traces.requests import SpanSelection, TraceSelection
from crannog.engine.maintenance.erase import erase as erase_rows
from crannog.engine.maintenance.erase_audit_texts import erase_from_audit
from crannog.engine.maintenance.expire import expire as expire_rows
from crannog.engine.maintenance.job import progress_range
from crannog.engine.maintenance.key_search import Copies
from crannog.engine.maintenance.scheduler import ExtraTasks, Work
from crannog.engine.maintenance.unreferenced_files import data_files, not_in_base, running_jobs
from crannog.engine.maintenance.vacuum import vacuum
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.engine.sql.running_queries import scoped_cursor
from crannog.engine.tables import Tables
from crannog.errors import CallerError, CrannogError, NotFound, Unavailable, VerificationFailed
from crannog.names import TableName
from crannog.traces.derived.definitions import DERIVED_TABLES, SUMMARIES, existing_table
from crannog.traces.derived.derive import derive, needs_derive
from crannog.traces.search.filter_sql import condition_sql
from crannog.traces.search.filter_tree import MATCH_ALL
from crannog.traces.search.request import span_filter
from crannog.traces.span_table import SPANS, parse_trace_id, trace_id_high

MAX_TRACES = 1_000_000
_MAX_NAMED = 10


# -- expiry --------------------------------------------------------------------------------------------------------


def expire(
    tables: Tables,
    spans: OpenTable,
    before: dt.date,
    *,
    service: str | Sequence[str] | None = None,
    except_services: Sequence[str] = (),
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
) -> TraceExpiry:
    """Drop the spans that started before a day, in UTC, and everything derived from them.

    With `service`, only spans of these services are dropped; `except_services` are left out.
    """
    only = [service] if isinstance(service, str) else list(service or ())
    if service is not None and (not only or not all(isinstance(name, str) for name in only)):
        raise CallerError(f"service must be the name of a service or a list of names, got {service!r}"[:200])
    dropped = expire_rows(
        spans,
        before,
        only={"service_name": only} if only else None,
        besides={"service_name": list(except_services)} if except_services else None,
        progress=progress_range(progress, 0, 0.5),
        cancellation=cancellation,
    )
    derived = derive(tables, spans, progress=progress_range(progress, 0.5, 0.9), cancellation=cancellation)
    floor_s = spans.warehouse.settings.retention_floor_s
    reclaimed = [vacuum(table, retention_s=floor_s).bytes_deleted for table in (spans, *_derived_tables(tables, spans))]
    return TraceExpiry(dropped, derived, sum(reclaimed))


def expire_by_settings(
    tables: Tables, spans: OpenTable, today: dt.date, cancellation: Cancellation | None = None
) -> list[TraceExpiry]:
    """Expire spans by the settings: services with their own retention by that, all others by the general retention."""
    settings = spans.warehouse.settings
    own = settings.trace_service_retention_days
    expiries = [
        expire(tables, spans, today - dt.timedelta(days=days), service=name, cancellation=cancellation)
        for name, days in sorted(own.items())
    ]
    if settings.trace_retention_days is not None:
        before = today - dt.timedelta(days=settings.trace_retention_days)
        expiries.append(expire(tables, spans, before, except_services=sorted(own), cancellation=cancellation))
    return expiries


# -- erasure -------------------------------------------------------------------------------------------------------


def select_traces(spans: OpenTable, selection: TraceSelection) -> list[bytes]:
    """Return the traces to erase: the given ids, or the traces with a span of which any copy matches a filter."""
    trace_ids, where = selection.trace_ids, selection.where
    if (trace_ids is None) == (where is None):
        raise CallerError("pass either trace_ids or where to select the traces to erase")
    if trace_ids is not None:
        found = sorted({parse_trace_id(text) for text in trace_ids})
    else:
        filter = span_filter(
            SpanSelection(attributes=where) if isinstance(where, Mapping) else SpanSelection(where=where)
        )
        if filter == MATCH_ALL:
            raise CallerError("the filter is empty and would erase all traces; drop the table instead")
        query = f"SELECT DISTINCT trace_id FROM spans WHERE {condition_sql(filter)} ORDER BY 1 LIMIT {MAX_TRACES + 1}"
        found = spans.newest(lambda snapshot: _query_spans(spans, snapshot, query)).column(0).to_pylist()
    if not found:
        raise NotFound(
            "nothing to erase: trace_ids is empty"
            if trace_ids is not None
            else "nothing to erase: no span matches the filter"
        )
    if len(found) > MAX_TRACES:
        raise CallerError(f"more than {MAX_TRACES:,} traces match; erase them in several calls")
    return found


def plan_erasure(spans: OpenTable, traces: Sequence[bytes]) -> ErasurePlan:
    """Count what an erasure of these traces would erase, without changes."""
    selected = {"selected": _trace_keys(traces)}
    rows = spans.newest(
        lambda snapshot: _query_spans(
            spans,
            snapshot,
            "SELECT trace_id, service_name, partition_date, count(*) AS n FROM spans SEMI JOIN selected"
            " ON spans.trace_hi = selected.trace_hi AND spans.trace_id = selected.trace_id GROUP BY ALL ORDER BY ALL",
            selected,
        )
    ).to_pylist()
    services: dict[str, int] = {}
    days: dict[dt.date, int] = {}
    for row in rows:
        services[row["service_name"]] = services.get(row["service_name"], 0) + row["n"]
        days[row["partition_date"]] = days.get(row["partition_date"], 0) + row["n"]
    return ErasurePlan(
        len({row["trace_id"] for row in rows}), sum(services.values()), services, dict(sorted(days.items()))
    )


def erase(
    tables: Tables,
    spans: OpenTable,
    traces: Sequence[bytes],
    *,
    actor: str = "",
    reason: str = "",
    copies: Copies | None = None,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
) -> ErasureReceipt:
    """Erase whole traces permanently, from the spans and all derived tables; the receipt lists every place.

    The derived tables are recomputed without them, and files of old versions are deleted, because they may have names and
    example values of erased spans. Raises VerificationFailed if something can still be read afterwards.
    """
    keys = _trace_keys(traces).select(["trace_id"])
    erased_from = partial(
        erase_rows, keys=keys, by=["trace_id"], actor=actor, reason=reason, copies=copies, cancellation=cancellation
    )
    receipt = erased_from(spans, progress=progress_range(progress, 0, 0.5))
    try:
        derive(tables, spans, progress=progress_range(progress, 0.5, 0.8), cancellation=cancellation)
        places, files = _erased_from_derived(tables, spans, erased_from, copies)
    except CrannogError as error:
        # By id, because a filter finds nothing any more.
        listed = ", ".join(trace.hex() for trace in traces[:_MAX_NAMED]) + (", …" if len(traces) > _MAX_NAMED else "")
        raise Unavailable(
            f"the spans are erased, but not the data derived from them: {error.message};"
            f" erase again by the trace ids {listed}"
        ) from error
    receipt = replace(receipt, places=(*receipt.places, *places), files_deleted=receipt.files_deleted + files)
    return erase_from_audit(tables, receipt, keys, cancellation=cancellation)


def _erased_from_derived(
    tables: Tables, spans: OpenTable, erased_from: Callable[[OpenTable], ErasureReceipt], copies: Copies | None
) -> tuple[list[Place], int]:
    places, files = [], 0
    for derived in DERIVED_TABLES:
        table = existing_table(tables, derived, spans)
        if table is None:
            continue
        if derived is SUMMARIES:
            receipt = erased_from(table)
            places += [replace(place, place=f"{derived.name.table}: {place.place}") for place in receipt.places]
            files += receipt.files_deleted
        else:
            place, deleted = _without_old_files(table, copies)
            places.append(place)
            files += deleted
    return places, files


def _without_old_files(table: OpenTable, copies: Copies | None) -> tuple[Place, int]:
    """Delete the files of old versions of a derived table."""
    before = _old_files(table)
    table.warehouse.storage.delete(before)
    table.warehouse.forget_copies(before)
    if copies is not None:
        copies.refresh(table)
    left = _old_files(table)
    if left:
        raise VerificationFailed(f"a file of an old version of {table.name} still exists: {left[0]}; erase again")
    return Place(f"{table.name.table}: files of old versions", len(before), len(before), len(left)), len(before)


def _old_files(table: OpenTable) -> list[str]:
    # Files of running jobs stay: such a job has read clean data or cannot commit, and deletes its files itself.
    jobs, listed = running_jobs(table), data_files(table)
    # The head is read after the listing, so that files committed meanwhile are not deleted.
    return not_in_base(table, listed, table.log.head(), but_jobs=jobs)


# -- shared --------------------------------------------------------------------------------------------------------


def _derived_tables(tables: Tables, spans: OpenTable) -> list[OpenTable]:
    found = [existing_table(tables, derived, spans) for derived in DERIVED_TABLES]
    return [table for table in found if table is not None]


def _trace_keys(traces: Sequence[bytes]) -> pa.Table:
    return pa.table(
        {
            "trace_id": pa.array(list(traces), pa.binary()),
            "trace_hi": pa.array([trace_id_high(trace) for trace in traces], pa.int64()),
        }
    )


def _query_spans(
    spans: OpenTable, snapshot: Snapshot, query: str, tables: Mapping[str, pa.Table] | None = None
) -> pa.Table:
    """Query all rows of a snapshot, including every copy of a span, as `spans`."""
    rows, tail = spans.relation(snapshot, "tail")
    with scoped_cursor(spans.warehouse.duckdb, {**tail, **(tables or {})}) as cursor:
        return read(cursor, f"WITH spans AS ({rows}) {query}")


class TraceMaintenance(ExtraTasks):
    """The maintenance tasks of traces, for the `upkeep` of a scheduler."""

    kinds: Sequence[str] = ("derive", "expire-traces")

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def due(self, table: OpenTable, cancellation: Cancellation) -> list[Work]:
        """Return the tasks that are due for the span table; none for other tables."""
        if table.name != SPANS:
            return []
        settings = table.warehouse.settings
        work: list[Work] = []
        if needs_derive(self._tables, table):
            work.append(
                (
                    "derive",
                    lambda: derive(self._tables, table, cancellation=cancellation).as_dict(),
                    settings.derive_interval_s,
                )
            )
        if settings.trace_retention_days is not None or settings.trace_service_retention_days:
            work.append(("expire-traces", lambda: self._expire(table, cancellation), settings.expire_interval_s))
        return work

    def merges(self, name: TableName) -> bool:
        """Return whether it is a derived table: a derive merges rows and files at once."""
        return any(derived.name == name for derived in DERIVED_TABLES)

    def _expire(self, table: OpenTable, cancellation: Cancellation) -> dict[str, Any]:
        expiries = expire_by_settings(self._tables, table, dt.datetime.now(dt.UTC).date(), cancellation)
        return {
            "rows_dropped": sum(expiry.spans.rows_dropped for expiry in expiries),
            "bytes_given_back": sum(expiry.bytes_given_back for expiry in expiries),
        }
