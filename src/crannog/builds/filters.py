"""Filters of events: which conditions there are, and the checks of their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict, TypeVar

from crannog.api.operations import in_query
from crannog.builds.event_values import LARGEST_TIMESTAMP, is_name
from crannog.builds.events import Kind
from crannog.errors import CallerError

F = TypeVar("F", bound="EventFilter")
_MOST_VALUES = 10_000
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


Values = str | Kind | Iterable[str | Kind] | None


class FilterArguments(TypedDict, total=False):
    """The conditions of an `EventFilter` as keywords, also with singular names."""

    build_request_id: Values
    build_request_ids: Values
    partition_ref: Values
    partition_refs: Values
    partition_glob: Values
    partition_globs: Values
    job_label: Values
    job_labels: Values
    job_run_id: Values
    job_run_ids: Values
    kind: Values
    kinds: Values
    event_type: Values
    event_types: Values
    start_ns: int | None
    end_ns: int | None


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Conditions on events: an event matches if it has one of the values of every condition that is given.

    A partition matches partition events, jobs that target it, delegations, invalidations and requests that name it;
    `partition_refs` and `partition_globs` together are one condition. A glob has `*`, `?` and `[…]`. A job run matches
    job events and task cancels. Kinds are names like `job`. Times are nanoseconds, both ends included.
    """

    build_request_ids: tuple[str, ...] = field(default=(), metadata=in_query("build_request_id"))
    partition_refs: tuple[str, ...] = field(default=(), metadata=in_query("partition_ref"))
    partition_globs: tuple[str, ...] = field(default=(), metadata=in_query("partition_glob"))
    job_labels: tuple[str, ...] = field(default=(), metadata=in_query("job_label"))
    job_run_ids: tuple[str, ...] = field(default=(), metadata=in_query("job_run_id"))
    kinds: tuple[str, ...] = field(default=(), metadata=in_query("kind"))
    start_ns: int | None = None
    end_ns: int | None = None

    def __post_init__(self) -> None:
        for name in _CONDITIONS:
            object.__setattr__(self, name, _listed(name, getattr(self, name)))
        start, end = self.start_ns, self.end_ns
        for name, value in (("start_ns", start), ("end_ns", end)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise CallerError(f"{name} is a whole number of nanoseconds, got {value!r}")
        # Limited to 64 bits; there are no events outside.
        if (start is not None and start > LARGEST_TIMESTAMP) or (end is not None and end < 0):
            start, end = 1, 0
        object.__setattr__(self, "start_ns", start and max(start, 0))
        object.__setattr__(self, "end_ns", end if end is None else min(end, LARGEST_TIMESTAMP))

    @classmethod
    def of(cls: type[F], filter: Mapping[str, Any], **others: Any) -> F:
        """Read a filter from keywords like `build_request_id="b"` or `build_request_ids=["b", "c"]`. Raises CallerError."""
        values: dict[str, Any] = {}
        for name, value in filter.items():
            target = _ONE_OF_MANY.get(name, name)
            if target not in _FILTER_FIELDS:
                raise CallerError(
                    f"events cannot be filtered by {name}; they can by {', '.join(sorted(_FILTER_FIELDS))}"
                )
            if value is None:
                continue
            if target not in _CONDITIONS:
                values[target] = value
            elif isinstance(value, (str, Kind)):
                values[target] = [*values.get(target, ()), value]
            elif isinstance(value, Iterable):
                values[target] = [*values.get(target, ()), *value]
            else:
                raise CallerError(f"{name} is text or a list of texts, got {value!r}")
        return cls(**values, **others)

    def conditions(self) -> dict[str, Any]:
        """Return the conditions that are given, as keywords."""
        return {name: value for name in _FILTER_FIELDS if (value := getattr(self, name)) not in (None, ())}

    @property
    def needs_several_queries(self) -> bool:
        """Whether a page takes several queries, which must see one state so that no event is missed between them."""
        return bool(self.partition_globs) or self.start_ns is not None or self.end_ns is not None


_CONDITIONS = frozenset(_ONE_OF_MANY.values())
_FILTER_FIELDS = frozenset(each.name for each in fields(EventFilter))


def _listed(name: str, values: Any) -> tuple[str, ...]:
    """Return the values of one condition of a filter."""
    if values is None or values == ():
        return ()
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, (str, Kind)) for value in values):
        raise CallerError(f"{name} is a list of texts, got {values!r}")
    if not values:
        # An empty list matches nothing; read as "no filter" it would match everything.
        raise CallerError(f"{name} is an empty list; leave it out to match everything")
    if len(values) > _MOST_VALUES:
        raise CallerError(f"{name} has {len(values):,} values; {_MOST_VALUES:,} is the most")
    if name == "kinds":
        return tuple(Kind.read(value).event_type for value in values)
    # What is not an identifier matches nothing, as does empty text.
    return tuple(value for value in values if is_name(value)) or ("",)
