"""Filters of events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from crannog.builds.event_values import LARGEST_TIMESTAMP, is_name
from crannog.builds.events import Kind
from crannog.errors import CallerError

# Singular names for one value.
_ONE_OF_MANY = {
    "partition_ref": "partition_refs",
    "partition_glob": "partition_globs",
    "job_label": "job_labels",
    "job_run_id": "job_run_ids",
    "build_request_id": "build_request_ids",
    "kind": "kinds",
    "event_type": "kinds",
    "event_types": "kinds",
}
_MOST_VALUES = 10_000


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Conditions on events: an event matches if it has one of the values of every condition that is given.

    A partition matches partition events, jobs that target it, delegations, invalidations and requests that name it;
    `partition_refs` and `partition_globs` together are one condition. A glob has `*`, `?` and `[…]`. A job run matches
    job events and task cancels. Times are nanoseconds, both ends included.
    """

    partition_refs: tuple[str, ...] = ()
    partition_globs: tuple[str, ...] = ()
    job_labels: tuple[str, ...] = ()
    job_run_ids: tuple[str, ...] = ()
    build_request_ids: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ()
    start_ns: int | None = None
    end_ns: int | None = None

    @classmethod
    def of(cls, given: dict[str, Any]) -> EventFilter:
        """Read a filter from keywords like `build_request_id="b"` or `build_request_ids=["b", "c"]`. Raises CallerError."""
        values: dict[str, Any] = {}
        known = {field.name for field in fields(cls)}
        for name, value in given.items():
            target = _ONE_OF_MANY.get(name, name)
            if target not in known:
                raise CallerError(f"events cannot be filtered by {name}; they can by {', '.join(sorted(known))}")
            if value is None:
                continue
            if target in ("start_ns", "end_ns"):
                if isinstance(value, bool) or not isinstance(value, int):
                    raise CallerError(f"{name} is a whole number of nanoseconds, got {value!r}")
                values[target] = value
            else:
                values[target] = (*values.get(target, ()), *_listed(name, value))
        if "kinds" in values:
            values["kinds"] = tuple(Kind.read(kind) for kind in values["kinds"])
        return cls(**values | _times(values.get("start_ns"), values.get("end_ns")))

    def as_json(self) -> dict[str, Any]:
        """Return the conditions that are given, as JSON."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        found = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in given.items()
            if value not in (None, ())
        }
        if self.kinds:
            found["kinds"] = [kind.event_type for kind in self.kinds]
        return found


def _listed(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, (str, Kind)):
        return _listed(name, [value])
    if not isinstance(value, Iterable):
        raise CallerError(f"{name} is text or a list of texts, got {value!r}")
    listed = tuple(value)
    if not listed:
        # An empty list matches nothing; read as "no filter" it would match everything.
        raise CallerError(f"{name} is an empty list; leave it out to match everything")
    if len(listed) > _MOST_VALUES:
        raise CallerError(f"{name} has {len(listed):,} values; {_MOST_VALUES:,} is the most")
    if not all(isinstance(one, (str, Kind)) for one in listed):
        raise CallerError(f"{name} is a list of texts, got {value!r}")
    # What is not an identifier matches nothing, as does empty text.
    return tuple(one for one in listed if isinstance(one, Kind) or is_name(one)) or ("",)


def _times(start: int | None, end: int | None) -> dict[str, int | None]:
    """Return a time range limited to 64 bits; there are no events outside."""
    if (start is not None and start > LARGEST_TIMESTAMP) or (end is not None and end < 0):
        return {"start_ns": 1, "end_ns": 0}
    return {"start_ns": start and max(start, 0), "end_ns": None if end is None else min(end, LARGEST_TIMESTAMP)}
