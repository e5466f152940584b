"""Who does not know Spark's secret gets nothing from its ports, and XML in a query opens neither files nor addresses."""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from crannog.errors import Unavailable
from crannog.settings import Settings
from crannog.spark.configuration import SETTING, secret_conf
from crannog.spark.jvm import Jvm
from crannog.spark.session import SparkRuntime

RPC_REQUEST, RPC_FAILURE = 3, 5  # message types of Spark's network protocol


def java_process(spark: SparkRuntime) -> Jvm:
    spark.session()
    assert spark._start is not None
    assert spark._start.jvm is not None
    return spark._start.jvm


def listening(pid: int) -> dict[int, str]:
    """The ports a process listens on, and the address of each as the kernel writes it."""
    links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            address, _, port = parts[1].partition(":")
            if parts[3] == "0A" and parts[9] in inodes:
                found[int(port, 16)] = address
    return found


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def first_answer(port: int, body: bytes) -> int | None:
    """Send a request of Spark's protocol without any login; return the type of the answer, None if hung up on."""
    request = struct.pack(">qi", 7, len(body)) + body
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(struct.pack(">QB", 9 + len(request), RPC_REQUEST) + request)
        head = b""
        while len(head) < 9:
            piece = connection.recv(9 - len(head))
            if not piece:
                return None
            head += piece
    return int(head[8])


def test_a_local_process_without_the_secret_gets_no_block_and_no_answer(spark: SparkRuntime) -> None:
    jvm, context = java_process(spark), spark.session().sparkContext
    ports = listening(jvm.process.pid)
    assert set(ports.values()) <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    gateway = jvm.gateway.gateway_parameters.port
    assert gateway in ports
    others = set(ports) - {gateway}
    assert len(others) == 2, "the driver's own port and its block manager's"
    broadcast = context.broadcast(["a value"])
    block = f"broadcast_{broadcast._jbroadcast.id()}_piece0"
    open_block = b"\0" + text(context.applicationId) + text("driver") + struct.pack(">i", 1) + text(block)
    for port in others:
        assert first_answer(port, open_block) in (RPC_FAILURE, None)
    assert context.getConf().get("spark.authenticate") == "true"


def test_the_gateway_answers_only_who_shows_its_token(spark: SparkRuntime) -> None:
    port = java_process(spark).gateway.gateway_parameters.port
    for command in (b"c\nz:java.lang.Runtime\ngetRuntime\ne\n", b"A\nguessed\ne\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(command)
            assert connection.recv(200).startswith(b"!x")


def test_secrets_stay_off_the_command_line_and_in_a_folder_of_our_own(spark: SparkRuntime) -> None:
    jvm = java_process(spark)
    command = Path(f"/proc/{jvm.process.pid}/cmdline").read_bytes()
    assert b"spark.authenticate=true" in command
    assert SETTING.encode() not in command
    assert jvm.gateway.gateway_parameters.auth_token.encode() not in command
    assert stat.S_IMODE(jvm.folder.stat().st_mode) == 0o700
    assert not (jvm.folder / "gateway").exists()
    assert spark.session().conf.get(SETTING, None) is None


@contextmanager
def counting_server() -> Iterator[tuple[str, list[str]]]:
    """An address that an XML parser may be sent to, and the paths it was asked for."""
    requests: list[str] = []

    class Counting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            body = b"<!ELEMENT a ANY>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        server.server_close()


def outcome(spark: SparkRuntime, statement: str) -> str:
    try:
        return str(spark.session().sql(statement).collect())
    except Exception as error:
        return str(error)


def test_xml_in_a_query_opens_no_address_and_no_file(spark: SparkRuntime, tmp_path: Path) -> None:
    """Asked of Spark itself: what Crannog refuses before is not the only thing that stands between."""
    (tmp_path / "a.dtd").write_text('<!ELEMENT a ANY><!ENTITY told "hush">')
    with counting_server() as (address, requests):
        schema = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">{}<xs:element name="a" type="xs:string"/></xs:schema>'
        (tmp_path / "includes.xsd").write_text(schema.format(f'<xs:include schemaLocation="{address}/included.xsd"/>'))
        (tmp_path / "doctype.xsd").write_text(f'<!DOCTYPE xs:schema SYSTEM "{address}/schema.dtd">' + schema.format(""))
        statements = [
            f"select xpath('<!DOCTYPE a SYSTEM \"{where}\"><a><b>&told;</b></a>', 'a/b/text()')"
            for where in (f"{address}/x.dtd", (tmp_path / "a.dtd").as_uri())
        ]
        statements += [
            f"select {call}('<!DOCTYPE a SYSTEM \"{address}/{call}.dtd\"><a><b>1</b></a>'{rest})"
            for call, rest in (("from_xml", ", 'b INT'"), ("schema_of_xml", ""))
        ]
        statements += [
            f"select from_xml('<a/>', 'b INT', map('rowValidationXSDPath', '{path}'))"
            for path in (f"{address}/s.xsd", tmp_path / "includes.xsd", tmp_path / "doctype.xsd")
        ]
        answers = [outcome(spark, statement) for statement in statements]
        assert requests == []
    assert "hush" not in "".join(answers)
    assert re.search("'http' access is not allowed", answers[-2])


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,3]", "yarn", "k8s://https://host:6443"])
def test_spark_makes_a_secret_itself_where_it_can(master: str) -> None:
    assert secret_conf(Settings(spark_master=master)) == {}


def test_a_cluster_in_this_machine_gets_a_new_secret_each_time() -> None:
    made = [secret_conf(Settings(spark_master="local-cluster[1,1,1024]"))[SETTING] for _ in range(2)]
    assert len(set(made)) == 2
    assert all(len(secret) == 64 for secret in made)


def test_a_clusters_secret_comes_from_a_file_that_others_cannot_read(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    cluster = Settings(spark_master="spark://host:7077", spark_secret_file=str(file))
    with pytest.raises(Unavailable, match="No such file"):
        secret_conf(cluster)
    file.write_text("0123456789abcdef\n")
    file.chmod(0o640)
    with pytest.raises(Unavailable, match="chmod 600"):
        secret_conf(cluster)
    file.chmod(0o600)
    assert secret_conf(cluster) == {SETTING: "0123456789abcdef"}
    file.write_text("short")
    with pytest.raises(Unavailable, match="5 characters"):
        secret_conf(cluster)


def test_a_cluster_without_a_secret_is_not_used(settings: Settings) -> None:
    runtime = SparkRuntime(settings.model_copy(update={"spark_master": "spark://host:7077"}))
    with pytest.raises(Unavailable, match="CRANNOG_SPARK_SECRET_FILE"):
        runtime.session()
