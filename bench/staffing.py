"""The tables of the query benchmarks: 2.5 million rows of a staffing firm in seven tables, as the seed's figures had."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

INSTANT, MONEY = pa.timestamp("us", "UTC"), pa.decimal128(10, 2)
SIZES = {
    "clients": 2_000,
    "jobs": 15_000,
    "candidates": 100_000,
    "placements": 50_000,
    "timesheets": 1_000_000,
    "calls": 800_000,
    "emails": 500_000,
}
KEYS = {"candidates": ["candidate_id"], "timesheets": ["timesheet_id"]}
_CITIES = [f"city {number}" for number in range(40)]
_FIRST, _LAST = (
    ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo"],
    ["Abel", "Berg", "Cole", "Dorn", "Ek", "Fuchs", "Gray"],
)
_START_US = int(dt.datetime(2025, 1, 1, tzinfo=dt.UTC).timestamp() * 1e6)
_YEAR_US = 365 * 86_400 * 1_000_000


class _Columns:
    def __init__(self, seed: int, count: int) -> None:
        self.random, self.count = np.random.default_rng(seed), count

    def ids(self, word: str) -> pa.Array:
        return _named(word, np.arange(self.count))

    def refers(self, word: str, size: int) -> pa.Array:
        return _named(word, self.random.integers(0, size, self.count))

    def of(self, words: Sequence[str]) -> pa.Array:
        return pa.array(words).take(pa.array(self.random.integers(0, len(words), self.count)))

    def whole(self, low: int, high: int) -> pa.Array:
        return pa.array(self.random.integers(low, high, self.count))

    def money(self, low: int, high: int) -> pa.Array:
        cents = self.whole(low * 100, high * 100).cast(pa.decimal128(19, 0))
        return pc.multiply(cents, pa.scalar(Decimal("0.01"))).cast(MONEY)

    def times(self) -> pa.Array:
        # Rows come about in the order of their time.
        return pa.array(np.sort(self.random.integers(_START_US, _START_US + _YEAR_US, self.count))).cast(INSTANT)

    def name(self) -> pa.Array:
        return pc.binary_join_element_wise(self.of(_FIRST), self.of(_LAST), " ")


def _named(word: str, numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(word, pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 7, "0"), "-")


def table(name: str, size: int, sizes: dict[str, int]) -> pa.Table:
    """Return the first `size` rows of a table whose references go to tables of `sizes`."""
    make = _Columns(sorted(SIZES).index(name), size)
    columns = {
        "clients": lambda: {
            "client_id": make.ids("CL"),
            "name": make.name(),
            "industry": make.of(["health", "energy", "retail", "bank", "public"]),
            "city": make.of(_CITIES),
            "since": make.times(),
        },
        "jobs": lambda: {
            "job_id": make.ids("JOB"),
            "client_id": make.refers("CL", sizes["clients"]),
            "title": make.of(["nurse", "welder", "clerk", "driver"]),
            "pay_rate": make.money(15, 80),
            "opened_at": make.times(),
            "status": make.of(["open", "filled", "closed"]),
        },
        "candidates": lambda: {
            "candidate_id": make.ids("CAND"),
            "name": make.name(),
            "city": make.of(_CITIES),
            "status": make.of(["active", "placed", "inactive"]),
            "years": make.whole(0, 40),
            "skill": make.of(["python", "welding", "nursing", "sales", "java", "driving"]),
            "pay_expected": make.money(15, 90),
            "phone": make.refers("+49", 9_999_999),
            "email": make.refers("mail", size * 2),
            "seen_at": make.times(),
            "notes": make.refers("candidate has notes on file no", 5_000),
        },
        "placements": lambda: {
            "placement_id": make.ids("PL"),
            "candidate_id": make.refers("CAND", sizes["candidates"]),
            "job_id": make.refers("JOB", sizes["jobs"]),
            "client_id": make.refers("CL", sizes["clients"]),
            "bill_rate": make.money(20, 140),
            "started_at": make.times(),
        },
        "timesheets": lambda: {
            "timesheet_id": make.ids("TS"),
            "placement_id": make.refers("PL", sizes["placements"]),
            "worked_at": make.times(),
            "hours": make.money(1, 12),
            "bill_total": make.money(20, 1_700),
            "pay_total": make.money(15, 1_000),
            "approved": make.whole(0, 2),
        },
        "calls": lambda: {
            "call_id": make.ids("CALL"),
            "candidate_id": make.refers("CAND", sizes["candidates"]),
            "recruiter": make.refers("user", 60),
            "called_at": make.times(),
            "seconds": make.whole(0, 3_600),
            "outcome": make.of(["reached", "voicemail", "busy", "wrong number"]),
            "score": make.whole(0, 100),
            "cost": make.money(0, 5),
        },
        "emails": lambda: {
            "email_id": make.ids("EM"),
            "candidate_id": make.refers("CAND", sizes["candidates"]),
            "recruiter": make.refers("user", 60),
            "sent_at": make.times(),
            "opened": make.whole(0, 2),
            "subject": make.refers("about job", 4_000),
        },
    }[name]()
    return pa.table(columns)


QUERIES: dict[str, str] = {
    "1M-row join": (
        "SELECT c.industry, count(*) AS sheets, sum(t.hours) AS hours, sum(t.bill_total) AS billed"
        " FROM {timesheets} t JOIN {placements} p ON t.placement_id = p.placement_id JOIN {clients} c ON p.client_id = c.client_id"
        " GROUP BY c.industry ORDER BY c.industry"
    ),
    "100K-row filter": (
        "SELECT candidate_id, name, city, years FROM {candidates}"
        " WHERE status = 'active' AND years >= 10 AND skill = 'python' AND city IN ('city 1', 'city 2', 'city 3')"
    ),
    "point lookup": "SELECT * FROM {candidates} WHERE candidate_id = 'CAND-0004711'",
    "top-n": "SELECT timesheet_id, bill_total FROM {timesheets} ORDER BY bill_total DESC, timesheet_id LIMIT 20",
    "wide aggregate": (
        "SELECT recruiter, outcome, count(*) AS calls, sum(seconds) AS seconds, min(seconds) AS shortest, max(seconds) AS longest,"
        " avg(seconds) AS mean, sum(cost) AS cost, avg(cost) AS mean_cost, max(score) AS best, min(score) AS worst,"
        " count(DISTINCT candidate_id) AS people, min(called_at) AS first_at, max(called_at) AS last_at"
        " FROM {calls} GROUP BY recruiter, outcome ORDER BY recruiter, outcome"
    ),
}
KEYED_QUERIES: dict[str, str] = {
    "sum of 1M": "SELECT approved, count(*) AS sheets, sum(hours) AS hours FROM {timesheets} GROUP BY approved ORDER BY approved",
    "point lookup": "SELECT * FROM {timesheets} WHERE timesheet_id = 'TS-0004711'",
    "top-n": QUERIES["top-n"],
}
