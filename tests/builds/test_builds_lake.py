"""`lake.builds`: the build log of a warehouse, opened once for all domains, embedded and behind a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import crannog
from build_samples import one_of_each, random_stream, request, whole_build
from crannog.builds import BuildRequestStatus, EventLog, check, open_log
from crannog.embedded import EmbeddedLake
from crannog.engine.duckdb.engine import DuckDBEngine
from crannog.engine.warehouse import Warehouse
from crannog.errors import CallerError, Overloaded, Refused
from crannog.server.http_server import HttpServer
from crannog.settings import load_settings

B = BuildRequestStatus
EVENTS = "crannog.builds.build_events"


@pytest.fixture
def constructed(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many warehouses and DuckDB engines were made since the test began."""
    counts = {"Warehouse": 0, "DuckDBEngine": 0}
    for kind in (Warehouse, DuckDBEngine):

        def counted(self: object, *arguments: object, kind: type = kind, make: object = kind.__init__) -> None:
            counts[kind.__name__] += 1
            make(self, *arguments)  # type: ignore[operator]

        monkeypatch.setattr(kind, "__init__", counted)
    return counts


@pytest.fixture
def server(tmp_path: Path, constructed: dict[str, int]) -> Iterator[HttpServer]:
    settings = load_settings(warehouse=str(tmp_path / "warehouse"), staged_rows_limit=77)
    with EmbeddedLake(settings.warehouse, settings=settings) as lake:
        server = HttpServer(lake, "127.0.0.1", 0)
        server.start()
        try:
            yield server
        finally:
            server.stop_accepting()
            server.abort()
            server.join(10)
            server.close()


def test_a_lake_keeps_builds_beside_its_tables(tmp_path: Path) -> None:
    events = list(random_stream(5, 40))
    with crannog.connect(str(tmp_path / "warehouse")) as lake:
        assert lake.tables() == []
        log = lake.builds
        assert isinstance(log, EventLog)
        assert log is lake.builds
        assert log.append_events(events) == list(range(1, 41))
        assert list(log.all_events()) == events
        assert lake.table(EVENTS).count() == 40
        assert lake.sql(f"SELECT max(`index`) AS head FROM {EVENTS}").rows() == [{"head": 40}]
        assert check(log).problems == ()
        with open_log(log.uri) as other:  # the same log, in a warehouse of its own
            assert other.append_event(request("late", B.RECEIVED)) == 41
        assert log.head() == 41
    with pytest.raises(CallerError, match="closed"):
        log.head()
    with pytest.raises(CallerError, match="connection is closed"):
        lake.builds.head()


def test_a_log_that_was_closed_is_opened_again_by_its_lake(tmp_path: Path) -> None:
    with crannog.connect(str(tmp_path)) as lake:
        with lake.builds as log:
            log.append_events(one_of_each())
        assert lake.builds is not log
        assert lake.builds.head() == 8
        assert lake.tables() == [EVENTS]  # the warehouse is still open


def test_threads_that_ask_first_get_one_log(tmp_path: Path) -> None:
    found: list[EventLog] = []
    with crannog.connect(str(tmp_path)) as lake:
        together = threading.Barrier(8)

        def ask() -> None:
            together.wait()
            found.append(lake.builds)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(map(id, found))) == 1


def test_a_table_that_is_removed_meanwhile_is_made_again(tmp_path: Path) -> None:
    import shutil

    with crannog.connect(str(tmp_path)) as lake:
        lake.builds.append_events(one_of_each())
        shutil.rmtree(tmp_path / "crannog" / "builds")
        assert lake.builds.append_event(request("new", B.RECEIVED)) == 1
        assert lake.table(EVENTS).count() == 1


def test_a_server_opens_one_warehouse_and_one_duckdb(server: HttpServer, constructed: dict[str, int]) -> None:
    with crannog.connect(server.url) as lake:
        lake.builds.append_events(whole_build("b", ["p", "q"]))
        with pytest.raises(Refused, match="build b is BUILD_REQUEST_COMPLETED"):
            lake.builds.append_event(request("b", B.EXECUTING, n="late"), check_states=True)
        assert lake.builds.append_event(request("b", B.EXECUTING, n="late"), check_states=False) == lake.builds.head()
        found = lake.sql(f"SELECT count(*) AS events FROM {EVENTS}", engine="local").rows()
        assert found == [{"events": lake.builds.stats().events}]
        assert lake.table(EVENTS).preview(3).num_rows == 3
    assert constructed == {"Warehouse": 1, "DuckDBEngine": 1}


def test_the_settings_of_a_server_hold_for_its_build_log(server: HttpServer) -> None:
    with crannog.connect(server.url) as lake:
        log = lake.builds
        log.append_events(list(random_stream(1, 70)))
        with pytest.raises(Overloaded, match="77"):
            log.append_events(list(random_stream(2, 20)))
        assert log.head() == 70


def test_the_address_of_the_warehouse_is_no_other_log(tmp_path: Path, constructed: dict[str, int]) -> None:
    from crannog.server.service import BuildLog

    with EmbeddedLake(str(tmp_path)) as lake:
        assert BuildLog(lake, f"delta://{tmp_path}").get() is lake.builds
        other = BuildLog(lake, f"sqlite:///{tmp_path}/builds.db")
        assert other.get() is not lake.builds
        assert other.get() is other.get()
        other.close()
    assert constructed["Warehouse"] == 1
