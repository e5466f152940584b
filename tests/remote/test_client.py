"""The client of a server where it differs from an embedded lake: the network, tokens, packages it does without."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import crannog
from crannog.errors import CallerError, Conflict, CrannogError, NotFound, Overloaded, SparkLost, Unavailable
from crannog.remote.connection import error_of, refusal
from crannog.remote.lake import RemoteLake
from proxies import FaultyProxy, free_port
from servers import Server, made_token, server, serving

__all__ = ["server"]
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"net.work.t{abs(hash(request.node.name)) % 10**12}"


def test_it_needs_none_of_the_engines_packages(server: Server) -> None:
    program = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"duckdb", "deltalake", "pyspark", "delta", "py4j", "sqlglot", "obstore", "pandas", "polars", "fastapi", "uvicorn"}:
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Blocked())
import datetime as dt, decimal, threading
import pydantic
import crannog

class Order(pydantic.BaseModel):
    id: int
    price: decimal.Decimal
    due: dt.date | None = None

with crannog.connect(sys.argv[1]) as lake:
    table = lake.create_table("net.work.bare", Order, key="id")
    assert table.append([Order(id=1, price="1.50"), {"id": 2, "price": "2", "due": "2026-01-31"}]).rows == 2
    assert table.upsert([{"id": 2, "price": decimal.Decimal(3)}]).rows == 1
    assert table.delete([1], actor="Ada").rows == 1
    assert [entry["key"] for entry in table.tombstones()] == [{"id": 1}]
    assert lake.sql("select id, price from net.work.bare").rows() == [{"id": 2, "price": 3}]
    assert sum(batch.num_rows for batch in lake.stream("select * from net.work.bare")) == 1
    assert lake.explain("select id from net.work.bare").tables[0].staged_rows == 4
    assert table.preview().num_rows == table.to_arrow().num_rows == table.count() == table.describe()["rows"] == 1
    assert len(table.history()) == 1 and table.audit() == [] and lake.cache.stats()["tables"] == []
    with lake.producer("net.work.bare", Order) as producer:
        producer.insert({"id": 7, "price": "7"})
        producer.flush()
        assert {order.id for order in producer.read()} == {2, 7}
    try:
        table.append([{"id": "x"}])
    except crannog.BadRows as error:
        assert "column id" in error.message
    lake.drop_table("net.work.bare")
print("done")
"""
    ran = subprocess.run([sys.executable, "-c", program, server.url], capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.returncode) == ("done\n", 0), ran.stderr


def test_where_no_server_is_the_address_and_what_to_do_are_said() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    lake = crannog.connect(address)  # nothing is asked yet
    for act in (
        lake.tables,
        lambda: lake.sql("select 1"),
        lambda: lake.stream("select 1"),
        lambda: lake.table("a.b.c"),
    ):
        with pytest.raises(Unavailable) as caught:
            act()
        assert address in caught.value.message
        assert "`crannog serve`" in caught.value.message
        assert caught.value.retry_after_s is not None


