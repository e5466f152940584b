"""Tables that a part of Crannog owns: changed by their owner alone, at every entry point; and found again when removed."""

from __future__ import annotations

import datetime as dt
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import crannog
from build_samples import whole_build
from crannog.api.table import Table
from crannog.api.table_requests import DELETE
from crannog.builds import open_log, plain
from crannog.cli.changes import delete as cli_delete
from crannog.cli.main import app
from crannog.delta.schemas import colliding_columns
from crannog.embedded import EmbeddedLake
from crannog.embedded import EmbeddedLake as Lake
from crannog.engine.owned_tables import OWNERS, SYSTEM, owner_of
from crannog.errors import CallerError, Conflict, NotFound, Refused
from crannog.names import TableName
from crannog.server.audit import NAME as AUDIT
from crannog.server.audit import SCHEMA as AUDIT_COLUMNS
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from crannog.traces.derived.definitions import SUMMARIES
from crannog.traces.derived.definitions import open_or_create as made_derived
from crannog.traces.span_table import SPANS
from lakes import engine, opened, read_delta_rs, root
from otlp_samples import request_of, span, trace_id
from servers import Server, http, in_process, server  # noqa: F401

BUILD_EVENTS = TableName.parse("crannog.builds.build_events")
OWNED = [BUILD_EVENTS, SPANS, SUMMARIES.name, AUDIT, TableName.parse("ci.main.events")]
COLUMNS = pa.schema([("n", pa.int64())])
ROOT = Path(__file__).parents[2]
ROW = {"n": 1}

CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "create": lambda lake, name: lake.create_table(name, COLUMNS, if_exists="ok"),
    "append": lambda lake, name: lake.table(name).append([ROW]),
    "upsert": lambda lake, name: lake.table(name).upsert([ROW]),
    "delete": lambda lake, name: lake.table(name).delete([1]),
    "erase": lambda lake, name: lake.table(name).erase([1], actor="a", reason="r"),
    "expire": lambda lake, name: lake.table(name).expire(dt.date(2999, 1, 1)),
    "evolve": lambda lake, name: lake.table(name).evolve(COLUMNS),
    "drop": lambda lake, name: lake.drop_table(name),
}


def body(number: int) -> bytes:
    return request_of(span(number, number)).SerializeToString()


def make_all(warehouse: str | Path) -> None:
    """Let each owner make its tables in a warehouse, without Spark."""
    with EmbeddedLake(str(warehouse)) as lake:
        lake.traces.write_otlp(body(1))
        made_derived(lake.operations.tables, SUMMARIES, lake.trace_store.spans)
        with suppress(Conflict):
            lake.operations.tables.create(AUDIT, AUDIT_COLUMNS)
    for name in (BUILD_EVENTS, OWNED[-1]):
        with open_log(f"delta://{warehouse}?table={name}") as log:
            log.append_events(whole_build("b1", ["p"]))


@pytest.fixture
def lake(settings: Settings) -> Iterator[EmbeddedLake]:
    make_all(settings.warehouse)
    with EmbeddedLake(settings.warehouse, settings=settings) as lake:
        yield lake


def staged(lake: Lake, name: TableName) -> list[str]:
    return sorted(path.name for path in root(lake, str(name)).glob("_crannog/*/stage/*.parquet"))


# -- at every entry point --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OWNED, ids=str)
def test_nobody_but_its_owner_changes_a_table(lake: EmbeddedLake, name: TableName) -> None:
    before = staged(lake, name), lake.table(str(name)).describe()
    for change, act in CHANGES.items():
        if change == "create" and name.catalog != "crannog":
            continue  # with another definition it is a conflict as for any table, and nothing is made
        with pytest.raises(Refused, match=rf"cannot {change} ?\w* ?\w* {name}: this table belongs to"):
            act(lake, str(name))
    with pytest.raises(Refused, match="belongs to"):
        lake.producer(str(name))
    with pytest.raises(Refused, match="belongs to"):
        lake.load("-", str(name), create=True)
    with pytest.raises(Refused, match="belongs to"):
        lake.load("-", str(name), dry_run=True)
    assert (staged(lake, name), lake.table(str(name)).describe()) == before
    # Reading is everybody's.
    table = lake.table(str(name))
    assert table.count() == table.to_arrow().num_rows == lake.sql(f"SELECT count(*) AS n FROM {name}").rows()[0]["n"]
    assert table.history()
    assert table.vacuum(dry_run=True).dry_run


