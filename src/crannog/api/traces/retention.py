"""What writing, deriving, expiring and erasing traces tell when they are done."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from crannog.api.reports import ExpireReport


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """What became of a request: `message` says why spans were rejected, `duplicate` that it was kept before."""

    accepted: int
    rejected: int
    message: str
    duplicate: bool


@dataclass(frozen=True, slots=True)
class DeriveReport:
    """What a derive did: for each table how many rows it wrote, and how many days it worked out anew."""

    spans_version: int
    rows_written: Mapping[str, int]
    days_anew: Mapping[str, int]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TraceExpiry:
    """What an expiry dropped: the spans, what was derived anew, and the bytes that a vacuum at the floor gave back."""

    spans: ExpireReport
    derived: DeriveReport
    bytes_given_back: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ErasurePlan:
    """What an erasure would erase."""

    traces: int
    spans: int
    services: Mapping[str, int]
    days: Mapping[dt.date, int]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
