"""ObjectStorage against an S3 server and memory, with the server asked behind the code's back."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from crannog.errors import CallerError, Unavailable
from crannog.storage.interface import Storage, open_storage
from crannog.storage.object_store import CHECKED, CLOCK_PROBE, Address, ObjectStorage

pytest_plugins = ["s3"]

QUICK = {"max_retries": "1", "retry_timeout": "2s", "timeout": "2s"}
SECRET = "test-secret-that-no-message-shows"


@pytest.fixture(params=["s3", "memory"])
def storage(request: pytest.FixtureRequest) -> ObjectStorage:
    if request.param == "memory":
        return ObjectStorage(f"memory://{os.urandom(8).hex()}/lake/warehouse")
    return ObjectStorage(request.getfixturevalue("s3_location"))


@pytest.fixture
def on_s3(s3_location: str) -> ObjectStorage:
    return ObjectStorage(s3_location)


def keys(client: Any, storage: ObjectStorage) -> set[str]:
    return {found["Key"] for found in client.list_objects_v2(Bucket=storage.address.bucket).get("Contents", [])}


# --- each act ---------------------------------------------------------------------------------------------------------


def test_it_is_a_storage(storage: ObjectStorage) -> None:
    kept: Storage = storage
    assert not kept.is_local


def test_put_if_absent_keeps_the_first(storage: ObjectStorage) -> None:
    assert storage.put_if_absent("t/stage/1.parquet", b"first")
    assert not storage.put_if_absent("t/stage/1.parquet", b"second")
    assert storage.read("t/stage/1.parquet") == b"first"


def test_put_if_absent_takes_more_than_one_part(storage: ObjectStorage) -> None:
    large = os.urandom(12 * 1024**2)
    assert storage.put_if_absent("t/large", large)
    assert not storage.put_if_absent("t/large", large + b"x")
    assert storage.read("t/large") == large


def test_replace_overwrites(storage: ObjectStorage) -> None:
    storage.replace("a/b", b"1")
    storage.replace("a/b", b"22")
    assert storage.read("a/b") == b"22"


def test_read_and_open_of_nothing(storage: ObjectStorage) -> None:
    with pytest.raises(FileNotFoundError, match=r"a/none"):
        storage.read("a/none")
    with pytest.raises(FileNotFoundError, match=r"a/none"):
        storage.open("a/none")
    with pytest.raises(FileNotFoundError, match=r"a/none"):
        storage.touch("a/none")
    assert not storage.exists("a/none")


def test_exists_is_for_files(storage: ObjectStorage) -> None:
    storage.replace("a/b/c", b"")
    assert storage.exists("a/b/c")
    assert not storage.exists("a/b")


def test_open_reads_parts(storage: ObjectStorage) -> None:
    data = os.urandom(1_000_000)
    storage.replace("parts", data)
    with storage.open("parts") as file:
        assert file.read(10) == data[:10]
        file.seek(-10, os.SEEK_END)
        assert file.read() == data[-10:]
        assert file.read() == b""
        file.seek(300_000)
        file.seek(5, os.SEEK_CUR)
        assert file.tell() == 300_005
        assert file.read(600_000) == data[300_005:900_005]
        file.seek(0)
        assert file.read() == data


def test_open_gives_parquet_what_it_needs(storage: ObjectStorage) -> None:
    table = pa.table({"a": list(range(100_000)), "b": ["x"] * 100_000})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=10_000)
    storage.replace("t.parquet", sink.getvalue().to_pybytes())
    with storage.open("t.parquet") as file:
        parquet = pq.ParquetFile(file)
        assert parquet.metadata.num_rows == 100_000
        assert parquet.read_row_group(3, columns=["a"]).column("a").to_pylist() == list(range(30_000, 40_000))


def test_names_folders_and_walk(storage: ObjectStorage) -> None:
    for path in ("top", "t/one", "t/two", "t/.hidden", "t/sub/three", "t/sub/deeper/four", "tt/other"):
        storage.replace(path, b"123")
    assert sorted(storage.names("t")) == ["one", "sub", "two"]
    assert sorted(storage.names("")) == ["t", "top", "tt"]
    assert storage.names("none") == storage.folders("none") == []
    assert list(storage.walk("none")) == []
    assert sorted(storage.folders("")) == ["t", "tt"]
    assert storage.folders("t") == ["sub"]
    walked = {file.path: file for file in storage.walk("t")}
    assert set(walked) == {"t/one", "t/two", "t/.hidden", "t/sub/three", "t/sub/deeper/four"}
    assert {file.size for file in walked.values()} == {3}
    assert all(abs(file.modified - time.time()) < 60 for file in walked.values())
    assert {file.path for file in storage.walk("")} == {*walked, "top", "tt/other"}


@pytest.mark.slow
def test_a_listing_has_more_than_one_page(on_s3: ObjectStorage) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: on_s3.replace(f"many/{n:05}", b""), range(1_234)))
    assert sorted(on_s3.names("many")) == [f"{n:05}" for n in range(1_234)]
    assert sum(1 for _ in on_s3.walk("many")) == 1_234
    on_s3.delete_folder("many")
    assert on_s3.names("many") == []


def test_delete(storage: ObjectStorage) -> None:
    for path in ("t/one", "t/two", "t/three"):
        storage.replace(path, b"")
    storage.delete(["t/one", "t/missing", "t/two"])
    storage.delete([])
    storage.delete(f"t/{name}" for name in ("one",))
    assert storage.names("t") == ["three"]


def test_delete_folder_leaves_its_neighbours(storage: ObjectStorage) -> None:
    for path in ("t/one", "t/sub/two", "t2/one", "t"):
        storage.replace(path, b"1")
    storage.delete_folder("t")
    storage.delete_folder("none")
    assert sorted(file.path for file in storage.walk("")) == ["t", "t2/one"]


def test_make_folder_and_sync_have_nothing_to_do(storage: ObjectStorage) -> None:
    storage.make_folder("t/stage")
    storage.sync(["t/stage/1"])
    assert list(storage.walk("")) == []


def test_touch_makes_a_file_new_and_keeps_its_content(storage: ObjectStorage) -> None:
    storage.replace("leases/a", b"mine")
    before = next(storage.walk("leases")).modified
    time.sleep(1.1)  # S3 keeps whole seconds
    storage.touch("leases/a")
    assert next(storage.walk("leases")).modified > before
    assert storage.read("leases/a") == b"mine"


@pytest.mark.parametrize("event", ["replaced", "deleted"])
def test_touch_leaves_a_successor_alone(storage: ObjectStorage, event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.replace("leases/a", b"mine")
    put: Any = obstore.put

    def put_later(store: Any, key: str, *args: Any, **more: Any) -> Any:
        monkeypatch.setattr(obstore, "put", put)
        if event == "deleted":
            storage.delete(["leases/a"])
        else:
            storage.replace("leases/a", b"theirs")
        return put(store, key, *args, **more)

    monkeypatch.setattr(obstore, "put", put_later)
    if event == "deleted":
        with pytest.raises(FileNotFoundError):
            storage.touch("leases/a")
        assert not storage.exists("leases/a")
    else:
        storage.touch("leases/a")
        assert storage.read("leases/a") == b"theirs"


def test_now_is_the_stores_clock(on_s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert abs(on_s3.now() - time.time()) < 1
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 500)  # our clock is late
    late = ObjectStorage(repr(on_s3))
    assert abs(late.now() - real()) < 3
    monkeypatch.undo()
    on_s3.replace("leases/a", b"")
    assert abs(on_s3.now() - next(on_s3.walk("leases")).modified) < 3
    assert CLOCK_PROBE not in on_s3.names("")


def test_paths_outside_are_refused(storage: ObjectStorage) -> None:
    for path in ("", "/a", "../a", "a/../b", "a//b", "./a"):
        with pytest.raises(CallerError, match="inside the warehouse"):
            storage.replace(path, b"")
        with pytest.raises(CallerError, match="inside the warehouse"):
            storage.fetch([path], Path("/nowhere"))


def test_odd_names_arrive_as_they_are(on_s3: ObjectStorage, s3_client: Any) -> None:
    odd = ["day=2024-01-01 00%3A00/a b", "ü/é", "a#b?c*", "a+b&c"]
    for path in odd:
        on_s3.replace(path, path.encode())
    assert keys(s3_client, on_s3) == {f"lake/warehouse/{path}" for path in odd}
    assert {file.path for file in on_s3.walk("")} == set(odd)
    assert all(on_s3.read(path) == path.encode() for path in odd)
    on_s3.delete(odd)
    assert keys(s3_client, on_s3) == set()


def test_hadoops_folder_markers_are_no_files(on_s3: ObjectStorage, s3_client: Any) -> None:
    for key in ("lake/warehouse/", "lake/warehouse/data/", "lake/warehouse/data/x"):
        s3_client.put_object(Bucket=on_s3.address.bucket, Key=key, Body=b"")
    assert on_s3.names("data") == ["x"]
    assert [file.path for file in on_s3.walk("data")] == ["data/x"]
    assert on_s3.names("") == ["data"]


# --- races and lost answers -------------------------------------------------------------------------------------------


def test_the_server_itself_refuses_a_second_conditional_put(on_s3: ObjectStorage, s3_client: Any) -> None:
    bucket = on_s3.address.bucket
    s3_client.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")
    with pytest.raises(s3_client.exceptions.ClientError) as refused:
        s3_client.put_object(Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*")
    assert refused.value.response["Error"]["Code"] == "PreconditionFailed"
    assert on_s3.refuses_second_put()
    assert keys(s3_client, on_s3) == {"k"}


def test_a_store_that_ignores_the_condition_is_found_out(on_s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    put: Any = obstore.put
    monkeypatch.setattr(obstore, "put", lambda store, key, data, mode=None: put(store, key, data))
    assert not on_s3.refuses_second_put()


def test_a_store_that_ignores_the_condition_holds_no_warehouse(
    s3_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: Any = obstore.put
    with monkeypatch.context() as patch:
        patch.setattr(obstore, "put", lambda store, key, data, mode=None: put(store, key, data))
        with pytest.raises(CallerError, match=r"ignores the condition of a put .* use a store with conditional puts"):
            open_storage(s3_location)
        with pytest.raises(CallerError, match="ignores the condition"):
            open_storage(s3_location)  # nothing was remembered
    open_storage(s3_location)


def test_the_first_open_of_a_bucket_checks_conditional_puts_and_later_ones_only_list(
    s3_location: str, s3_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(s3_location)
    assert isinstance(storage, ObjectStorage)
    assert keys(s3_client, storage) == {f"lake/warehouse/{CHECKED}/conditional-puts"}
    assert storage.names("") == []

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a later open writes nothing")

    monkeypatch.setattr(obstore, "put", refuse)
    open_storage(s3_location)


def test_a_reader_without_the_right_to_write_opens_a_bucket(s3_location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object, **__: object) -> None:
        raise obstore.exceptions.PermissionDeniedError("status code: 403 Forbidden")

    monkeypatch.setattr(obstore, "put", deny)
    open_storage(s3_location)


def test_a_first_put_that_met_its_own_object_is_no_alarm(on_s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    put: Any = obstore.put

    def twice(store: Any, key: str, data: bytes, mode: Any = None) -> Any:
        put(store, key, data, mode=mode)  # its answer was lost
        return put(store, key, data, mode=mode)

    monkeypatch.setattr(obstore, "put", twice)
    assert on_s3.refuses_second_put()


def test_of_many_threads_one_wins(storage: ObjectStorage) -> None:
    threads, rounds = 16, 20
    barrier = threading.Barrier(threads)

    def race(me: int) -> list[bool]:
        won = []
        for number in range(rounds):
            barrier.wait()
            won.append(storage.put_if_absent(f"stage/{number:020}", f"{me}".encode()))
        return won

    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(race, range(threads)))
    for number in range(rounds):
        winners = [me for me in range(threads) if results[me][number]]
        assert [f"{me}".encode() for me in winners] == [storage.read(f"stage/{number:020}")]


RACE = """
import sys
from crannog.storage.object_store import ObjectStorage
storage = ObjectStorage(sys.argv[1])
storage.exists("warm")
print("ready", flush=True)
sys.stdin.readline()
print(",".join(str(n) for n in range(50) if storage.put_if_absent(f"stage/{n:020}", sys.argv[2].encode())))
"""


def test_of_two_processes_one_wins(on_s3: ObjectStorage, s3_location: str) -> None:
    def start(me: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", RACE, s3_location, me]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    processes = [start("0"), start("1")]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [{int(n) for n in process.communicate(timeout=60)[0].split(",") if n.strip()} for process in processes]
    assert not won[0] & won[1]
    assert won[0] | won[1] == set(range(50))
    for me in (0, 1):
        assert all(on_s3.read(f"stage/{n:020}") == f"{me}".encode() for n in won[me])


class Faulty:
    """A server before the real one that can spoil the answer to each request."""

    def __init__(self, behind: str) -> None:
        self.spoil: Callable[[BaseHTTPRequestHandler], bool] = lambda _: False  # before forwarding; True: answered
        self.lose_answers_to = 0
        self.requests: list[str] = []
        faulty = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                faulty.requests.append(f"{self.command} {self.path}")
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if faulty.spoil(self):
                    return
                headers = {name: value for name, value in self.headers.items() if name.lower() != "content-length"}
                headers.setdefault("Content-Type", "application/octet-stream")  # urllib would call the body a form
                request = Request(behind + self.path, body or None, headers, method=self.command)
                try:
                    with urlopen(request) as found:
                        status, answer, answered = found.status, found.read(), dict(found.headers)
                except OSError as error:
                    status, answer, answered = getattr(error, "code", 502), b"", {}
                if faulty.lose_answers_to and self.command == "PUT":
                    faulty.lose_answers_to -= 1
                    self.close_connection = True
                    return
                self.send_response(status)
                for name in ("ETag", "Last-Modified"):
                    if name in answered:
                        self.send_header(name, answered[name])
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, status: int, body: str = "") -> None:
        def spoil(handler: BaseHTTPRequestHandler) -> bool:
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            if handler.command != "HEAD":
                handler.wfile.write(body.encode())
            return True

        self.spoil = spoil


@pytest.fixture
def faulty(s3_server: str) -> Iterator[Faulty]:
    server = Faulty(s3_server)
    yield server
    server.server.shutdown()
    server.server.server_close()


def test_a_lost_answer_is_false_or_unavailable_never_true(faulty: Faulty, s3_location: str) -> None:
    direct = ObjectStorage(s3_location)
    retrying = ObjectStorage(s3_location, {**QUICK, "AWS_ENDPOINT_URL": faulty.address})
    faulty.lose_answers_to = 1
    assert not retrying.put_if_absent("stage/1", b"mine")  # obstore asked again and met its own file
    assert direct.read("stage/1") == b"mine"

    giving_up = ObjectStorage(s3_location, {**QUICK, "max_retries": "0", "AWS_ENDPOINT_URL": faulty.address})
    faulty.lose_answers_to = 1
    with pytest.raises(Unavailable, match="stage/2"):
        giving_up.put_if_absent("stage/2", b"mine")
    assert direct.read("stage/2") == b"mine"


def test_server_errors_and_silence_are_unavailable(faulty: Faulty, s3_location: str) -> None:
    storage = ObjectStorage(s3_location, {**QUICK, "timeout": "1s", "AWS_ENDPOINT_URL": faulty.address})
    faulty.answer(503, "<Error><Code>SlowDown</Code></Error>")
    for act in every_act(storage):
        with pytest.raises(Unavailable, match=r"503"):
            act()
    assert len(faulty.requests) > len(every_act(storage)), "obstore repeats what failed"

    def hang(_: BaseHTTPRequestHandler) -> bool:
        time.sleep(1.5)
        return True

    faulty.spoil = hang
    with pytest.raises(Unavailable, match="did not answer in time"):
        storage.put_if_absent("a", b"")


def every_act(storage: ObjectStorage) -> list[Callable[[], object]]:
    return [
        lambda: storage.put_if_absent("a", b""),
        lambda: storage.replace("a", b""),
        lambda: storage.read("a"),
        lambda: storage.open("a"),
        lambda: storage.exists("a"),
        lambda: storage.names("a"),
        lambda: list(storage.walk("a")),
        lambda: storage.folders("a"),
        lambda: storage.delete(["a", "b"]),
        lambda: storage.delete_folder("a"),
        lambda: storage.touch("a"),
        storage.check,
    ]


def test_wrong_keys_are_unavailable_and_stay_secret(faulty: Faulty, s3_location: str) -> None:
    token = "session-token-that-no-message-shows"
    storage = ObjectStorage(s3_location, {**QUICK, "AWS_ENDPOINT_URL": faulty.address, "AWS_SESSION_TOKEN": token})
    quoting = f"<AWSAccessKeyId>test-key</AWSAccessKeyId><CanonicalRequest>{token}</CanonicalRequest>"
    faulty.answer(403, f"<Error><Code>SignatureDoesNotMatch</Code>{quoting}</Error>")
    for act in every_act(storage):
        with pytest.raises(Unavailable) as caught:
            act()
        message = str(caught.value)
        assert storage.address.bucket in message
        assert "403" in message
        assert "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY" in message
        assert caught.value.__suppress_context__
        for secret in (SECRET, "test-key", token):
            assert secret not in message
            assert secret not in repr(storage)
    assert abs(storage.now() - time.time()) < 1, "who may not write goes by his own clock"


def test_no_connection_and_wrong_region(s3_location: str, faulty: Faulty) -> None:
    nobody = ObjectStorage(s3_location, {**QUICK, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    with pytest.raises(Unavailable, match=r"no connection .* at http://127\.0\.0\.1:1; check the network"):
        nobody.read("a")
    elsewhere = ObjectStorage(s3_location, {**QUICK, "AWS_ENDPOINT_URL": faulty.address})
    faulty.answer(301)
    with pytest.raises(Unavailable, match="check AWS_REGION"):
        elsewhere.read("a")


def test_a_missing_bucket_is_named(s3_server: str) -> None:
    storage = ObjectStorage("s3://no-such-bucket/warehouse", QUICK)
    exists = 4  # a HEAD has no body that could tell a missing bucket from a missing file
    acts = every_act(storage)
    assert not acts.pop(exists)()
    acts.pop(3)  # open asks by HEAD too
    for act in acts:
        with pytest.raises(Unavailable, match="bucket no-such-bucket does not exist at http"):
            act()
    with pytest.raises(FileNotFoundError):
        storage.open("a")
    with pytest.raises(Unavailable, match="bucket no-such-bucket does not exist"):
        open_storage("s3://no-such-bucket/warehouse")


# --- what other programs are told -------------------------------------------------------------------------------------


def test_deltalake_creates_and_reads_a_table(on_s3: ObjectStorage, s3_client: Any) -> None:
    uri, options = on_s3.uri("sales/eu/orders"), dict(on_s3.options)
    write_deltalake(uri, pa.table({"a": [1, 2]}), storage_options=options)
    write_deltalake(uri, pa.table({"a": [3]}), mode="append", storage_options=options)
    table = DeltaTable(uri, storage_options=options)
    assert table.version() == 1
    assert sorted(table.to_pyarrow_table()["a"].to_pylist()) == [1, 2, 3]
    log = "sales/eu/orders/_delta_log"
    assert {f"{n:020}.json" for n in (0, 1)} <= set(on_s3.names(log))
    assert f"lake/warehouse/{log}/{0:020}.json" in keys(s3_client, on_s3)
    # Our commit and delta-rs's meet on one name.
    assert not on_s3.put_if_absent(f"{log}/{1:020}.json", b"{}")
    assert on_s3.put_if_absent(f"{log}/{2:020}.json", b'{"commitInfo":{"operation":"CRANNOG"}}\n')
    assert DeltaTable(uri, storage_options=options).version() == 2


def test_deltalake_works_by_the_options_alone(on_s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    options = dict(on_s3.options)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    write_deltalake(on_s3.uri("t"), pa.table({"a": [1]}), storage_options=options)
    assert on_s3.names("t/_delta_log")


def test_addresses_and_settings(on_s3: ObjectStorage, s3_server: str) -> None:
    bucket = on_s3.address.bucket
    assert on_s3.uri("t/x") == f"s3://{bucket}/lake/warehouse/t/x"
    assert on_s3.spark_uri("t/x") == f"s3a://{bucket}/lake/warehouse/t/x"
    assert on_s3.uri("") == repr(on_s3) == f"s3://{bucket}/lake/warehouse"
    assert ObjectStorage("memory://m").uri("t") == "memory://m/t"
    assert {key: value for key, value in on_s3.options.items() if key.startswith("AWS_")} == {
        "AWS_ACCESS_KEY_ID": "test-key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ALLOW_HTTP": "true",
        "AWS_CONDITIONAL_PUT": "etag",
    }
    spark = {key.removeprefix("spark.hadoop.fs.s3a."): value for key, value in on_s3.spark_settings.items()}
    assert spark["endpoint"] == s3_server
    assert spark["path.style.access"] == "true"
    assert spark["connection.ssl.enabled"] == "false"
    assert (spark["access.key"], spark["secret.key"]) == ("test-key", SECRET)
    assert spark["aws.credentials.provider"] == "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"


def test_settings_on_amazon_itself(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-token")
    storage = ObjectStorage("s3://bucket")
    assert "AWS_ALLOW_HTTP" not in storage.options
    assert storage.options["AWS_SESSION_TOKEN"] == "a-token"
    assert "spark.hadoop.fs.s3a.endpoint" not in storage.spark_settings
    provider = storage.spark_settings["spark.hadoop.fs.s3a.aws.credentials.provider"]
    assert provider.endswith("TemporaryAWSCredentialsProvider")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(CallerError, match="both"):
        ObjectStorage("s3://bucket")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "AWS_ACCESS_KEY_ID" not in ObjectStorage("s3://bucket").options


def test_google_and_azure_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CallerError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        ObjectStorage("az://box/lake")
    key = "a2V5"
    azure = ObjectStorage("abfss://box@account.dfs.core.windows.net/lake", {"azure_storage_account_key": key})
    assert azure.uri("t") == "az://box/lake/t"
    assert azure.spark_uri("t") == "abfss://box@account.dfs.core.windows.net/lake/t"
    assert azure.options["AZURE_STORAGE_ACCOUNT_NAME"] == "account"
    assert azure.spark_settings == {"spark.hadoop.fs.azure.account.key.account.dfs.core.windows.net": key}
    google = Address.parse("gs://bucket/lake")
    assert (google.scheme, google.bucket, google.prefix) == ("gs", "bucket", "lake")


def test_fetch_brings_files_once(storage: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [f"t/data/job/{n}.parquet" for n in range(40)]
    for path in wanted:
        storage.replace(path, path.encode() * 1000)
    storage.replace("t/data/job/empty", b"")
    into = tmp_path / "cache"
    got = storage.fetch([*wanted, wanted[0], "t/data/job/empty"], into)
    assert got == [into / path for path in [*wanted, wanted[0], "t/data/job/empty"]]
    assert all(file.read_bytes() == path.encode() * 1000 for file, path in zip(got[:40], wanted, strict=True))
    assert got[-1].read_bytes() == b""

    monkeypatch.setattr(obstore, "get", None)  # the second time nothing is asked
    assert storage.fetch(wanted, into) == got[:40]


def test_a_fetch_that_fails_leaves_no_half_file(storage: ObjectStorage, tmp_path: Path) -> None:
    storage.replace("a", b"1")
    with pytest.raises(FileNotFoundError, match="gone"):
        storage.fetch(["a", "gone"], tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] in ([], ["a"])
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable, match="cannot copy"):
        storage.replace("file/a", b"1")
        storage.fetch(["file/a"], tmp_path)


def test_two_fetches_of_one_file_at_once(storage: ObjectStorage, tmp_path: Path) -> None:
    storage.replace("a", b"x" * 5_000_000)
    with ThreadPoolExecutor(8) as pool:
        for (file,) in pool.map(lambda _: storage.fetch(["a"], tmp_path), range(8)):
            assert file.stat().st_size == 5_000_000
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


# --- addresses --------------------------------------------------------------------------------------------------------


def test_open_storage_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for location in (str(tmp_path / "lake"), f"file://{tmp_path}/lake", "lake", "./lake"):
        storage = open_storage(location)
        assert storage.is_local
        assert storage.uri("t") == str(tmp_path / "lake" / "t")
    assert open_storage(f"file://{tmp_path}/a%20b").uri("t") == str(tmp_path / "a b" / "t")


def test_open_storage_of_a_bucket(s3_location: str) -> None:
    storage = open_storage(s3_location)
    assert not storage.is_local
    assert storage.put_if_absent("a", b"1")
    assert open_storage(s3_location.replace("s3://", "s3a://")).read("a") == b"1"
    storage = open_storage("memory://shared/x")
    storage.replace("a", b"2")
    assert open_storage("memory://shared/x").read("a") == b"2"


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("", "not a valid warehouse location"),
        ("  ", "not a valid warehouse location"),
        (" lake", "not a valid warehouse location"),
        ("la\nke", "not a valid warehouse location"),
        ("ftp://host/lake", "s3://bucket/folder"),
        ("http://host/lake", "s3://bucket/folder"),
        ("://lake", "s3://bucket/folder"),
        ("file://lake/x", "not absolute"),
        ("file:lake", "not absolute"),
        ("s3://", "names no bucket"),
        ("s3:///lake", "names no bucket"),
        ("s3://bucket/../x", "unsupported characters"),
        ("s3://bucket/a//b", "unsupported characters"),
        ("s3://bucket/a b", "unsupported characters"),
        ("s3://bucket/a%20b", "unsupported characters"),
        ("s3://bucket/a?b=c", "unsupported characters"),
        ("s3://bucket/a#b", "unsupported characters"),
        ("s3://[bucket/a", "not a valid address"),
        ("s3://key:hidden@bucket/lake", "user or password"),
    ],
)
def test_open_storage_refuses(location: str, said: str) -> None:
    with pytest.raises(CallerError, match=said) as caught:
        open_storage(location)
    assert "hidden" not in str(caught.value)


def test_open_storage_refuses_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CallerError, match="is a file"):
        open_storage(str(tmp_path / "file"))


@pytest.mark.parametrize("endpoint", ["nonsense", "ftp://host", "http://user:hidden@host", "http://", "http://a b"])
def test_a_malformed_endpoint_is_refused(s3_server: str, endpoint: str) -> None:
    with pytest.raises(CallerError, match="AWS_ENDPOINT_URL") as caught:
        ObjectStorage("s3://bucket", {"AWS_ENDPOINT_URL": endpoint})
    assert "hidden" not in str(caught.value)
