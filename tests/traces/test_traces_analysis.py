"""Heat maps of latency, and what distinguishes some spans from others: counted by hand, with odd content, sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from crannog.errors import CallerError
from crannog.settings import Settings
from crannog.traces.metrics import differences
from otlp_samples import START, request_of, span
from test_traces_show import Store

S = 10**9


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = Store(settings)
    yield store
    store.warehouse.close()


def test_a_heat_map_counts_every_span_once(store: Store) -> None:
    made = [
        span(n, n, start=START + n * S // 2, took=1 << (n % 7), status={"code": 2 * (n % 5 == 0)}) for n in range(1, 41)
    ]
    store.send(*made)
    store.send(made[3], span(99, 1, start=START + 3600 * S))  # one again, and one outside the range
    found = store.heatmap(start=START, end=START + 21 * S, times=10)
    assert (found.spans, found.errors, found.times, found.step_ns) == (40, 8, 10, 21 * S // 10)
    expected: Counter[tuple[int, int]] = Counter()
    for one in made:
        took = one.end_time_unix_nano - one.start_time_unix_nano
        expected[(one.start_time_unix_nano - START) // found.step_ns, took] += 1
    counted = {(cell.time, found.durations_ns[cell.duration]): cell.count for cell in found.cells}
    assert {(time, max(low, 1)): count for (time, low), count in counted.items()} == expected
    for cell in found.cells:
        assert 1 <= len(cell.trace_ids) <= 3
    assert [*found.durations_ns] == sorted(found.durations_ns)
    assert store.heatmap(min_duration_ms=1e-6 * 64, start=START, end=START + 21 * S).spans == 5
    whole = store.heatmap()  # from the first to the last span
    assert (whole.spans, whole.start_ns, whole.end_ns) == (41, START + S // 2, START + 3600 * S + 1)
    nothing = store.heatmap(where='service = "nobody"')
    assert (nothing.spans, nothing.cells, nothing.durations_ns) == (0, (), ())


def send_two_kinds(store: Store, count: int = 40) -> None:
    """Slow spans are those of one customer, in one region; each has an id of its own."""
    for service, slow in (("shop", True), ("shop", False)):
        store.write_otlp(
            request_of(
                *(
                    span(
                        n + 1000 * slow,
                        n,
                        start=START + n,
                        took=10**9 if slow else 10**6,
                        name="GET",
                        attributes={
                            "customer": "x'} big" if slow else f"c{n % 4}",
                            "request": n + 1000 * slow,
                            "half": n % 2,
                            **({"retried": True} if slow else {}),
                            "long": f"{slow}" * 300,
                        },
                    )
                    for n in range(1, count + 1)
                ),
                service=service,
            ).SerializeToString()
        )


def test_the_values_that_differ_most_come_first(store: Store) -> None:
    send_two_kinds(store)
    found = store.differences(min_duration_ms=500)
    assert (found.selected, found.others, found.is_sampled) == (40, 40, False)
    keys = {(one.level, one.key): one for one in found.keys}
    assert {one.key for one in found.keys[:2]} == {"customer", "retried"}
    customer, retried = keys["span", "customer"], keys["span", "retried"]
    assert (customer.difference, customer.distinct) == (1.0, 5)
    assert (customer.values[0].value, customer.values[0].selected, customer.values[0].others) == ("x'} big", 40, 0)
    assert (retried.difference, retried.missing_selected, retried.missing_others) == (1.0, 0, 40)
    assert [(value.value, value.selected, value.others) for value in retried.values] == [(True, 40, 0)]
    # Ids that occur once distinguish nothing.
    assert keys["span", "request"].difference == pytest.approx(1 / 40)
    assert keys["span", "request"].distinct == 80
    assert len(keys["span", "request"].values) == 10
    for level, key in (("span", "half"), ("field", "service"), ("field", "operation"), ("resource", "service.name")):
        assert keys[level, key].difference == 0
    assert [(value.value, value.selected, value.others) for value in keys["span", "long"].values] == [("…", 40, 40)]
    few = store.differences("duration > 500ms", limit=1, values=1, where="customer exists")
    assert len(few.keys) == 1
    assert few.keys[0].difference == 1.0
    box = store.differences(selected_start=START + 1, selected_end=START + 3)
    assert (box.selected, box.others) == (4, 76)


def test_many_spans_are_sampled(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    send_two_kinds(store)
    monkeypatch.setattr(differences, "_MAX_SPANS", 10)
    found = store.differences(min_duration_ms=500)
    assert (found.selected, found.others, found.is_sampled) == (40, 40, True)
    assert 0 < found.sampled_selected < 30
    assert found.keys[0].key in ("customer", "retried")
    assert found == store.differences(min_duration_ms=500)


def test_wrong_and_empty_questions(store: Store) -> None:
    assert store.heatmap().cells == ()
    assert store.differences("error").keys == ()
    store.send(span(1, 1))
    one_sided = store.differences("duration > 0ns")
    assert (one_sided.selected, one_sided.others, one_sided.keys) == (1, 0, ())
    wrong: Any
    for wrong in ({"times": 0}, {"times": 10**6}, {"times": True}, {"start": "soon"}, {"min_duration_ms": "x"}):
        with pytest.raises(CallerError):
            store.heatmap(**wrong)
    assert store.heatmap(start=START + 5, end=START).cells == ()
    for wrong in ({}, {"selected": "no ("}, {"selected": "error", "limit": 0}, {"selected_start": "soon"}):
        with pytest.raises(CallerError):
            store.differences(**wrong)