def test_reading_and_upkeep_stay_allowed(lake: EmbeddedLake, spark: SparkRuntime) -> None:
    table = lake.table(str(BUILD_EVENTS))
    rows = table.count()
    table.fold()
    table.compact()
    table.vacuum()
    assert read_delta_rs(root(lake, str(BUILD_EVENTS))).num_rows == table.count() == rows
    with open_log(f"delta://{lake.settings.warehouse}") as log:
        assert log.append_events(whole_build("b2", ["p"]))[0] == rows + 1


def test_each_advice_names_what_there_is(lake: EmbeddedLake) -> None:
    """A message that names a call or a command must not send anybody to one that is not there."""
    advice = " ".join([owner.instead + " " + " ".join(owner.advice.values()) for owner in OWNERS])
    assert all(hasattr(lake.traces, verb) for verb in ("erase", "expire", "write_otlp"))
    assert all(hasattr(crannog.builds, verb) for verb in ("open_log", "prune", "wipe_build"))
    for words in (("traces", "erase"), ("traces", "expire"), ("builds", "prune")):
        assert f"crannog {' '.join(words)}" in advice
        assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0
    assert "POST /api/v1/builds/events" in advice
    assert "audit_days" in advice
    assert "audit_days" in Settings.model_fields


@pytest.mark.parametrize(
    "name",
    [
        "crannog.shop.orders",
        "crannog.builds.mine",
        "Crannog.Builds.build_events",
        "CRANNOG.SYSTEM.audit",
        "crannog.traces.SPANS",
    ],
)
def test_the_catalog_of_crannog_is_reserved(settings: Settings, tmp_path: Path, name: str) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("n\n1\n")
    with opened(settings) as lake:
        with pytest.raises(Refused, match=r"reserved|belongs to"):
            lake.create_table(name, COLUMNS)
        with pytest.raises(Refused, match=r"reserved|belongs to"):
            lake.load(str(rows), name, create=True)
        assert lake.tables() == []
    if "builds.mine" not in name:
        with pytest.raises(Refused, match=r"reserved|belongs to"):
            open_log(f"delta://{settings.warehouse}?table={name}")


def test_the_files_of_the_control_table_and_the_tokens_are_no_tables(settings: Settings) -> None:
    with opened(settings) as lake:
        for name in ("_crannog.control.t", "_crannog.tokens.t", "a._crannog.t", "a.b._delta_log"):
            for act in CHANGES.values():
                with pytest.raises(CallerError, match="reserved"):
                    act(lake, name)


def test_a_users_table_from_before_stays_the_users(settings: Settings) -> None:
    with opened(settings) as lake:
        for name in ("crannog.shop.orders", "crannog.builds.mine", "crannog.traces.spans"):
            lake.operations.tables.create(TableName.parse(name), COLUMNS, key=["n"])  # as earlier versions let one
            table = lake.create_table(name, COLUMNS, key="n", if_exists="ok")
            table.append([{"n": 1}, {"n": 2}])
            table.delete([1])
            table.evolve(pa.schema([("n", pa.int64()), ("m", pa.int64())]))
            assert table.count() == 1
            lake.drop_table(name)
        assert lake.tables() == []


def test_names_are_compared_without_case(settings: Settings) -> None:
    assert owner_of(TableName.parse("Crannog.SYSTEM.Audit"), {}) is SYSTEM
    assert {owner_of(TableName.parse(f"CRANNOG.{owner.schema.upper()}.x"), None) for owner in OWNERS} == set(OWNERS)
    assert owner_of(TableName.parse("shop.system.audit"), None) is None
    with opened(settings) as lake:
        lake.create_table("shop.eu.orders", COLUMNS)
        for twin in ("shop.eu.Orders", "shop.EU.orders", "SHOP.eu.orders", "Shop.us.items", "shop.Eu.items"):
            with pytest.raises(Conflict, match=r"differs only by case from the existing shop\."):
                lake.create_table(twin, COLUMNS, if_exists="ok")
            with pytest.raises(NotFound):
                lake.table(twin)
        lake.create_table("shop.us.orders", COLUMNS)
        assert lake.tables() == ["shop.eu.orders", "shop.us.orders"]
        lake.drop_table("shop.eu.orders")
        lake.create_table("shop.eu.Orders", COLUMNS)


