"""What language models were used for: sessions, their use over time, and the messages of a trace."""

from __future__ import annotations

import datetime as dt
from typing import Any

from crannog.api.traces import Session, SessionPage, Span, SpanMessages, TraceMessages, UsagePoint
from crannog.api.traces.requests import MessageQuery, SessionQuery, SpanSelection, UsageQuery
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.errors import CallerError
from crannog.traces.llm.llm_messages import EVENT_NAMES, messages_of, shortened
from crannog.traces.metrics.heatmaps import time_range
from crannog.traces.metrics.metric_query import day_of, parse_group_by
from crannog.traces.search.filter_sql import condition_sql, null_as_false
from crannog.traces.search.request import checked_limit, span_filter
from crannog.traces.span_store import SpanStore
from crannog.traces.span_table import parse_trace_id
from crannog.traces.times import parse_step
from crannog.traces.trace import ERROR_STATUS, SPAN_COLUMNS, span_values
from crannog.traces.tree.tree import Tree
from crannog.traces.tree.tree_views import found_trace

_MAX_POINTS = 100_000
_MAX_USERS, _MAX_MODELS = 10, 20
_MAX_CHARS = 100_000_000
_LARGEST = 2**63 - 1
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_IS_CALL = "(input_tokens IS NOT NULL OR output_tokens IS NOT NULL)"
_ERRORS = f"count(*) FILTER (status_code = {ERROR_STATUS}) AS errors"
_OPERATIONS = ("gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind", "ai.operationId")


def _with_session_of_trace(spans: str) -> str:
    """Return the SQL of spans, in which a span without a session or user has that of its trace."""
    return (
        f"(SELECT s.* REPLACE (coalesce(s.session_id, t.session_id) AS session_id, coalesce(s.user_id, t.user_id) AS user_id)"
        f" FROM {spans} s LEFT JOIN (SELECT trace_id, max(session_id) AS session_id, max(user_id) AS user_id FROM {spans}"
        " WHERE session_id IS NOT NULL OR user_id IS NOT NULL GROUP BY trace_id) t USING (trace_id))"
    )


def _sum(column: str) -> str:
    return f"least(sum({column}), {_LARGEST})::BIGINT AS {column}"


def sessions(store: SpanStore, query: SessionQuery) -> SessionPage:
    """Return a page of sessions."""
    limit, offset = checked_limit(query.limit), _checked_offset(query.offset)
    start, end = time_range(query)
    within = condition_sql(span_filter(SpanSelection(start=start, end=end)))
    matches = null_as_false(condition_sql(span_filter(query)))

    def listed(name: str, most: int) -> str:
        return f"list_sort(list(DISTINCT {name}) FILTER ({name} IS NOT NULL))[:{most}]"

    def sql(spans: str) -> str:
        return (
            f"SELECT session_id, {listed('user_id', _MAX_USERS)} AS users, {listed('model', _MAX_MODELS)} AS models,"
            f" count(DISTINCT trace_id) AS traces, count(*) AS spans, count(*) FILTER {_IS_CALL} AS calls, {_ERRORS},"
            f" {_sum('input_tokens')}, {_sum('output_tokens')}, sum(cost) AS cost, min(start_ns) AS start_ns,"
            f" max(end_ns) AS end_ns FROM {_with_session_of_trace(spans)} WHERE session_id IS NOT NULL AND {within}"
            f" GROUP BY session_id HAVING bool_or({matches}) ORDER BY max(start_ns) DESC, session_id"
            f" LIMIT {limit + 1} OFFSET {offset}"
        )

    days: dict[str, Any] = {"first": day_of(start), "last": day_of(end, before=True)}
    found: list[dict[str, Any]] = store.read(lambda table: store.views.query_spans(table, sql, **days).to_pylist(), [])
    page = tuple(
        Session(**{**row, "users": tuple(row["users"] or ()), "models": tuple(row["models"] or ())})
        for row in found[:limit]
    )
    return SessionPage(page, offset + limit if len(found) > limit else None)


