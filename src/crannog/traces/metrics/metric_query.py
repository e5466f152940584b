"""A checked metric query: its conditions, time steps, group keys and quantiles."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from crannog.api.traces.requests import MetricQuery, SpanSelection
from crannog.errors import CallerError
from crannog.traces.attribute_values import to_python
from crannog.traces.search.attribute_sql import text_literal
from crannog.traces.search.filter_sql import COLUMNS
from crannog.traces.search.filter_tree import FIELDS, MATCH_ALL, Compare, Filter, all_of
from crannog.traces.search.request import span_filter
from crannog.traces.span_table import ATTRIBUTE_MAPS, SPAN_KINDS
from crannog.traces.times import Step, parse_step, parse_time
from crannog.traces.trace import STATUS_NAMES

_RED_COLUMNS = {"service": "service_name", "operation": "operation", "kind": "span_kind"}
_IDS = ("trace_id", "span_id", "parent_span_id")
_MAX_GROUPS = 5
_MAX_QUANTILES, _MIN_QUANTILE = 20, 1e-9
_DAY_NS = 86_400 * 10**9
_EPOCH = dt.date(1970, 1, 1)
_LATEST_NS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A field or attribute to group by: its name, its SQL over spans, and its column in the RED table, if it has one."""

    name: str
    sql: str
    red_column: str | None = None
    is_attribute: bool = False

    def display_value(self, stored: Any) -> Any:
        """Return a stored value for the result: an attribute as a Python value, arrays and maps as JSON text."""
        if self.name == "status" and isinstance(stored, int):
            return STATUS_NAMES[stored] if 0 <= stored < len(STATUS_NAMES) else str(stored)
        if not self.is_attribute or stored is None:
            return stored
        value = to_python(stored)
        return value if isinstance(value, (str, int, float, bool)) or value is None else json.dumps(value, default=str)


def parse_group_by(group_by: Sequence[str] | str | None) -> list[GroupKey]:
    """Parse `group_by`. Raises CallerError if it is invalid."""
    names = [group_by] if isinstance(group_by, str) else list(group_by or ())
    if (
        len(names) > _MAX_GROUPS
        or len(set(names)) < len(names)
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise CallerError(
            f"group_by takes up to {_MAX_GROUPS} different fields or attribute keys, got {group_by!r}"[:300]
        )
    return [_group_key(name) for name in names]


def _group_key(name: str) -> GroupKey:
    if name == "kind":
        return GroupKey(name, "span_kind", _RED_COLUMNS[name])
    if name == "status":
        return GroupKey(name, "status_code")
    if name in _IDS:
        return GroupKey(name, f"lower(hex({name}))")
    if name in COLUMNS:
        return GroupKey(name, COLUMNS[name], _RED_COLUMNS.get(name))
    level, dot, key = name.partition(".")
    if dot and level in ATTRIBUTE_MAPS and key:
        return GroupKey(name, f"{ATTRIBUTE_MAPS[level]}[{text_literal(key)}]", is_attribute=True)
    return GroupKey(
        name,
        f"coalesce({', '.join(f'{column}[{text_literal(name)}]' for column in ATTRIBUTE_MAPS.values())})",
        is_attribute=True,
    )


def parse_quantiles(quantiles: Sequence[float]) -> list[Decimal]:
    """Return fractions such as 0.9 or 0.999 as exact decimals. Raises CallerError if one is invalid."""
    shares = [quantiles] if isinstance(quantiles, (int, float)) else list(quantiles or ())
    for share in shares:
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not _MIN_QUANTILE <= share <= 1:
            raise CallerError(f"a quantile must be above 0 and at most 1, got {share!r}"[:200])
    if len(shares) > _MAX_QUANTILES:
        raise CallerError(f"quantiles has {len(shares)} values; the limit is {_MAX_QUANTILES}")
    return [Decimal(repr(share)) for share in shares]


@dataclass(frozen=True)
class CheckedMetricQuery:
    """A checked query. Spans start at or after `start_ns` and before `end_ns`."""

    service: str | None
    operation: str | None
    kind: str | None
    start_ns: int | None
    end_ns: int | None
    step: Step
    groups: Sequence[GroupKey]
    where: Filter
    of_traces: bool = False
    quantiles: Sequence[Decimal] = ()

    @property
    def fits_red(self) -> bool:
        """Return whether the RED table has all groups and conditions of the query for whole minutes."""
        return self.where == MATCH_ALL and self.step.is_whole_minutes and all(group.red_column for group in self.groups)

    @property
    def filter(self) -> Filter:
        """The conditions on a span, except those on time."""
        terms = [span_filter(SpanSelection(service=self.service, operation=self.operation)), self.where]
        if self.kind is not None:
            terms.append(Compare(FIELDS["kind"], "=", self.kind))
        return all_of(*terms)

    @property
    def days(self) -> tuple[dt.date | None, dt.date | None]:
        return day_of(self.start_ns), day_of(self.end_ns, before=True)

    @property
    def is_empty(self) -> bool:
        return self.start_ns is not None and self.end_ns is not None and self.start_ns >= self.end_ns


def checked_metric_query(query: MetricQuery) -> CheckedMetricQuery:
    """Check the arguments of a query. Raises CallerError if one is invalid."""
    kind, where = query.kind, query.where
    for name, value in (("service", query.service), ("operation", query.operation), ("kind", kind)):
        if value is not None and not isinstance(value, str):
            raise CallerError(f"{name} must be text, got {type(value).__name__}")
    if kind is not None and kind.upper() not in SPAN_KINDS:
        raise CallerError(f"kind must be one of {', '.join(SPAN_KINDS)}, got {kind!r}"[:200])
    if query.of not in ("spans", "traces"):
        raise CallerError(f"of must be spans or traces, got {query.of!r}"[:200])
    return CheckedMetricQuery(
        query.service,
        query.operation,
        kind.upper() if kind else None,
        _clamped(parse_time(query.start, "start")) if query.start is not None else None,
        _clamped(parse_time(query.end, "end")) if query.end is not None else None,
        parse_step(query.step),
        parse_group_by(query.group_by),
        span_filter(SpanSelection(attributes=where) if isinstance(where, Mapping) else SpanSelection(where=where)),
        query.of == "traces",
        parse_quantiles(query.quantiles),
    )


def _clamped(time_ns: int) -> int:
    return max(0, min(time_ns, _LATEST_NS))


def day_of(time_ns: int | None, *, before: bool = False) -> dt.date | None:
    """Return the day of a time; if `before`, the day of the last nanosecond before it."""
    return None if time_ns is None else _EPOCH + dt.timedelta(days=max(0, time_ns - before) // _DAY_NS)
