"""Several traces at once: the same as one by one, in a few reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from crannog.engine.maintenance.fold import fold
from crannog.errors import NotFound, TooLarge
from crannog.settings import Settings
from crannog.traces import lookup
from crannog.traces.search.snapshot_reader import SnapshotReader
from derived_stand_in import stand_in_for_all
from doors import serving_here
from otlp_samples import START, request_of, span, trace_id
from test_jaeger import fill
from test_traces_search import Model, filled

MISSING = "f" * 32


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    store = filled(Settings(warehouse=str(tmp_path_factory.mktemp("bulk")), spark_memory_mb=1024))
    yield store
    store.warehouse.close()


def ids_of(store: Model) -> list[str]:
    return list(dict.fromkeys(trace for trace, _ in store.kept))


def equal_one_by_one(store: Model) -> None:
    ids = ids_of(store)
    assert list(store.get_many([*ids, MISSING, ids[0]])) == [store.get(each) for each in ids]


@pytest.mark.parametrize(("most_ids", "most_rows"), [(256, 50_000), (30, 40)])
def test_many_traces_are_each_what_it_is_alone(
    store: Model, monkeypatch: pytest.MonkeyPatch, most_ids: int, most_rows: int
) -> None:
    monkeypatch.setattr(lookup, "MAX_IDS", most_ids)
    monkeypatch.setattr(lookup, "MAX_ROWS", most_rows)
    equal_one_by_one(store)
    assert (
        list(store.get_many([MISSING, MISSING[1:] + "e"]))
        == list(store.get_many([MISSING]))
        == list(store.get_many([]))
        == []
    )


def test_many_traces_are_cut_where_one_is(settings: Settings) -> None:
    store = Model(settings.model_copy(update={"trace_spans_limit": 4}))
    store.send(*(span(trace, trace * 10 + number) for trace in range(1, 7) for number in range(1, trace + 1)))
    assert store.export([trace_id(4).hex()])["resourceSpans"]
    for numbers in ([5], [4, 6, 1]):  # whole or not at all
        with pytest.raises(TooLarge, match="trace_spans_limit"):
            store.export([trace_id(number).hex() for number in numbers])
    assert [(len(trace.spans), trace.truncated) for trace in store.get_many(ids_of(store))] == [
        (1, False),
        (2, False),
        (3, False),
        (4, False),
        (4, True),
        (4, True),
    ]
    store.warehouse.close()


def test_many_traces_are_exported_as_they_came_in(store: Model) -> None:
    ids = ids_of(store)[:30]

    def spans(exported: dict[str, Any]) -> list[str]:
        return sorted(
            repr(one) for group in exported["resourceSpans"] for scope in group["scopeSpans"] for one in scope["spans"]
        )

    assert spans(store.export(ids)) == sorted(one for each in ids for one in spans(store.export([each])))
    with pytest.raises(NotFound, match=MISSING):
        store.export([*ids, MISSING])


def test_a_page_of_jaeger_is_read_at_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    query = SnapshotReader.query

    def counted(self: SnapshotReader, sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return query(self, sql, *rest)

    with serving_here(tmp_path) as server, httpx.Client(base_url=server.url) as api:
        fill(server.service.lake)
        made = [span(number, number + 1, start=START + number) for number in range(60)]
        server.service.lake.traces.write_otlp(request_of(*made, service="many").SerializeToString())
        monkeypatch.setattr(SnapshotReader, "query", counted)
        found = api.get(
            "/api/traces", params={"service": "many", "start": "1", "end": str(START // 1000 + 1), "limit": "60"}
        ).json()["data"]
        assert {trace["traceID"].rjust(32, "0") for trace in found} == {trace_id(number).hex() for number in range(60)}
        assert len(statements) < 8
        assert [api.get(f"/api/traces/{trace['traceID']}").json()["data"][0] for trace in found[:5]] == found[:5]


def test_many_folded_traces_are_each_what_it_is_alone(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_all(monkeypatch)
    store = filled(settings)
    fold(store.spans)
    store.send(
        *(span(number, number * 10 + 1, start=START + number, attributes={"k": 2}) for number in range(0, 90, 3))
    )
    assert store.spans.snapshot().base.rows
    equal_one_by_one(store)
    store.warehouse.close()
