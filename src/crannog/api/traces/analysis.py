"""Results of questions about many spans at once: heat maps, differences, sessions and the use of language models."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class HeatmapCell:
    """The spans of one time and one duration: `time` and `duration` are indexes, see `Heatmap`; empty cells are left out."""

    time: int
    duration: int
    count: int
    errors: int
    trace_ids: tuple[str, ...]
    """Examples, the longest first; at most three."""


@dataclass(frozen=True, slots=True)
class Heatmap:
    """Counts of spans by start and duration.

    Time `i` begins at `start_ns + i * step_ns`. Duration `i` is from `durations_ns[i]` to `durations_ns[i + 1]`, the latter
    excluded; each is a quarter of a power of two wide.
    """

    start_ns: int
    end_ns: int
    step_ns: int
    times: int
    durations_ns: tuple[int, ...]
    spans: int
    errors: int
    cells: tuple[HeatmapCell, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ValueCount:
    """A value, with the number of selected and of other spans that have it."""

    value: Any
    selected: int
    others: int


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """How the values of a field or an attribute differ between the selected spans and the others.

    `difference` is the largest difference, over all values, between their shares of the selected and of the other spans, from
    0 to 1; spans without the key count as a value of their own. `values` has the most different first, and `distinct` is the
    number of all of them.
    """

    level: str
    """field, span or resource"""
    key: str
    difference: float
    distinct: int
    missing_selected: int
    missing_others: int
    values: tuple[ValueCount, ...]


@dataclass(frozen=True, slots=True)
class Differences:
    """What distinguishes the selected spans from the others, the most different key first.

    `selected` and `others` count all spans. The counts of keys are of samples of them, if there were many:
    `sampled_selected` and `sampled_others` are their sizes.
    """

    selected: int
    others: int
    sampled_selected: int
    sampled_others: int
    keys: tuple[KeyDifference, ...] = field(repr=False)

    @property
    def is_sampled(self) -> bool:
        return (self.sampled_selected, self.sampled_others) != (self.selected, self.others)


@dataclass(frozen=True, slots=True)
class Session:
    """The spans of one session (conversation): those with its id, and the others of their traces that have no session.

    Tokens and cost are those of single calls to models, so none is counted twice; None if no call reported any.
    """

    session_id: str
    users: tuple[str, ...]
    models: tuple[str, ...]
    traces: int
    spans: int
    calls: int
    errors: int
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class SessionPage:
    """A page of sessions, the last active first; `next_offset` is None at the end."""

    sessions: tuple[Session, ...]
    next_offset: int | None = None


@dataclass(frozen=True, slots=True)
class UsagePoint:
    """The calls to language models in one time bucket of one group; `start` is None without a step."""

    start: dt.datetime | None
    group: Mapping[str, Any]
    calls: int
    errors: int
    input_tokens: int
    output_tokens: int
    cost: float | None

    def __post_init__(self) -> None:
        if self.start is not None and self.start.tzinfo is not dt.UTC:  # read from JSON
            object.__setattr__(self, "start", self.start.astimezone(dt.UTC))
