"""Which condition of a filter leads to its events: without statistics SQLite guesses, and a wrong guess reads a whole log.

A run, a build, few partitions or a short time find their events at once; a job label or a kind is found everywhere, and
is then looked at in commit order. What leads keeps its index, the others are only checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from crannog.builds.filters import EventFilter
from crannog.builds.read_model.connection import Connection

_FEW_EVENTS = 2_000
_FEW_NAMES = 500
_MOST_NAMES = 20_000
_SHORT_LOG = 50_000

_NAMES = (
    "WITH RECURSIVE names (name, place) AS (SELECT min(partition_ref), 1 FROM event_partitions WHERE partition_ref >= ?"
    " UNION ALL SELECT (SELECT min(partition_ref) FROM event_partitions WHERE partition_ref > name), place + 1"
    " FROM names WHERE name IS NOT NULL AND substr(name, 1, ?) = ?)"
    " SELECT name, place FROM names WHERE name IS NOT NULL AND ({matches} OR place > ?) LIMIT ?"
)


def conditions(connection: Connection, wanted: EventFilter) -> tuple[list[str], list[Any]]:
    """Return what `WHERE` needs for a filter, and the values."""
    listed: dict[str, Sequence[Any]] = {
        "job_run_id": wanted.job_run_ids,
        "build_request_id": wanted.build_request_ids,
        "job_label": wanted.job_labels,
        "kind": tuple(map(int, wanted.kinds)),
    }
    leads = next((column for column in ("job_run_id", "build_request_id") if listed[column]), None)
    found: list[str] = []
    values: list[Any] = []
    if wanted.partition_refs or wanted.partition_globs:
        condition, given, is_narrow = _about(connection, wanted)
        found.append(condition)
        values.extend(given)
        leads = leads or ("partition_ref" if is_narrow else None)
    if wanted.start_ns is not None or wanted.end_ns is not None:
        if leads is None:
            spread, given = _spread(connection, wanted)
            found.extend(spread)
            values.extend(given)
            leads = None if spread else "timestamp"
        column = _column(connection, "timestamp", leads)
        for sign, bound in ((">=", wanted.start_ns), ("<=", wanted.end_ns)):
            if bound is not None:
                found.append(f"{column} {sign} ?")
                values.append(bound)
    leads = leads or next((column for column in ("job_label", "kind") if listed[column]), None)
    for column, some in listed.items():
        if some:
            found.append(one_of(_column(connection, column, leads), some))
            values.extend(some)
    return found, values


def _column(connection: Connection, name: str, leads: str | None) -> str:
    return name if name == leads else connection.aside(name)


def one_of(column: str, listed: Sequence[Any]) -> str:
    """Return the condition that a column has one of some values."""
    return f"{column} = ?" if len(listed) == 1 else f"{column} IN ({', '.join('?' * len(listed))})"


def _about(connection: Connection, wanted: EventFilter) -> tuple[str, list[Any], bool]:
    """Return the condition that an event is about a partition, its values, and whether it finds few events."""
    names = _names(connection, wanted)
    inside, values = (
        _matching(connection, wanted) if names is None else (one_of("partition_ref", names or [""]), names or [""])
    )
    if not wanted.partition_globs:
        return f"idx IN (SELECT idx FROM event_partitions WHERE {inside})", values, True
    found = connection.query(
        f"SELECT DISTINCT idx FROM event_partitions WHERE {inside} LIMIT ?", (*values, _FEW_EVENTS + 1)
    )
    some = [index for (index,) in found]
    if len(some) <= _FEW_EVENTS:
        return one_of("idx", some or [0]), some or [0], True
    # Found nearly everywhere: a page is full sooner when events are looked at one by one than when all are collected.
    inside, values = _matching(connection, wanted)
    return f"EXISTS (SELECT 1 FROM event_partitions AS p WHERE p.idx = events.idx AND ({inside}))", values, False


def _matching(connection: Connection, wanted: EventFilter) -> tuple[str, list[Any]]:
    parts = [one_of("partition_ref", wanted.partition_refs)] if wanted.partition_refs else []
    parts.extend(connection.matches_glob("partition_ref") for _ in wanted.partition_globs)
    return " OR ".join(parts), [*wanted.partition_refs, *map(connection.glob, wanted.partition_globs)]


def _names(connection: Connection, wanted: EventFilter) -> list[str] | None:
    """Return the partitions that are meant, going from name to name; None if that is not worth it."""
    found = list(wanted.partition_refs)
    if (
        wanted.partition_globs
        and connection.query("SELECT COALESCE(max(idx), 0) FROM event_partitions")[0][0] <= _SHORT_LOG
    ):
        return None  # read whole in less time than its names are gone through
    for pattern in wanted.partition_globs:
        [prefix] = re.findall(r"^[^*?[]*", pattern)
        sql = _NAMES.format(matches=connection.matches_glob("name"))
        rows = connection.query(
            sql, (prefix, len(prefix), prefix, connection.glob(pattern), _MOST_NAMES, _FEW_NAMES + 1)
        )
        if len(rows) > _FEW_NAMES or any(place > _MOST_NAMES for _, place in rows):
            return None
        found.extend(name for name, _ in rows)
    return found


def _spread(connection: Connection, wanted: EventFilter) -> tuple[list[str], list[int]]:
    """Return between which indexes the events of a time lie; nothing if there are so few that the time itself finds them."""
    least, most = wanted.start_ns or 0, 2**63 - 1 if wanted.end_ns is None else wanted.end_ns
    inside = "FROM events WHERE timestamp >= ? AND timestamp <= ?"
    [(count,)] = connection.query(
        f"SELECT count(*) FROM (SELECT 1 {inside} LIMIT ?) AS few", (least, most, _FEW_EVENTS + 1)
    )
    if count <= _FEW_EVENTS:
        return [], []
    [(first, last)] = connection.query(f"SELECT min(idx), max(idx) {inside}", (least, most))
    return ["idx >= ?", "idx <= ?"], [first, last]