def usage(store: SpanStore, query: UsageQuery) -> list[UsagePoint]:
    """Return calls to models, sorted by time and group. Raises CallerError if there are too many points."""
    groups, where = parse_group_by(query.group_by), condition_sql(span_filter(query))
    begin = parse_step(query.step).begin_sql("start_ns // 1000000000") if query.step is not None else "NULL::BIGINT"
    start, end = time_range(query)
    names = [f"g{number}" for number in range(len(groups))]
    keys = ", ".join(
        [f"{begin} AS begin", *(f"{group.sql} AS {name}" for name, group in zip(names, groups, strict=True))]
    )
    inherits = any(group.name in ("user", "session") for group in groups) or query.where is not None

    def sql(spans: str) -> str:
        return (
            f"SELECT {keys}, count(*) AS calls, {_ERRORS}, {_sum('input_tokens')}, {_sum('output_tokens')}, sum(cost) AS cost"
            f" FROM {_with_session_of_trace(spans) if inherits else spans} WHERE {_IS_CALL} AND {where} GROUP BY ALL"
            f" ORDER BY {', '.join(['begin', *names])} LIMIT {_MAX_POINTS + 1}"
        )

    days: dict[str, Any] = {"first": day_of(start), "last": day_of(end, before=True)}
    rows: list[dict[str, Any]] = store.read(lambda table: store.views.query_spans(table, sql, **days).to_pylist(), [])
    if len(rows) > _MAX_POINTS:
        raise CallerError(f"the result has more than {_MAX_POINTS:,} points; use a longer step or fewer groups")
    return [
        UsagePoint(
            start=None if row["begin"] is None else _EPOCH + dt.timedelta(seconds=row["begin"]),
            group={group.name: group.display_value(row[name]) for name, group in zip(names, groups, strict=True)},
            calls=row["calls"],
            errors=row["errors"],
            input_tokens=row["input_tokens"] or 0,
            output_tokens=row["output_tokens"] or 0,
            cost=row["cost"],
        )
        for row in rows
    ]


def messages(store: SpanStore, query: MessageQuery) -> TraceMessages:
    """Return the messages of a trace."""
    trace_id, limit, offset = parse_trace_id(query.trace_id), checked_limit(query.limit), _checked_offset(query.offset)
    most = query.max_chars
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= _MAX_CHARS:
        raise CallerError(f"max_chars must be an integer from 1 to {_MAX_CHARS:,}, got {most!r}"[:200])

    def found(table: OpenTable, snapshot: Snapshot) -> TraceMessages:
        from crannog.traces.tree.tree_rows import rows_at, spans_where

        tree = store.trees.get(table, snapshot, trace_id)
        places = tree.arrays.places
        assert places is not None
        if query.span_id is not None:
            rows = tree.tree_position[[tree.index_of(query.span_id)]]
        else:
            rows = tree.tree_position[spans_where(table, snapshot, trace_id, places, _HAS_MESSAGES)]
            rows.sort()
        window = tree.order[rows[offset : offset + limit]]
        spans = {values[1]: Span(*values) for values in span_values(rows_at(table, snapshot, trace_id, places, window, SPAN_COLUMNS))}  # fmt: skip
        shown = tuple(_span_messages(tree, index, spans[tree.arrays.span_id(index)], most) for index in window.tolist())
        end = offset + len(shown)
        return TraceMessages(trace_id.hex(), shown, offset, len(rows), end if end < len(rows) else None)

    return found_trace(store, found, trace_id)


_HAS_MESSAGES = (
    "input IS NOT NULL OR output IS NOT NULL OR model IS NOT NULL OR"
    f" len(list_filter(events, lambda e: e.name IN ({', '.join(repr(name) for name in EVENT_NAMES)}))) > 0"
)


def _span_messages(tree: Tree, index: int, span: Span, max_chars: int) -> SpanMessages:
    given, returned = messages_of(span)
    operation = next((span.attributes[key] for key in _OPERATIONS if isinstance(span.attributes.get(key), str)), None)
    return SpanMessages(
        span_id=span.span_id,
        parent_span_id=span.parent_span_id,
        row=int(tree.tree_position[index]),
        name=span.name,
        service=span.service,
        operation=operation,
        is_error=span.is_error,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        model=span.model,
        provider=span.provider,
        input_tokens=span.input_tokens,
        output_tokens=span.output_tokens,
        cost=span.cost,
        session_id=span.session_id,
        user_id=span.user_id,
        input=shortened(given, max_chars),
        output=shortened(returned, max_chars),
    )


def _checked_offset(offset: int) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= _LARGEST:
        raise CallerError(f"offset must be an integer of 0 or more, got {offset!r}"[:200])
    return offset
