"""The steps of the demo that query: SQL on three engines, and the build event log."""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING

from crannog.tour.data import ORDERS, READINGS, Tour, took

if TYPE_CHECKING:
    from crannog.tour.notes import Notes

_QUESTION = f"SELECT customer, count(*) AS orders, sum(amount) AS total FROM {ORDERS} GROUP BY customer ORDER BY total DESC, customer LIMIT 5"
_BUILDS = 20


def sql(tour: Tour, note: Notes) -> None:
    """Run one query on three engines."""
    tour.lake.cache.pin(ORDERS)
    answers = {}
    for engine in ("spark", "local", "hot"):
        answers[engine] = tour.lake.sql(_QUESTION, engine=engine)
        times = [took(partial(tour.lake.sql, _QUESTION, engine=engine)) for _ in range(5)]
        p50 = statistics.median(times)
        note.figure(f"sql_{engine}_p50_ms", round(p50, 1), engine, f"{p50:.1f} ms (median of 5)")
    same = answers["spark"].to_arrow().equals(answers["local"].to_arrow()) and answers["spark"].to_arrow().equals(
        answers["hot"].to_arrow()
    )
    note.check("the three results are equal, including names and types", same)
    chosen = tour.lake.sql(f"SELECT count(*) AS n FROM {READINGS}")
    note.fact("automatic choice", f"a count of {READINGS} ran on {chosen.engine}: {chosen.why}")
    known = answers["hot"].rows()[0]["customer"]
    key = tour.lake.sql(f"SELECT min(order_id) AS k FROM {ORDERS} WHERE customer = '{known}'").rows()[0]["k"]
    before = tour.lake.sql(
        f"SELECT count(*) AS n FROM {ORDERS} WHERE order_id = '{key}' AND quantity = 77", engine="hot"
    ).rows()
    [row] = tour.lake.sql(f"SELECT * FROM {ORDERS} WHERE order_id = '{key}'").rows()
    changed = {name: value for name, value in row.items() if not name.startswith("_")} | {"quantity": 77}
    tour.orders.upsert([changed])
    after = tour.lake.sql(
        f"SELECT count(*) AS n FROM {ORDERS} WHERE order_id = '{key}' AND quantity = 77", engine="hot"
    ).rows()
    note.check("a table in memory shows an upsert at the next read", (before, after) == ([{"n": 0}], [{"n": 1}]))


def builds(tour: Tour, note: Notes) -> None:
    """Write the events of some builds to the same warehouse."""
    from crannog.builds import (
        BuildEvent,
        BuildRequestEvent,
        BuildRequestStatus,
        JobEvent,
        JobStatus,
        PartitionEvent,
        PartitionStatus,
    )

    with tour.lake.builds as log:
        times = []
        for number in range(_BUILDS):
            build, ref, run = f"build-{number}", f"sales/2026-01-{number + 1:02}", f"run-{number}"
            good = number % 5 != 4
            payloads = (
                BuildRequestEvent(BuildRequestStatus.RECEIVED, (ref,)),
                JobEvent(run, "//sales:load", (ref,), JobStatus.RUNNING),
                JobEvent(run, "//sales:load", (ref,), JobStatus.COMPLETED if good else JobStatus.FAILED),
                PartitionEvent(ref, PartitionStatus.AVAILABLE if good else PartitionStatus.FAILED, "", run),
                BuildRequestEvent(BuildRequestStatus.COMPLETED if good else BuildRequestStatus.FAILED, (ref,)),
            )
            times += [took(partial(log.append_event, BuildEvent.new(build, payload))) for payload in payloads]
        p50 = statistics.median(times)
        note.figure("build_event_p50_ms", round(p50, 2), "one event", f"{p50:.1f} ms until acknowledged")
        status = log.get_latest_partition_status("sales/2026-01-05")
        failed = log.list_build_requests(status=BuildRequestStatus.FAILED)
        read_ms = took(lambda: log.list_build_requests(limit=50))
        note.figure("build_list_ms", round(read_ms, 2), "list of builds", f"{read_ms:.2f} ms")
        note.check(
            "the log shows which builds failed",
            status is not None and status.status is PartitionStatus.FAILED and failed.total == _BUILDS // 5,
        )
    counted = tour.lake.sql("SELECT count(*) AS n FROM crannog.builds.build_events").rows()
    note.check("the same events can be queried as a table", counted == [{"n": _BUILDS * 5}])
