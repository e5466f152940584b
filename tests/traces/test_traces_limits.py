"""Questions about traces have a time, an id and an end: TimedOut, Cancelled, and nothing runs for a client that went away."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from crannog.api.reports import Cancellation
from crannog.embedded import EmbeddedLake
from crannog.engine.duckdb.engine import DuckDBEngine
from crannog.engine.sql.running_queries import RunningQueries
from crannog.errors import CallerError, Cancelled, Conflict, CrannogError, NotFound, TimedOut
from crannog.remote.lake import RemoteLake
from crannog.server.auth import Tokens
from crannog.server.http_server import HttpServer
from crannog.traces import lookup
from doors import serving_here
from test_jaeger import CHECKOUT, fill

Ask = Callable[[Any], Any]
READS: dict[str, Ask] = {
    "search": lambda traces: traces.search(service="shop"),
    "search in another order": lambda traces: traces.search(order="longest", count=True),
    "search of spans": lambda traces: traces.search_spans(where="duration > 1ms"),
    "complete": lambda traces: traces.complete("key", ""),
    "services": lambda traces: traces.services(),
    "operations": lambda traces: traces.operations("shop"),
    "metrics": lambda traces: traces.metrics(step="1h"),
    "metrics of a filter": lambda traces: traces.metrics(where="error"),
    "dependencies": lambda traces: traces.dependencies(),
    "attribute keys": lambda traces: traces.attribute_keys(),
    "get": lambda traces: traces.get(CHECKOUT),
    "show": lambda traces: traces.show(CHECKOUT),
    "compare": lambda traces: traces.compare(CHECKOUT, CHECKOUT),
    "export": lambda traces: traces.export([CHECKOUT]),
    "export of lines": lambda traces: list(traces.export_lines([CHECKOUT])),
    "plan of an erasure": lambda traces: traces.erasure_plan(where="error"),
}


class Endless:
    """A cursor of DuckDB that works on a question for ever before it looks at it; only an interruption ends that."""

    begun = threading.Event()

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def sql(self, query: str) -> Any:
        return self.execute(query)

    def execute(self, query: str) -> Any:
        self.begun.set()
        self._cursor.sql("SELECT max(hash(i)) FROM range(1000000000000000) t(i)").to_arrow_table()
        raise AssertionError("a work without end came to one")


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Make every question endless from now on; returns what tells that one began."""
    lent = DuckDBEngine.cursor

    @contextmanager
    def cursor(self: DuckDBEngine, tables: Any = None) -> Iterator[Any]:
        with lent(self, tables) as real:
            yield Endless(real)

    monkeypatch.setattr(DuckDBEngine, "cursor", cursor)
    # The spans are staged: as if some were in a file, too, where a trace is looked for with DuckDB.
    monkeypatch.setattr(
        lookup, "pruned", lambda *_: SimpleNamespace(files=tuple(f"data/{number}.parquet" for number in range(9)))
    )
    monkeypatch.setattr(DuckDBEngine, "scan", lambda *_, **__: "some_file")
    Endless.begun.clear()
    return Endless.begun


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with serving_here(tmp_path_factory.mktemp("limits")) as server:
        fill(server.service.lake)
        yield server


@pytest.fixture
def lake(server: HttpServer) -> EmbeddedLake:
    return server.service.lake


def running(lake: EmbeddedLake) -> RunningQueries:
    return lake.trace_store._running


def ends(condition: Callable[[], bool]) -> bool:
    """Wait for something that must come soon."""
    until = time.monotonic() + 20
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


