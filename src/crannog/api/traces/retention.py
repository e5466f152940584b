"""Results of writing, deriving, expiring and erasing traces."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from crannog.api.reports import ExpireReport


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """The result of a write: `message` says why spans were rejected, `duplicate` whether the request was stored before."""

    accepted: int
    rejected: int
    message: str
    duplicate: bool


@dataclass(frozen=True, slots=True)
class DeriveReport:
    """The result of a derive: the rows written and the days recomputed, by table."""

    spans_version: int
    rows_written: Mapping[str, int]
    days_anew: Mapping[str, int]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TraceExpiry:
    """The result of an expiry: the spans dropped, the tables derived, and the bytes that the vacuum freed."""

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