@pytest.mark.parametrize("address", ["http://", "http://:x", "https:///path"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(CallerError, match="is not the address of a server"):
        crannog.connect(address)


def test_a_server_has_settings_of_its_own() -> None:
    for options in ({"maintain": True}, {"fold_rows": 1}):
        with pytest.raises(CallerError, match="settings of its own"):
            crannog.connect("http://127.0.0.1:1", **options)  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="printable ASCII"):
        crannog.connect("http://127.0.0.1:1", token="a\nb")


def test_a_write_whose_answer_is_lost_is_kept_once(server: Server, name: str) -> None:
    with FaultyProxy(server.url) as proxy, crannog.connect(proxy.url) as lake:
        table = lake.create_table(name, SCHEMA)
        table.append([{"n": 0}])
        for n in range(1, 4):
            proxy.lose = 2
            receipt = table.append([{"n": n}])
            assert (receipt.sequence, receipt.rows, receipt.duplicate) == (n + 1, 1, False)
        proxy.lose = 1
        assert table.append([{"n": 4}], batch_id="mine").batch_id == "mine"
        assert proxy.lost == 7
        proxy.lose = 1
        assert table.to_arrow()["n"].to_pylist() == list(range(5))
        proxy.lose = 2
        assert lake.sql(f"select n from {name}").row_count == 5
        keyed = lake.create_table(f"{name}k", SCHEMA, key="n", if_exists="ok")
        keyed.append([{"n": 1}])
        proxy.lose = 1
        assert not keyed.delete([1]).duplicate
        assert len(keyed.tombstones()) == 1


def test_a_server_that_never_answers_is_unavailable_after_some_tries(server: Server, name: str) -> None:
    with FaultyProxy(server.url) as proxy, crannog.connect(proxy.url) as lake:
        table = lake.create_table(name, SCHEMA)
        table.append([{"n": 1}])
        proxy.lose = 1_000
        with pytest.raises(Unavailable, match=r"did not complete POST /tables/.*/rows"):
            table.append([{"n": 2}])
        proxy.lose = 0
        with pytest.raises(Unavailable, match=proxy.url):
            proxy.lose = 10
            lake.drop_table(name)  # which is not sent twice
        assert proxy.lose == 9


def test_a_stream_that_breaks_off_raises_instead_of_ending(server: Server, name: str) -> None:
    with FaultyProxy(server.url) as proxy, crannog.connect(proxy.url) as lake:
        lake.create_table(name, SCHEMA).append([{"n": n, "text": "x" * 50} for n in range(2_000)])
        proxy.cut_after = 2_000_000
        with pytest.raises(Unavailable), lake.stream(f"select a.n, b.text from {name} a, {name} b") as stream:
            for batch in stream:
                assert batch.num_rows
        proxy.cut_after = None
        assert lake.sql("select 1 as one").rows() == [{"one": 1}]


def test_a_table_that_evolved_elsewhere_takes_its_new_columns(server: Server, name: str) -> None:
    with crannog.connect(server.url) as lake, crannog.connect(server.url) as other:
        table = lake.create_table(name, SCHEMA)
        table.append([])
        other.table(name).evolve(pa.schema([*SCHEMA, ("more", pa.int8())]))
        assert table.append([{"n": 1, "more": 2}]).rows == 1
        assert table.append([{"n": 2}]).rows == 1
        assert table.to_arrow()["more"].to_pylist() == [2, None]


def test_a_table_made_anew_elsewhere_takes_rows_by_its_new_types(server: Server, name: str) -> None:
    with crannog.connect(server.url) as lake, crannog.connect(server.url) as other:
        table = lake.create_table(name, SCHEMA)
        table.append([{"n": 1, "text": "7"}])
        other.drop_table(name)
        other.create_table(name, pa.schema([("n", pa.int64()), ("text", pa.decimal128(5, 2))]))
        # What fits the columns that are known here is refused over there (412): the rows are read anew and sent again.
        assert table.append([{"n": 1, "text": "7.50"}]).rows == 1
        assert [str(value) for value in table.to_arrow()["text"].to_pylist()] == ["7.50"]


@contextmanager
def answering(status: int, body: bytes, headers: dict[str, str] | None = None) -> Iterator[str]:
    """Something at an address that is no Crannog server."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{other.server_address[1]}"
        other.shutdown()


@pytest.mark.parametrize(
    ("status", "kind"), [(502, Unavailable), (404, NotFound), (409, Conflict), (429, Overloaded), (418, CallerError)]
)
def test_an_answer_of_something_else_is_told_as_such(status: int, kind: type[CrannogError]) -> None:
    with answering(status, b"<h1>No\n gateway</h1>") as address, pytest.raises(kind) as caught:
        crannog.connect(address).tables()
    assert caught.value.message == (
        f"{address} responded with {status}, but not as a Crannog server: <h1>No gateway</h1>; check the address"
    )


def test_an_address_that_moved_is_told() -> None:
    with (
        answering(301, b"", {"Location": "https://other/"}) as address,
        pytest.raises(CallerError, match="redirects to https://other/; use that address"),
    ):
        crannog.connect(address).tables()


def test_every_error_of_the_tree_comes_back_as_itself() -> None:
    def tree(kind: type[CrannogError]) -> Iterator[type[CrannogError]]:
        yield kind
        for branch in kind.__subclasses__():
            yield from tree(branch)

    for kind in tree(CrannogError):
        if kind.__module__ != CrannogError.__module__:
            continue  # a matter of the engine, which travels as what it is a kind of
        error = error_of({"code": kind.code, "message": "said", "retry_after_s": 1.5})
        assert (type(error), error.message, error.retry_after_s) == (kind, "said", 1.5)
    assert (
        type(refusal(503, b'{"error": {"code": "spark_lost", "message": "m", "retry_after_s": null}}', "a"))
        is SparkLost
    )
    assert type(refusal(500, b'{"error": "text"}', "a")) is Unavailable


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_after_a_fork_has_connections_of_its_own(server: Server, name: str) -> None:
    with crannog.connect(server.url) as lake:
        table = lake.create_table(name, SCHEMA)
        producer = lake.producer(name, max_age_s=60)
        producer.insert({"n": 0})
        children = []
        for number in range(1, 4):
            child = os.fork()
            if not child:
                code = 1
                try:
                    producer.insert({"n": number})
                    table.append([{"n": number * 10}])
                    code = 0 if producer.flush(30) and producer.sent == 1 else 2
                finally:
                    os._exit(code)
            children.append(child)
        for number in range(20):
            table.append([{"n": 100 + number}])
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
        producer.close()
        found = sorted(table.to_arrow()["n"].to_pylist())
    assert found == [0, 1, 2, 3, 10, 20, 30, *range(100, 120)]


def test_an_answer_may_travel_packed(server: Server, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import crannog.remote.connection as connection

    monkeypatch.setattr(connection, "is_loopback", lambda host: False)
    with crannog.connect(server.url) as lake:
        table = lake.create_table(name, SCHEMA)
        rows = [{"n": n, "text": "the same again"} for n in range(10_000)]
        table.append(rows)
        assert isinstance(lake, RemoteLake)
        answer = lake._connection.ask(
            "GET", f"/tables/{name}/rows", headers={"Accept": "application/vnd.apache.arrow.stream"}
        )
        assert answer.headers.get("Content-Encoding") in ("gzip", "zstd")
        assert table.to_arrow().select(["n", "text"]).to_pylist() == rows
        assert sum(batch.num_rows for batch in lake.stream(f"select * from {name}")) == 10_000


def test_a_token_opens_what_it_is_for(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    with crannog.connect(str(warehouse)) as lake:
        lake.create_table("net.work.t", SCHEMA)
    reader = made_token(warehouse, "reader", "read")
    with serving(warehouse) as guarded:
        with pytest.raises(crannog.Unauthorized) as caught:
            crannog.connect(guarded.url).tables()
        assert caught.value.exit_code == 2
        with pytest.raises(crannog.Unauthorized):
            crannog.connect(guarded.url, token="wrong").tables()
        with crannog.connect(guarded.url, token=reader) as lake:
            table = lake.table("net.work.t")
            assert table.count() == 0
            with pytest.raises(crannog.Forbidden):
                table.append([{"n": 1}])
            with lake.producer("net.work.t", max_age_s=0) as producer:
                producer.insert({"n": 1})
            assert isinstance(producer.failures[0].error, crannog.Forbidden)