class Asking(threading.Thread):
    """A question in a thread of its own, and the error it ends with."""

    def __init__(self, query: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._ask = query
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._ask()
        except BaseException as error:
            self.error = error

    def ended(self) -> BaseException | None:
        self.join(20)
        assert not self.is_alive()
        return self.error


@pytest.mark.parametrize("name", READS)
def test_every_read_ends_when_its_time_is_over(lake: EmbeddedLake, endless: threading.Event, name: str) -> None:
    asking = Asking(lambda: READS[name](lake.traces))
    assert endless.wait(20)
    [question] = running(lake)._queries.values()
    question.time_is_over()
    assert isinstance(asking.ended(), TimedOut)
    assert running(lake).ids() == []


def test_the_time_is_that_of_queries_unless_another_is_asked_for(tmp_path: Path, endless: threading.Event) -> None:
    with serving_here(tmp_path, sql_timeout_s=0.05) as server, RemoteLake(server.url) as remote:
        fill(server.service.lake)
        for traces in (server.service.lake.traces, remote.traces):
            with pytest.raises(TimedOut, match=r"0\.05 s"):
                traces.search()
            with pytest.raises(TimedOut, match=r"0\.1 s"):
                traces.within(timeout_s=0.1).search()
        with httpx.Client(base_url=server.url) as api:
            answer = api.get("/api/traces", params={"service": "shop", "start": "1"})
            assert answer.status_code == TimedOut.http_status
            assert "longer than 0.05 s" in answer.json()["errors"][0]["msg"]
            assert api.get("/api/v3/services").json()["error"]["httpCode"] == TimedOut.http_status


def test_a_question_is_cancelled_by_its_id_from_both_sides(server: HttpServer, endless: threading.Event) -> None:
    with RemoteLake(server.url) as remote:
        for traces in (server.service.lake.traces, remote.traces):
            endless.clear()
            asking = Asking(lambda of=traces: of.within(query_id="mine / 1").metrics())  # type: ignore[misc]
            assert endless.wait(20)
            with pytest.raises(Conflict, match="is already running"):
                traces.within(query_id="mine / 1").services()
            traces.cancel("mine / 1")
            assert isinstance(asking.ended(), Cancelled)
            with pytest.raises(NotFound):
                traces.cancel("mine / 1")


def test_a_client_that_goes_away_ends_what_it_asked(server: HttpServer, endless: threading.Event) -> None:
    for path in ("/api/v1/traces", "/api/traces?service=shop&start=1", "/api/v3/services"):
        endless.clear()
        with socket.create_connection(("127.0.0.1", httpx.URL(server.url).port or 0)) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert endless.wait(20)
            assert len(running(server.service.lake).ids()) == 1
        assert ends(lambda: running(server.service.lake).ids() == [])


def test_only_its_owner_and_an_admin_end_a_question(tmp_path: Path, endless: threading.Event) -> None:
    with serving_here(tmp_path) as server:
        fill(server.service.lake)
        tokens = Tokens(server.service.lake.operations.warehouse.storage)
        scopes = {"reader": "read:crannog.traces", "other": "read:crannog.traces", "boss": "admin"}
        reader, other, admin = (tokens.create(name, [scope]) for name, scope in scopes.items())
        server.service.tokens.refresh()
        with (
            RemoteLake(server.url, reader) as lake,
            RemoteLake(server.url, other) as stranger,
            RemoteLake(server.url, admin) as boss,
        ):
            for ender in (lake, boss):
                endless.clear()
                asking = Asking(lambda of=lake: of.traces.within(query_id="q").search())  # type: ignore[misc]
                assert endless.wait(20)
                with pytest.raises(NotFound):
                    stranger.traces.cancel("q")
                ender.traces.cancel("q")
                assert isinstance(asking.ended(), Cancelled)


def test_an_erasure_is_cancelled_while_it_looks_for_its_traces(lake: EmbeddedLake, endless: threading.Event) -> None:
    cancellation = Cancellation()
    asking = Asking(lambda: lake.traces.erase(where="error", cancellation=cancellation))
    assert endless.wait(20)
    cancellation.cancel()
    assert isinstance(asking.ended(), Cancelled)


@pytest.mark.parametrize(
    "limits", [{"timeout_s": 0}, {"timeout_s": True}, {"timeout_s": 10**6}, {"query_id": ""}, {"query_id": "x" * 129}]
)
def test_limits_that_are_none_are_refused_on_both_sides(server: HttpServer, limits: dict[str, Any]) -> None:
    with RemoteLake(server.url) as remote:
        for traces in (server.service.lake.traces, remote.traces):
            with pytest.raises(CallerError):
                traces.within(**limits)
    with httpx.Client(base_url=server.url) as api:
        for wrong in ("soon", "-1", "nan"):
            answer = api.get("/api/v1/services", headers={"Crannog-Timeout-S": wrong})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, CallerError.code)


def test_what_is_within_limits_is_answered_as_ever(server: HttpServer) -> None:
    with RemoteLake(server.url) as remote:
        for traces in (server.service.lake.traces, remote.traces):
            limited = traces.within(timeout_s=60, query_id="again")
            for query in READS.values():
                assert repr(query(limited)) == repr(query(traces))


def test_an_error_under_a_question_stays_what_it_is(lake: EmbeddedLake) -> None:
    with pytest.raises(CrannogError) as raised:
        lake.traces.get("f" * 32)
    assert isinstance(raised.value, NotFound)
