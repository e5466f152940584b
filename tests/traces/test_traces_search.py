"""Searching traces and spans: pages in every order, both ways, equal a plain model over all spans; staged and folded."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crannog.api.traces import Span, TraceSummary
from crannog.engine.maintenance.fold import fold
from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.errors import CallerError
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from crannog.traces.search import span_search, trace_search
from crannog.traces.search.filter_parser import parse_filter
from crannog.traces.search.filter_tree import MATCH_ALL
from crannog.traces.search.request import SPAN_ORDERS, TRACE_ORDERS, SearchRequest
from crannog.traces.search.snapshot_reader import EARLIEST, TimeBin, TimeHistogram, start_between, tail_part
from crannog.traces.trace import span_values
from filter_reference import matches
from flatten_reference import flat_by_objects
from local_traces import LocalTraces
from otlp_samples import START, request_of, span, span_id, trace_id

HOUR = 3600 * 10**9


class Model(LocalTraces):
    """A store, and beside it each span in its newest copy, as plain values."""

    def __init__(self, settings: Settings) -> None:
        self.warehouse = Warehouse(settings.warehouse, settings)
        super().__init__(self.warehouse, Tables(self.warehouse))
        self.kept: dict[tuple[str, str], tuple[Span, str]] = {}

    def send(self, *made: Any, **more: Any) -> None:
        request = request_of(*made, **more)
        assert self.write_otlp(request.SerializeToString()).accepted == len(made)
        rows = flat_by_objects(request)[0]
        for values, words in zip(span_values(rows), rows["search_blob"].to_pylist(), strict=True):
            one = Span(*values)
            self.kept[one.trace_id, one.span_id] = (one, words)

    def matching(self, where: str) -> list[Span]:
        return [one for one, blob in self.kept.values() if matches(parse_filter(where), one, blob)]

    def summaries(self, where: str = "") -> list[TraceSummary]:
        found = {one.trace_id for one in self.matching(where)}
        return [summary_of([one for one, _ in self.kept.values() if one.trace_id == each]) for each in found]


def summary_of(spans: list[Span]) -> TraceSummary:
    start, end = min(one.start_ns for one in spans), max(one.end_ns for one in spans)
    roots = sorted((one for one in spans if one.parent_span_id is None), key=lambda one: (one.start_ns, one.span_id))
    return TraceSummary(
        spans[0].trace_id,
        roots[0].service if roots else None,
        roots[0].name if roots else None,
        start,
        end - start,
        len(spans),
        sum(one.is_error for one in spans),
        tuple(sorted({one.service for one in spans})),
    )


def filled(settings: Settings) -> Model:
    """LocalTraces of seconds and of many hours, many at the same time, spans without roots, spans sent again in another form."""
    model, chance = Model(settings), random.Random(7)
    copies: list[dict[str, list[Any]]] = [{}, {}]
    for trace in range(90):
        begin = START + chance.choice([chance.randrange(60 * HOUR), 5 * HOUR, 5 * HOUR + trace % 3])
        reach = chance.choice([10**9, 10**9, 10**9, 30 * HOUR])
        for number in range(chance.randint(1, 6)):
            for copy in copies[: 2 if chance.random() < 0.15 else 1]:
                made = span(
                    trace,
                    trace * 10 + number + 1,
                    chance.choice([None, trace * 10 + 1, 7_777])
                    if number
                    else chance.choice([None, None, None, 9_999]),
                    start=begin if not number else begin + chance.randrange(reach),
                    took=chance.choice([0, 1_000, 5_000_000, chance.randrange(10**10)]),
                    name=chance.choice(["GET /", "pay", "query"]),
                    status={"code": chance.choice([0, 0, 1, 2])},
                    attributes={"k": chance.choice([1, 10, "1", True]), "user.id": f"u{chance.randrange(5)}"},
                )
                copy.setdefault(chance.choice(["shop", "bank", "mail"]), []).append(made)
    for copy in copies:
        for service, spans in copy.items():
            model.send(*spans, service=service)
    return model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    model = filled(Settings(warehouse=str(tmp_path_factory.mktemp("traces")), spark_memory_mb=1024))
    yield model
    model.warehouse.close()


VALUES = {
    "newest": lambda one: -one.start_ns,
    "oldest": lambda one: one.start_ns,
    "longest": lambda one: -one.duration_ns,
    "shortest": lambda one: one.duration_ns,
    "most_spans": lambda one: -one.span_count,
    "most_errors": lambda one: -one.error_count,
}


def in_order(found: list[Any], order: str) -> list[Any]:
    """Equal values by id, in the direction of the order."""
    rising = order in ("oldest", "shortest")
    by_id = sorted(found, key=lambda one: (one.trace_id, getattr(one, "span_id", "")), reverse=not rising)
    return sorted(by_id, key=VALUES[order])


def pages(query: Any, **question: Any) -> list[list[Any]]:
    """All pages, there and back again, which must be the same."""
    there, cursor = [], None
    while True:
        page = query(cursor=cursor, **question)
        assert (page.previous_cursor is None) == (cursor is None)
        there.append(page)
        cursor = page.next_cursor
        if cursor is None:
            break
        assert len(there) < 500
    listed = [list(getattr(page, "traces", None) or getattr(page, "spans", ())) for page in there]
    back, cursor = [], there[-1].previous_cursor
    while cursor is not None:
        page = query(cursor=cursor, **question)
        assert page.next_cursor is not None
        back.append(list(getattr(page, "traces", None) or page.spans))
        cursor = page.previous_cursor
    assert back[::-1] == listed[:-1]
    return listed


QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("", {}),
    ("service = 'shop'", {"service": "shop"}),
    ("service = 'bank' and name = 'pay'", {"service": "bank", "operation": "pay"}),
    ("k = 1", {"attributes": {"k": 1}}),
    ("k = '1' and user.id in ('u1', 'u2')", {"attributes": {"k": "1", "user.id": ["u1", "u2"]}}),
    ("text ~ 'U3 Pay'", {"text": "U3 Pay"}),
    ("error and not service = 'mail' or duration > 9s", {"where": "error and not service = 'mail' or duration > 9s"}),
    (
        f"start >= {START + 5 * HOUR} and start < {START + 6 * HOUR}",
        {"start": START + 5 * HOUR, "end": START + 6 * HOUR},
    ),
    ("k = 'nowhere'", {"where": "k = 'nowhere'"}),
]


@pytest.mark.parametrize(
    ("where", "question", "steps"),
    [*((*each, "small") for each in QUESTIONS), (*QUESTIONS[0], "large"), (*QUESTIONS[3], "large")],
    ids=[*(where or "everything" for where, _ in QUESTIONS), "everything at once", "typed at once"],
)
def test_newest_traces_come_first_page_by_page(
    model: Model, where: str, question: dict[str, Any], steps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if steps == "small":
        monkeypatch.setattr(trace_search, "_FIRST_ROWS", 40)
    expected = in_order(model.summaries(where), "newest")
    limit = 17 if steps == "small" else 60
    found = pages(model.search, limit=limit, **question)
    assert [one for page in found for one in page] == expected
    assert all(len(page) == limit for page in found[:-1])
    assert model.search(limit=1, count=True, **question).total == len(expected)


@pytest.mark.parametrize("order", TRACE_ORDERS[1:])
@pytest.mark.parametrize(("where", "question"), [QUESTIONS[0], QUESTIONS[6]], ids=["everything", "some"])
def test_other_orders_are_stable_pages_too(model: Model, where: str, question: dict[str, Any], order: str) -> None:
    found = pages(model.search, limit=40, order=order, **question)
    assert [one for page in found for one in page] == in_order(model.summaries(where), order)


@pytest.mark.parametrize(
    ("question", "keeps"),
    [
        ({"has_errors": True}, lambda one: one.error_count > 0),
        ({"has_errors": False}, lambda one: one.error_count == 0),
        ({"min_duration_ms": 1000.5}, lambda one: one.duration_ns >= 1_000_500_000),
        ({"max_duration_ms": 5}, lambda one: one.duration_ns <= 5_000_000),
        ({"min_duration_ms": 0, "max_duration_ms": 10_000, "has_errors": True}, lambda one: one.error_count and one.duration_ns <= 10**10),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_errors_and_durations_are_those_of_the_whole_trace(
    model: Model, question: dict[str, Any], keeps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_search, "_FIRST_ROWS", 20)
    expected = [one for one in in_order(model.summaries("service = 'shop'"), "newest") if keeps(one)]
    assert expected
    found = pages(model.search, limit=20, service="shop", **question)
    assert [one for page in found for one in page] == expected
    assert model.search(limit=1, count=True, service="shop", order="longest", **question).total == len(expected)


@pytest.mark.parametrize("order", SPAN_ORDERS)
@pytest.mark.parametrize(
    ("where", "question"), [QUESTIONS[0], QUESTIONS[3], QUESTIONS[6]], ids=["everything", "typed", "some"]
)
def test_spans_come_in_pages_each_once_and_in_its_newest_form(
    model: Model, where: str, question: dict[str, Any], order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_search, "_FIRST_ROWS", 50)
    expected = in_order(model.matching(where), order)
    found = pages(model.search_spans, limit=150, order=order, **question)
    assert [one for page in found for one in page] == expected
    assert model.search_spans(limit=1, count=True, **question).total == len(expected)


def test_more_traces_at_one_nanosecond_than_a_step_takes_are_still_in_order(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_search, "_MAX_TRACES", 4)
    store = Model(settings)
    store.send(*(span(number, number, start=START + number // 10) for number in range(1, 14)))
    found = pages(store.search, limit=5)
    assert [one for page in found for one in page] == in_order(store.summaries(), "newest")
    store.warehouse.close()


def test_in_a_large_base_many_traces_are_looked_for_near_their_matches(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crannog.traces.search.snapshot_reader._SMALL_BASE_ROWS", -1)
    monkeypatch.setattr("crannog.traces.search.snapshot_reader._TRACE_WINDOW_NS", 40 * HOUR)
    monkeypatch.setattr("crannog.traces.search.summaries._MAX_BLOOM_IDS", 0)
    monkeypatch.setattr("crannog.traces.search.summaries.MAX_PYTHON_ROWS", 0)
    for order in ("newest", "longest"):
        found = pages(model.search, limit=40, order=order, service="shop")
        assert [one for page in found for one in page] == in_order(model.summaries("service = 'shop'"), order)


# -- questions that are wrong ----------------------------------------------------------------------------------------


def test_a_cursor_is_taken_by_its_own_search_only(model: Model) -> None:
    cursor = model.search(limit=5).next_cursor
    assert cursor is not None
    assert len(model.search(limit=3, cursor=cursor).traces) == 3  # the size of a page may change
    for question in ({"service": "shop"}, {"order": "oldest"}, {"has_errors": True}, {"start": 5}):
        with pytest.raises(CallerError, match="another search"):
            model.search(cursor=cursor, **question)
    with pytest.raises(CallerError, match="cursor"):
        model.search_spans(cursor=cursor)
    for wrong in ("", "x", "!!!", cursor[:-4], cursor[:-4] + "AAAA", "A" * 5_000, 7):
        with pytest.raises(CallerError, match="cursor"):
            model.search(cursor=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b'[1,"0 OR 1",""]', b"[]", b"{}", b"5", b'[1,"1; DROP TABLE x","%s",0,null]' % (b"00" * 16), b'[1,5,"%s",0,"x"]' % (b"00" * 16), b'[1,%d,"%s",0,null]' % (2**70, b"00" * 16)], ids=range(7))  # fmt: skip
def test_a_made_up_cursor_is_refused_whatever_it_says(model: Model, content: bytes) -> None:
    digest = SearchRequest(MATCH_ALL).digest
    signed = hashlib.sha256(digest.encode() + b"\0" + content).digest()[:8] + content
    with pytest.raises(CallerError, match="cursor"):
        model.search(cursor=base64.urlsafe_b64encode(signed).decode().rstrip("="))


def test_filters_at_their_limits_are_answered(model: Model) -> None:
    assert model.search(where=" or ".join(["span.k = 1"] * 100), limit=1).traces
    assert not model.search(where=" and ".join(["span.k = 1", "service = 'x'"] * 50)).traces
    assert model.search(where="not " * 40 + "k = 1", limit=1).traces
    assert model.search(where=f"k in ({','.join(map(str, range(1_000)))})", limit=1).traces
    assert model.search(where="(" * 60 + "k = 1" + ")" * 60, limit=1).traces


@pytest.mark.parametrize(
    "question",
    [
        {"limit": 0}, {"limit": 10_001}, {"limit": True}, {"order": "best"}, {"service": 5}, {"text": b"x"}, {"where": 5},
        {"where": "k ="}, {"attributes": ["k"]}, {"attributes": {"k": None}}, {"attributes": {"k": float("nan")}},
        {"attributes": {"k": []}}, {"attributes": {5: 1}}, {"has_errors": "yes"}, {"min_duration_ms": "1"},
        {"max_duration_ms": float("inf")}, {"start": "soon"}, {"end": 1.5}, {"service": "\ud800"},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_question_is_refused(model: Model, question: dict[str, Any]) -> None:
    with pytest.raises(CallerError):
        model.search(**question)


def test_times_are_nanoseconds_datetimes_or_text(model: Model) -> None:
    middle = START + 5 * HOUR
    rounded = middle - middle % 1000
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=rounded // 1000)
    elsewhere = moment.astimezone(dt.timezone(dt.timedelta(hours=-7)))
    text = f"{moment:%Y-%m-%dT%H:%M:%S}.{middle % 10**9:09}Z"
    assert model.search(start=middle) == model.search(start=text)
    assert model.search(end=rounded).traces == model.search(end=moment).traces == model.search(end=elsewhere).traces
    assert model.search(end=moment.replace(tzinfo=None)) == model.search(end=moment)


def test_a_store_without_spans_finds_nothing(settings: Settings) -> None:
    store = Model(settings)
    assert store.search().traces == store.search_spans().spans == ()
    assert store.search(count=True).total == store.search_spans(count=True).total == 0
    assert store.complete("service") == []
    assert not Path(settings.warehouse, "crannog").exists()
    store.warehouse.close()


# -- what comes in between -------------------------------------------------------------------------------------------


def test_pages_stay_as_they_are_while_newer_traces_come(settings: Settings) -> None:
    store = Model(settings)
    for number in range(1, 21):
        store.send(span(number, number, start=START + number))
    first = store.search(limit=5)
    for number in range(21, 31):
        store.send(span(number, number, start=START + number))
    second = store.search(limit=5, cursor=first.next_cursor)
    assert [one.trace_id for one in second.traces] == [trace_id(number).hex() for number in range(15, 10, -1)]
    assert store.search(limit=5, cursor=second.previous_cursor).traces == first.traces
    store.warehouse.close()


def test_a_value_that_a_newer_copy_of_the_span_took_back_is_not_found(settings: Settings) -> None:
    store = Model(settings)
    store.send(span(1, 1, attributes={"k": "old"}), span(2, 2, attributes={"k": "old"}))
    store.send(span(1, 1, attributes={"k": "new"}))
    for query, field in ((store.search, "traces"), (store.search_spans, "spans")):
        for order in ("newest", "longest"):
            [found] = getattr(query(attributes={"k": "old"}, order=order), field)
            assert found.trace_id == trace_id(2).hex()
        assert query(attributes={"k": "old"}, count=True).total == 1
        assert query(attributes={"k": "new"}, count=True).total == 1
    assert store.search(attributes={"k": "new"}).traces[0].span_count == 1
    store.warehouse.close()


def test_one_span_must_meet_the_whole_question(settings: Settings) -> None:
    store = Model(settings)
    store.send(span(1, 1, attributes={"a": 1}), span(1, 2, 1, attributes={"b": 2}))
    assert not store.search(where="a = 1 and b = 2").traces
    assert not store.search(attributes={"a": 1, "b": 2}).traces
    assert len(store.search(where="a = 1 or b = 2").traces) == 1
    store.warehouse.close()


# -- what to type next -----------------------------------------------------------------------------------------------


def test_names_keys_and_values_are_suggested_within_a_filter(settings: Settings) -> None:
    store = Model(settings)
    event = {"name": "retry", "attributes": []}
    store.send(
        *(
            span(n, n, name=f"op{n % 3}", attributes={"http.method": "GET", "n": n % 2}, events=[event])
            for n in range(1, 10)
        )
    )
    store.send(span(50, 50, name="pay", attributes={"http.method": "PUT", "odd key": True}), service="bank")

    def said(*what: Any, **more: Any) -> list[Any]:
        return [(one.value, one.count) for one in store.complete(*what, **more)]

    assert said("service") == [("shop", 9), ("bank", 1)]
    assert said("service", "b") == [("bank", 1)]
    assert said("operation", "op", where="n = 1") == [("op0", 2), ("op1", 2), ("op2", 1)]
    assert said("operation", service="bank") == [("pay", 1)]
    assert said("key", "http") == [("http.method", 10)]
    assert said("key", "resource.") == [("resource.service.name", 10)]
    assert said("key", "", where="service = 'bank'") == [("http.method", 1), ("odd key", 1), ("service.name", 1)]
    assert said("value", "", key="http.method") == [("GET", 9), ("PUT", 1)]
    assert said("value", "P", key="span.http.method") == [("PUT", 1)]
    assert said("value", "", key="n", limit=1) == [(1, 5)]
    assert said("value", "", key="odd key") == [(True, 1)]
    assert said("value", "", key="event.name") == [("retry", 9)]
    assert said("value", "s", key="service") == [("shop", 9)]
    assert said("value", "", key="resource.http.method") == []
    for wrong in (
        {"what": "color"},
        {"what": "value"},
        {"what": "value", "key": "duration"},
        {"what": "key", "prefix": 5},
    ):
        with pytest.raises(CallerError):
            store.complete(**wrong)
    store.warehouse.close()


# -- steps in time ---------------------------------------------------------------------------------------------------


def test_a_step_holds_about_as_many_spans_as_were_asked_for() -> None:
    histogram = TimeHistogram([TimeBin(0, 999, 1000), TimeBin(500, 999, 500), TimeBin(2000, 2000, 10)])
    assert histogram.range_start(10_000, 10) == 2000
    assert histogram.range_start(2000, 100) == 950
    assert histogram.range_start(1000, 1000) == 500
    assert histogram.range_start(500, 100) == 400
    assert histogram.range_start(500, 10_000) == EARLIEST
    assert TimeHistogram([]).range_start(5, 5) == EARLIEST


# -- in the base -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_folded_spans_are_found_as_staged_ones_are(
    settings: Settings, spark: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(settings)
    fold(store.spans)
    extra = random.Random(3)
    for number in range(40):  # some staged again, and some new ones among the folded
        store.send(
            span(extra.randrange(120), number * 10 + 1, start=START + extra.randrange(60 * HOUR), attributes={"k": 1})
        )
    monkeypatch.setattr(trace_search, "_FIRST_ROWS", 30)
    for where, question in QUESTIONS:
        for order in ("newest", "oldest", "most_spans"):
            found = pages(store.search, limit=11, order=order, **question)
            assert [one for page in found for one in page] == in_order(store.summaries(where), order), (where, order)
        found = pages(store.search_spans, limit=60, **question)
        assert [one for page in found for one in page] == in_order(store.matching(where), "newest"), where
    assert span_id(1)
    store.warehouse.close()


def test_a_search_reads_only_the_staged_rows_that_may_match() -> None:
    chunks = [pa.table({"trace_hi": [n, n + 1], "start_ns": [10 * n, 10 * n + 5], "n": [n, n]}) for n in range(5)]
    staged = pa.concat_tables(chunks)
    by_id = tail_part(staged, [Condition(0, "trace_hi", "in", (1, 4))])
    assert by_id is not None
    assert by_id["n"].to_pylist() == [0, 1, 3, 4]
    nothing = tail_part(staged, [Condition(0, "trace_hi", "=", (99,))])
    assert nothing is not None
    assert nothing.num_rows == 0
    by_time = tail_part(staged, start_between(12, 35))
    assert by_time is not None
    assert by_time["n"].to_pylist() == [1, 1, 2, 2, 3, 3], "whole chunks: the query itself has the condition"
    later = tail_part(staged, start_between(1000, 2000))
    assert later is not None
    assert later.num_rows == 0
    assert tail_part(staged, [Condition(0, "service_name", "=", ("a",))]) is None