def test_a_file_system_that_ignores_case_has_one_spelling(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(settings) as lake:
        lake.create_table("shop.eu.orders", COLUMNS)
        storage = lake.operations.warehouse.storage
        listed = {"": ["shop"], "shop": ["eu"], "shop/eu": ["orders"], "Shop": ["eu"], "Shop/eu": ["orders"]}
        # What Linux cannot show: the file is found by a path that no listing has.
        shutil.copytree(root(lake, "shop.eu.orders"), Path(settings.warehouse) / "Shop/eu/orders")
        exists = type(storage).exists
        monkeypatch.setattr(type(storage), "folders", lambda _self, folder: listed.get(folder, []))
        monkeypatch.setattr(
            type(storage), "exists", lambda self, path: exists(self, path) or exists(self, path.lower())
        )
        with pytest.raises(NotFound, match=r"no table Shop\.eu\.orders; there is shop\.eu\.orders"):
            lake.table("Shop.eu.orders")
        assert lake.table("shop.eu.orders").count() == 0


# -- over HTTP, from Python and the command line -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(server: Server) -> Server:  # noqa: F811
    make_all(server.warehouse)
    return server


@pytest.mark.parametrize("name", [*OWNED[:-1], TableName.parse("Crannog.builds.build_events")], ids=str)
def test_no_route_changes_an_owned_table(served: Server, http: httpx.Client, name: TableName) -> None:  # noqa: F811
    place = f"/api/v1/tables/{name}"
    schema = {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    for method, path, sent in (
        ("PUT", place, schema),
        ("POST", f"{place}/rows", [ROW]),
        ("PUT", f"{place}/rows", [ROW]),
        ("POST", f"{place}/delete", {"keys": [1]}),
        ("POST", f"{place}/erase", {"keys": [1], "actor": "a", "reason": "r"}),
        ("POST", f"{place}/expire", {"before": "2999-01-01"}),
        ("POST", f"{place}/evolve", schema),
        ("DELETE", place, None),
    ):
        answer = http.request(method, path, json=sent)
        refused = name in OWNED or path == place
        assert (answer.status_code, answer.json()["error"]["code"]) == (
            (400, "refused") if refused else (404, "not_found")
        ), (method, path, answer.text)
    assert http.get("/api/v1/builds/events").json()["events"]
    assert http.post("/api/v1/builds/events", json=[]).status_code < 500


def test_a_plain_row_does_not_reach_the_build_log(served: Server, http: httpx.Client) -> None:  # noqa: F811
    """A row that fits the table in every way is refused, too: it would stop every read and append of the log."""
    rows = http.get(f"/api/v1/tables/{BUILD_EVENTS}/rows", headers={"Accept": "application/json"}).json()
    row = {name: value for name, value in rows[0].items() if not name.startswith("_")}
    answer = http.post(f"/api/v1/tables/{BUILD_EVENTS}/rows", json=[{**row, "index": 1_000}])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "refused")
    assert "belongs to the build log" in answer.json()["error"]["message"]
    assert http.get("/api/v1/builds/events").status_code == 200


def test_nor_does_the_client_or_the_command_line(served: Server) -> None:
    with crannog.connect(served.url) as lake:
        for name in map(str, OWNED):
            for change, act in CHANGES.items():
                if change == "create" and name.startswith("ci."):
                    continue
                with pytest.raises(CallerError) as caught:
                    act(lake, name)
                if change in ("create", "expire", "evolve", "drop"):
                    assert isinstance(caught.value, Refused), (name, change, caught.value)
            assert lake.table(name).count() >= 0
    run = CliRunner()
    for place in (["--server", served.url], ["--warehouse", str(served.warehouse)]):
        for words in (
            ["drop", str(BUILD_EVENTS), "--yes"],
            ["drop", str(AUDIT), "--yes"],
            ["expire", str(AUDIT), "--before", "2999-01-01"],
        ):
            done = run.invoke(app, [*place, *words])
            assert isinstance(done.exception, Refused), done.output


# -- removed behind the owner's back -----------------------------------------------------------------------------------


def remove(warehouse: str | Path, name: TableName) -> None:
    shutil.rmtree(Path(warehouse) / name.path)


@pytest.mark.parametrize("first", ["read", "append", "remove"])
@pytest.mark.parametrize("remade", [False, True])
def test_a_build_log_that_was_removed_goes_on(tmp_path: Path, first: str, remade: bool) -> None:
    uri = f"delta://{tmp_path / 'w'}"
    with open_log(uri) as log:
        log.append_events(whole_build("old", ["p"]))
        assert log.head() == 10
        remove(tmp_path / "w", BUILD_EVENTS)
        if remade:
            with open_log(uri) as other:
                other.append_events(whole_build("other", ["p"])[:3])
        there = 3 if remade else 0
        if first == "read":
            assert log.head() == there
            assert log.get_build_request_events("old") == []
        elif first == "remove":
            assert log.remove_events([9]) == 0
        assert log.append_events(whole_build("new", ["p"])) == list(range(there + 1, there + 11))
        assert [build.build_request_id for build in log.list_build_requests().builds] == ["new"] + ["other"] * remade
    with open_log(uri) as again:
        assert again.head() == there + 10


def test_a_build_log_without_its_read_model_goes_on(tmp_path: Path) -> None:
    with open_log(f"delta://{tmp_path / 'w'}") as log:
        log.append_events(whole_build("b1", ["p"]))
        [own] = (tmp_path / "w" / BUILD_EVENTS.path / "_crannog").iterdir()
        shutil.rmtree(own / "builds")
        assert log.append_events(whole_build("b2", ["p"])) == list(range(11, 21))
        assert log.head() == 20


def test_a_server_goes_on_after_its_own_tables_were_removed(tmp_path: Path) -> None:
    with in_process(tmp_path, audit=True) as (service, ask):
        warehouse = Path(service.settings.warehouse)

        def use(number: int) -> list[httpx.Response]:
            service.lake.traces.write_otlp(body(number))
            service.audit.flush()
            return [
                ask("POST", "/api/v1/builds/events", json=[plain(event) for event in whole_build(f"b{number}", ["p"])]),
                ask("GET", "/api/v1/builds/events"),
                ask("GET", f"/api/v1/traces/{trace_id(number).hex()}"),
                ask("GET", "/api/v1/services"),
            ]

        for number in range(1, 4):
            assert [answer.status_code for answer in use(number)] == [200] * 4
            service.audit.flush()
            for name in (BUILD_EVENTS, SPANS, AUDIT):
                remove(warehouse, name)
            reads = (
                "/api/v1/builds/events",
                "/api/v1/services",
                f"/api/v1/traces/{trace_id(number).hex()}",
                "/api/v1/builds",
            )
            codes = [ask("GET", path).status_code for path in reads]
            assert codes == [200, 200, 404, 200], codes
        service.audit.flush()
        assert service.audit.dropped == 0
        assert [event["event_id"] for event in ask("GET", "/api/v1/builds/events").json()["events"]] == []
        service.build_log.close()


# -- columns with one name for Spark -----------------------------------------------------------------------------------


def test_columns_with_one_name_are_refused_wherever_they_come_from(settings: Settings, tmp_path: Path) -> None:
    def names_both(act: Callable[[], Any]) -> None:
        with pytest.raises(CallerError, match=r"columns .*\bs and .*ſ apart"):
            act()

    with opened(settings) as lake:
        both = pa.schema([("s", pa.int64()), ("ſ", pa.int64())])
        names_both(lambda: lake.create_table("a.b.t", both))
        names_both(lambda: lake.create_table("a.b.t", both, key=["s", "ſ"]))
        names_both(lambda: lake.create_table("a.b.t", both, partition_by=["ſ"]))
        names_both(
            lambda: lake.create_table(
                "a.b.t", {"type": "object", "properties": {"s": {"type": "string"}, "ſ": {"type": "string"}}}
            )
        )
        names_both(
            lambda: lake.create_table(
                "a.b.t", pa.schema([("x", pa.list_(pa.struct([("s", pa.int8()), ("ſ", pa.int8())])))])
            )
        )
        for name, text in (("rows.csv", "s,ſ\n1,2\n"), ("rows.json", '{"s": 1, "ſ": 2}\n')):
            (tmp_path / name).write_text(text)
            names_both(lambda name=name: lake.load(str(tmp_path / name), "a.b.t", create=True))  # type: ignore[misc]
        assert lake.tables() == []
        table = lake.create_table("a.b.t", pa.schema([("s", pa.int64())]))
        names_both(lambda: table.evolve(both))
        with pytest.raises(CallerError, match="ſ"):
            table.append([{"ſ": 1}])
        assert table.schema.names == ["s", "_created_at", "_batch_id"]
        assert table.describe()["warnings"] == []


def test_an_old_table_with_such_columns_says_so_and_works(
    settings: Settings, spark: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(settings) as lake:
        with monkeypatch.context() as patch:
            patch.setattr("crannog.delta.schemas.colliding_columns", lambda _fields: [])
            table = lake.create_table(
                "a.b.t", pa.schema([("n", pa.int64()), ("s", pa.int64()), ("ſ", pa.int64())]), key=["n", "s"]
            )
        assert list(colliding_columns(table.schema)) == [("s", "ſ")]
        [warning] = table.describe()["warnings"]
        assert "columns s and ſ have one name" in warning
        table.append([{"n": n, "s": n, "ſ": -n} for n in range(4)])
        table.evolve(pa.schema([*table.user_schema, ("m", pa.int64())]))
        with pytest.raises(CallerError, match="cannot tell columns m and M apart"):
            table.evolve(pa.schema([*table.user_schema, ("M", pa.int64())]))
        table.fold()
        table.delete([{"n": 0, "s": 0}])
        table.append([{"n": 1, "s": 1, "ſ": 100}])
        wanted = [(1, 1, 100), (2, 2, -2), (3, 3, -3)]

        def rows(found: pa.Table) -> list[tuple[int, ...]]:
            return sorted(tuple(row[name] for name in ("n", "s", "ſ")) for row in found.to_pylist())

        assert rows(table.to_arrow()) == rows(engine(table).to_arrow()) == wanted
        assert rows(table.to_spark().toArrow()) == wanted
        table.fold()
        table.compact()
        assert rows(read_delta_rs(root(lake, "a.b.t"))) == wanted
        table.erase([{"n": 2, "s": 2}], actor="a", reason="r")
        assert rows(read_delta_rs(root(lake, "a.b.t"))) == [wanted[0], wanted[2]]


# -- what a delete promises ----------------------------------------------------------------------------------------------


def test_a_deleted_row_leaves_other_readers_with_the_fold_and_all_say_so(
    settings: Settings, spark: SparkRuntime
) -> None:
    with opened(settings) as lake:
        table = lake.create_table("a.b.t", COLUMNS, key="n")
        table.append([{"n": 1}, {"n": 2}])
        table.fold()
        table.delete([1])
        assert [row["n"] for row in lake.sql("SELECT n FROM a.b.t").rows()] == [2]
        assert sorted(read_delta_rs(root(lake, "a.b.t"))["n"].to_pylist()) == [1, 2]
        table.fold()
        assert read_delta_rs(root(lake, "a.b.t"))["n"].to_pylist() == [2]
    for text in (
        Table.delete.__doc__,
        cli_delete.__doc__,
        DELETE.summary,  # what the route says
    ):
        assert "Programs that read the Delta table directly, without Crannog, see the rows until that fold" in (
            text or ""
        )
    for page in (ROOT / "README.md", *ROOT.glob("docs/*.md")):
        assert not re.search(r"at once,? (on every engine|everywhere)", page.read_text()), page
    assert "until the next fold they\nstill show the row" in (ROOT / "docs/erasure.md").read_text()
