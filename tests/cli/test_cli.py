"""The command line as its users meet it: what it prints, what it reads, and the exit code of every failure."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import crannog
from crannog.cli import main as cli
from crannog.cli.arguments import read_rows
from crannog.cli.output import ago, bar, counted, moment, of_bytes, shown
from crannog.formats.json_values import to_plain_json
from crannog.formats.row_bodies import parse_keys
from crannog.spark.session import SparkRuntime

PROGRAM = str(Path(sys.executable).parent / "crannog")
# For one small job each: compiling Java for a long run would take most of the time.
SMALL_SPARK = {"CRANNOG_SPARK_MEMORY_MB": "1024", "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
ORDERS, NOTES = "shop.eu.orders", "ops.plant.notes"
ORDER_SCHEMA = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string"},
        "quantity": {"type": "integer"},
        "weight": {"type": "number"},
        "price": {"type": "decimal", "precision": 12, "scale": 2},
        "paid": {"type": "boolean"},
        "ordered_at": {"type": "string", "format": "date-time"},
        "due": {"type": "string", "format": "date"},
        "seal": {"type": "string", "format": "binary"},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"sku": {"type": "string"}, "price": {"type": "decimal", "precision": 9, "scale": 3}},
            },
        },
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["order_id"],
}
NOTE_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "level": {"type": "integer"}}}
ORDER = {
    "order_id": "o-1",
    "quantity": 3,
    "weight": 1.5,
    "price": "12.30",
    "paid": True,
    "ordered_at": "2026-01-31T10:00:00.250000+00:00",
    "due": "2026-02-28",
    "seal": base64.b64encode(b"\x00\xff").decode(),
    "lines": [{"sku": "a", "price": "0.125"}],
    "labels": {"who": "Ada"},
}


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of an error."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("crannog: ")
        return lines[0]


class Shell:
    """Runs commands in this process, on one warehouse."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.warehouse = folder, folder / "warehouse"
        self._patch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str, stdin: bytes | str = b"", at: Path | None = None) -> Answer:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        self._patch.setattr("sys.argv", ["crannog", "--warehouse", str(at or self.warehouse), *arguments])
        self._patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.run()
        out, err = self._capsys.readouterr()
        code = ended.value.code
        return Answer(code if isinstance(code, int) else 0, out, err)

    def file(self, name: str, content: Any) -> str:
        path = self.folder / name
        path.write_bytes(
            content
            if isinstance(content, bytes)
            else (content if isinstance(content, str) else json.dumps(content)).encode()
        )
        return str(path)

    def with_tables(self) -> Shell:
        self("create", ORDERS, "--schema", self.file("order.json", ORDER_SCHEMA), "--key", "order_id")
        self("create", NOTES, "--schema", self.file("note.json", NOTE_SCHEMA), "--partition-by", "_date")
        return self

    def with_rows(self, count: int = 3) -> Shell:
        self.with_tables()
        rows = [{"order_id": f"o-{number}", "quantity": number} for number in range(count)]
        assert self("append", ORDERS, self.file("rows.json", rows)).code == 0
        return self


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


# --- in processes of their own ---------------------------------------------------------------------------------


def run(*arguments: str, cwd: Path, stdin: str = "", env: dict[str, str] | None = None, timeout: float = 120) -> Answer:
    done = subprocess.run(
        [PROGRAM, *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(env or {})},
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def test_the_program_itself(tmp_path: Path) -> None:
    """Default folder, standard input, an error and a closed pipe, each in a real process."""
    (tmp_path / "note.json").write_text(json.dumps(NOTE_SCHEMA))
    missing = run("tables", cwd=tmp_path)
    assert missing.code == 2
    assert (
        missing.error
        == f"crannog: there is no warehouse at {tmp_path}/warehouse; create one with `crannog create`, or set --warehouse DIR or CRANNOG_WAREHOUSE to another"
    )
    assert not (tmp_path / "warehouse").exists()
    assert run("create", NOTES, "--schema", "note.json", cwd=tmp_path).code == 0
    rows = "".join(f'{{"text": "note {number}", "level": {number}}}\n' for number in range(2_000))
    assert run("append", NOTES, "-", cwd=tmp_path, stdin=rows).out == f"2,000 rows written to {NOTES}, sequence 1.\n"
    found = run("tables", "--json", cwd=tmp_path, env={"CRANNOG_WAREHOUSE": str(tmp_path / "warehouse")})
    assert found.json == [
        {
            "name": NOTES,
            "rows": 2000,
            "staged_rows": 2000,
            "files": 0,
            "bytes": 0,
            "version": 0,
            "key": [],
            "partition_by": [],
        }
    ]
    process = subprocess.Popen(
        [PROGRAM, "preview", NOTES, "-n", "2000", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 1


@pytest.mark.slow
def test_a_job_says_when_there_is_no_java_and_ends_the_one_it_started(tmp_path: Path) -> None:
    with crannog.connect(str(tmp_path / "warehouse")) as lake:
        lake.create_table(NOTES, NOTE_SCHEMA).append([{"text": "a"}, {"text": "b"}])
    absent = run("fold", NOTES, cwd=tmp_path, env={"CRANNOG_JAVA_HOME": str(tmp_path)})
    assert absent.code == 5
    assert "set CRANNOG_JAVA_HOME to its folder" in absent.error
    env = {**os.environ, **SMALL_SPARK}
    process = subprocess.Popen(
        [PROGRAM, "fold", NOTES, "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert err == ""
    folded = json.loads(out)
    assert (folded["table"], folded["staged_rows"], folded["final_rows"]) == (NOTES, 2, 2)
    # Spark's folder has the number of the process that started it in its name, and goes last.
    mark = f"crannog-spark-{process.pid}-"
    assert list(Path(tempfile.gettempdir()).glob(f"{mark}*")) == []
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert mark not in running


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(**settings: str) -> subprocess.Popen[str]:
        env = {**os.environ, **SMALL_SPARK, **{f"CRANNOG_{name.upper()}": value for name, value in settings.items()}}
        process = subprocess.Popen(
            [PROGRAM, "serve", "--port", "0"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
        )
        started.append(process)
        # A server that never says what a test waits for must not keep it waiting.
        timer = threading.Timer(200, process.kill)
        timer.start()
        timers.append(timer)
        return process

    timers: list[threading.Timer] = []
    yield start
    for timer in timers:
        timer.cancel()
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_serve_folds_and_stops_when_told(tmp_path: Path, serving: Callable[..., subprocess.Popen[str]]) -> None:
    with crannog.connect(str(tmp_path / "warehouse")) as lake:
        table = lake.create_table(NOTES, NOTE_SCHEMA)
        table.append([{"text": "a"}] * 5)
        server = serving(fold_age_s="0.1", scheduler_tick_s="0.2")
        assert server.stdout is not None
        lines = []
        for line in server.stdout:
            lines.append(line)
            if "vacuum" in line:
                break
        assert len(lines) == 5, lines
        assert re.fullmatch(
            rf"crannog {crannog.__version__} serves warehouse at http://127\.0\.0\.1:\d+; press Ctrl-C to stop\n",
            lines[0],
        )
        assert re.fullmatch(r"receiving spans over OTLP on port \d+ \(HTTP\) and \d+ \(gRPC\)\n", lines[1])
        assert f"fold {NOTES}: 5 rows into version 1 (the oldest change is" in lines[2]
        assert f"compact {NOTES}: skipped: no files are worth merging" in lines[3]
        assert f"vacuum {NOTES}: 0 files deleted" in lines[4]
        assert table.describe()["base_rows"] == 5
    began = time.monotonic()
    server.send_signal(signal.SIGTERM)
    assert server.wait(25) == 0
    assert time.monotonic() - began < 20
    assert server.stdout.read().endswith("stopped\n")


def test_serve_says_a_trouble_once_and_stops_on_ctrl_c(
    tmp_path: Path, serving: Callable[..., subprocess.Popen[str]]
) -> None:
    with crannog.connect(str(tmp_path / "warehouse")) as lake:
        lake.create_table(NOTES, NOTE_SCHEMA).append([{"text": "a"}])
    server = serving(fold_age_s="0.1", scheduler_tick_s="0.1", java_home=str(tmp_path))
    assert server.stdout is not None
    for line in server.stdout:
        if "failed" in line:
            break
    time.sleep(1)
    server.send_signal(signal.SIGINT)
    assert server.wait(20) == 0
    rest = server.stdout.read()
    assert "failed" not in rest
    assert "Java" not in rest
    assert "Traceback" not in rest


@pytest.mark.slow
def test_serve_stops_in_the_middle_of_a_job(tmp_path: Path, serving: Callable[..., subprocess.Popen[str]]) -> None:
    with crannog.connect(str(tmp_path / "warehouse")) as lake:
        table = lake.create_table(NOTES, NOTE_SCHEMA)
        table.append([{"text": "a"}])
        server = serving(fold_age_s="0.1", scheduler_tick_s="0.1")
        _wait_for_spark(server)
        began = time.monotonic()
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
        assert time.monotonic() - began < 20
        assert table.count() == 1


@pytest.mark.slow
def test_ctrl_c_takes_a_job_back_while_spark_starts(tmp_path: Path) -> None:
    with crannog.connect(str(tmp_path / "warehouse")) as lake:
        lake.create_table(NOTES, NOTE_SCHEMA).append([{"text": "a"}])
        process = subprocess.Popen([PROGRAM, "fold", NOTES], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        _wait_for_spark(process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 1
        assert err == "crannog: the job was cancelled before it committed; the table is unchanged\n"
        assert lake.table(NOTES).describe()["version"] == 0


def _wait_for_spark(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not list(Path(tempfile.gettempdir()).glob(f"crannog-spark-{process.pid}-*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


# --- tables ----------------------------------------------------------------------------------------------------


def test_a_table_is_made_described_and_listed(shell: Shell) -> None:
    made = shell(
        "create",
        ORDERS,
        "--schema",
        shell.file("s.json", ORDER_SCHEMA),
        "--key",
        "order_id",
        "--cluster-by",
        "due, order_id",
        "--json",
    )
    assert made.code == 0
    assert made.json["key"] == ["order_id"]
    assert made.json["cluster_by"] == ["due", "order_id"]
    assert {"name": "price", "type": "decimal128(12, 2)", "nullable": True} in made.json["columns"]
    again = shell(
        "create",
        ORDERS,
        "--schema",
        shell.file("s.json", ORDER_SCHEMA),
        "--key",
        "order_id",
        "--if-exists",
        "ok",
        "--json",
    )
    assert again.json["table_id"] == made.json["table_id"]
    assert shell("describe", ORDERS, "--json").json == again.json
    for command in (
        ["tables"],
        ["describe", ORDERS],
        ["history", ORDERS],
        ["tasks"],
        ["tombstones", ORDERS],
        ["audit", ORDERS],
        ["preview", ORDERS],
    ):
        answer = shell(*command)
        assert answer.code == 0
        assert answer.out
        assert max(map(len, answer.out.splitlines())) <= 80
        assert answer.err == ""
        assert isinstance(shell(*command, "--json").json, (list, dict))
    assert shell("tables", "--names").out == f"{ORDERS}\n"
    assert shell("tables", "--names", "--json").json == [{"name": ORDERS}]
    [first] = shell("history", ORDERS, "--json").json
    assert (first["version"], first["operation"]) == (0, "CREATE TABLE")
    assert first["timestamp"].endswith("+00:00")


def test_a_table_that_cannot_be_read_does_not_hide_the_others(shell: Shell) -> None:
    shell.with_tables()
    (shell.warehouse / ORDERS.replace(".", "/") / "_delta_log" / f"{0:020}.json").write_text("{")
    listed = shell("tables")
    assert listed.code == 0
    assert NOTES in listed.out
    assert f"{ORDERS} cannot be read" in listed.out
    assert [("error" in table) for table in shell("tables", "--json").json] == [False, True]
    broken = shell("describe", ORDERS)
    assert broken.code == 5
    assert "log entry" in broken.error
    assert shell("drop", ORDERS, "--yes").code == 0
    assert shell("tables", "--names").out == f"{NOTES}\n"


def test_drop_asks_first(shell: Shell) -> None:
    shell.with_rows()
    assert "confirm with --yes" in shell("drop", ORDERS).error
    assert shell("drop", ORDERS, "--yes", "--json").json == {"table": ORDERS, "dropped": True, "rows": 3}
    assert shell("describe", ORDERS).code == 2


@pytest.mark.parametrize(("reply", "code", "left"), [("y\n", 0, 0), ("n\n", 1, 1)])
def test_an_answer_on_a_terminal_is_taken(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, reply: str, code: int, left: int
) -> None:
    shell.with_tables()
    monkeypatch.setattr("crannog.cli.arguments._somebody_is_there", lambda: True)
    answer = shell("drop", NOTES, stdin=reply)
    assert answer.code == code
    assert f"Drop {NOTES} with 0 rows? [y/N]" in answer.err
    assert len(shell("tables", "--json").json) == 1 + left


# --- rows ------------------------------------------------------------------------------------------------------


def test_rows_come_back_as_they_went_in(shell: Shell) -> None:
    shell.with_tables()
    assert shell("append", ORDERS, shell.file("rows.json", [ORDER])).out == f"1 row written to {ORDERS}, sequence 1.\n"
    [row] = shell("preview", ORDERS, "--json").json
    assert {name: row[name] for name in ORDER} == ORDER
    assert shell("preview", ORDERS, "--json", stdin="").out.count("_batch_id") == 1
    # What the command line prints, it also takes.
    back = [{name: value for name, value in row.items() if not name.startswith("_")}]
    assert shell("upsert", ORDERS, "-", stdin=json.dumps(back)).code == 0
    [same] = shell("preview", ORDERS, "--json").json
    assert {name: same[name] for name in ORDER} == ORDER
    people = shell("preview", ORDERS)
    assert "12.30" in people.out
    assert "_batch_id" not in people.out
    assert "_batch_id" in shell("preview", ORDERS, "--system").out
    assert max(map(len, people.out.splitlines())) <= 80


def test_a_batch_is_kept_once(shell: Shell) -> None:
    shell.with_tables()
    first = shell("upsert", ORDERS, shell.file("r.json", [ORDER]), "--batch-id", "b-1", "--json").json
    again = shell("upsert", ORDERS, shell.file("r.json", [ORDER]), "--batch-id", "b-1", "--json").json
    assert first == {"table": ORDERS, "sequence": 1, "rows": 1, "batch_id": "b-1", "duplicate": False}
    assert again == {**first, "duplicate": True}
    assert (
        shell("upsert", ORDERS, shell.file("r.json", [ORDER]), "--batch-id", "b-1").out
        == "Batch b-1 was already written, at sequence 1; nothing was added.\n"
    )


def test_deletes_hide_are_listed_and_show_raw(shell: Shell) -> None:
    shell.with_rows()
    deleted = shell("delete", ORDERS, "o-0", '"o-1"', "nobody", "--actor", "Ada", "--reason", "returned")
    assert deleted.out == f"3 keys deleted from {ORDERS}, sequence 2.\n"
    assert [row["order_id"] for row in shell("preview", ORDERS, "--json").json] == ["o-2"]
    assert sorted(row["order_id"] for row in shell("preview", ORDERS, "--raw", "--json").json) == ["o-0", "o-1", "o-2"]
    listed = shell("tombstones", ORDERS, "--json").json
    assert [(entry["key"]["order_id"], entry["outcome"]) for entry in listed] == [
        ("o-0", "hidden"),
        ("o-1", "hidden"),
        ("nobody", "not there"),
    ]
    assert {(entry["actor"], entry["reason"]) for entry in listed} == {("Ada", "returned")}
    assert "not there" in shell("tombstones", ORDERS).out


SIMPLE = pa.schema(
    [
        ("s", pa.string()),
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
    ]
)
EXACT = pa.schema([*SIMPLE, ("m", pa.decimal128(20, 10)), ("x", pa.binary()), ("l", pa.list_(pa.int64()))])


def kept(path: Path, schema: pa.Schema, form: str | None = None) -> list[dict[str, Any]]:
    """What a table keeps of a file."""
    from crannog.engine.rows import to_arrow

    return list(to_arrow(read_rows(str(path), form, schema), schema, table="a.b.c", verb="append").to_pylist())


@pytest.mark.parametrize("schema", [SIMPLE, EXACT], ids=["by Arrow", "by value"])
def test_every_format_gives_the_same_rows(tmp_path: Path, schema: pa.Schema) -> None:
    rows = [
        {
            "s": 'a,"b"\n\u2028c',
            "i": 2**62,
            "f": 0.1,
            "b": True,
            "d": "2026-01-31",
            "t": "2026-01-31T10:00:00.123456Z",
            "m": "1234567890.0123456789",
            "x": "AP8=",
            "l": [1, None],
        },
        {
            "s": "",
            "i": -1,
            "f": -1e300,
            "b": False,
            "d": "0001-01-01",
            "t": "2026-01-31T10:00:00+02:00",
            "m": "0",
            "x": "",
            "l": [],
        },
        dict.fromkeys(EXACT.names),
    ]
    rows = [{name: row[name] for name in schema.names} for row in rows]
    (tmp_path / "array.json").write_text(json.dumps(rows))
    (tmp_path / "lines.json").write_text("\n\n".join(map(json.dumps, rows)))
    (tmp_path / "lines.jsonl").write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n")
    with (tmp_path / "rows.csv").open("w", encoding="utf-8-sig") as file:
        file.write(",".join(schema.names) + "\n")
        for row in rows:
            cells = [
                ""
                if v is None
                else str(v).lower()
                if isinstance(v, bool)
                else json.dumps(v)
                if isinstance(v, list)
                else str(v)
                for v in row.values()
            ]
            quoted = [
                '"' + cell.replace('"', '""') + '"' if cell or row[name] == "" else ""
                for name, cell in zip(row, cells, strict=True)
            ]
            file.write(",".join(quoted) + "\n")
    first = kept(tmp_path / "array.json", schema)
    assert first[0]["i"] == 2**62
    assert first[1]["s"] == ""
    assert set(first[2].values()) == {None}
    for name in ("lines.json", "lines.jsonl", "rows.csv"):
        assert kept(tmp_path / name, schema) == first, name


def test_numbers_of_a_decimal_column_keep_every_digit(tmp_path: Path) -> None:
    schema = pa.schema([("m", pa.decimal128(38, 18)), ("f", pa.float64())])
    (tmp_path / "r.json").write_text('{"m": 12345678901234567890.000000000000000001, "f": 0.5}')
    [row] = kept(tmp_path / "r.json", schema)
    assert str(row["m"]) == "12345678901234567890.000000000000000001"
    assert row["f"] == 0.5


def test_times_without_a_zone_are_utc_in_every_format(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.timestamp("us", "UTC"))])
    (tmp_path / "r.csv").write_text("t\n2026-01-31 10:00:00\n")
    (tmp_path / "r.ndjson").write_text('{"t": "2026-01-31T10:00:00"}\n')
    assert kept(tmp_path / "r.csv", schema) == kept(tmp_path / "r.ndjson", schema)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("r.json", "[{]", "not valid JSON: Expecting property name enclosed in double quotes in line 1, column 3"),
        ("r.json", "[" * 100_000, "not valid JSON"),
        ("r.json", '[{"order_id": "a"}, 5]', "row 1 (counting from 0): 5 is int, a row is a dict"),
        ("r.json", '{"order_id": "a"}\n{"order_id": ', "in line 2, column"),
        ("r.ndjson", '{"order_id": "a"}\n\nnope\n', "in line 3, column 1"),
        ("r.json", b'[{"order_id": "\xff"}]', "not UTF-8 text: byte 15 is 0xff"),
        ("r.json", [{"order_id": "a", "quantity": 1.5}], "row 0 (counting from 0), column quantity: 1.5 is float"),
        ("r.json", [{"order_id": "a"}, {"order_id": None}], "row 1 (counting from 0), column order_id"),
        ("r.json", [{"order_id": "a", "seal": "no base64!"}], "column seal: 'no base64!' is str, the column is binary"),
        ("r.json", [{"order_id": "a", "what": 1}], "column what: 1 has no place"),
        ("r.csv", "", "is empty: a CSV file starts with a line of column names"),
        ("r.csv", "order_id,quantity\na\n", "not valid CSV: CSV parse error: Expected 2 columns, got 1"),
        ("r.csv", "order_id,quantity\na,1\nb,x\n", "row 1 (counting from 0), column quantity: 'x' is str"),
        ("r.csv", "order_id,lines\na,nope\n", "row 0 (counting from 0), column lines: 'nope' is str"),
        ("r.csv", "order_id,what\na,1\n", "the batch has what, the table has no such column"),
        ("r.csv", "order_id,order_id\na,b\n", "the batch has column order_id twice"),
        ("r.txt", "order_id\na\n", "cannot tell the format of"),
    ],
)
def test_bad_rows_are_refused_whole_with_their_place(shell: Shell, name: str, content: Any, words: str) -> None:
    shell.with_tables()
    refused = shell("append", ORDERS, shell.file(name, content))
    assert refused.code == 2
    assert words in refused.error
    assert shell("preview", ORDERS, "--json").json == []


def test_an_empty_file_keeps_nothing(shell: Shell) -> None:
    shell.with_tables()
    assert shell("append", ORDERS, "-").out == f"0 rows written to {ORDERS}, sequence 0.\n"
    assert shell("append", ORDERS, shell.file("r.csv", "order_id\n")).code == 0


# --- keys ------------------------------------------------------------------------------------------------------

KEYS = pa.schema(
    [
        ("s", pa.string()),
        ("i", pa.int64()),
        ("d", pa.date32()),
        ("m", pa.decimal128(10, 2)),
        ("x", pa.binary()),
        ("b", pa.bool_()),
    ]
)


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("s", "plain", "plain"),
        ("s", '"quoted"', "quoted"),
        ("s", "123", "123"),
        ("s", "{not json", "{not json"),
        ("s", '{"s": "a"}', {"s": "a"}),
        ("i", "-5", -5),
        ("i", "five", "five"),
        ("d", "2026-01-31", "2026-01-31"),
        ("x", "AP8=", b"\x00\xff"),
        ("x", "1234", base64.b64decode("1234")),
        ("b", "true", True),
    ],
)
def test_keys_are_read_as_their_column_says(column: str, text: str, value: Any) -> None:
    assert parse_keys([text], KEYS, [column]) == [value]


def test_decimal_keys_keep_their_digits() -> None:
    [key] = parse_keys(["1.10"], KEYS, ["m"])
    assert str(key) == "1.10"


def test_keys_of_several_columns_are_objects(shell: Shell) -> None:
    shell("create", ORDERS, "--schema", shell.file("s.json", ORDER_SCHEMA), "--key", "order_id, due")
    shell("append", ORDERS, "-", stdin=json.dumps([ORDER]))
    refused = shell("delete", ORDERS, "o-1")
    assert refused.code == 2
    assert """like '{"order_id": "…", "due": "…"}', got 'o-1'""" in refused.error
    assert shell("delete", ORDERS, '{"order_id": "o-1", "due": "2026-02-28"}').code == 0
    assert shell("preview", ORDERS, "--json").json == []


# --- upkeep, by Spark ------------------------------------------------------------------------------------------


def test_upkeep_reports_what_it_did(shell: Shell, spark: SparkRuntime) -> None:
    shell.with_rows(20)
    planned = shell("compact", ORDERS, "--dry-run", "--json").json
    assert planned["plan"] == ["fold 1 staged changes of 20 rows"]
    folded = shell("fold", ORDERS, "--json").json
    assert (folded["table"], folded["version"], folded["final_rows"]) == (ORDERS, 1, 20)
    assert "has no staged changes" in shell("fold", ORDERS).out
    shell("delete", ORDERS, "o-0", "--actor", "Ada")
    compacted = shell("compact", ORDERS, "--json").json
    assert (compacted["tombstones_applied"], compacted["rows_dropped_by_tombstones"], compacted["final_rows"]) == (
        1,
        1,
        19,
    )
    [done] = shell("audit", ORDERS, "--json").json
    assert (done["actor"], done["outcome"], len(done["key_hash"])) == ("Ada", "hidden", 64)
    assert "Ada" in shell("audit", ORDERS).out
    [task] = shell("tasks", "--json").json
    assert task["task_name"] == f"vacuum-after-compact:{ORDERS}"
    assert task["last_result"]["files_deleted"] == 0
    assert "vacuum-after-compact" in shell("tasks").out
    wider = {**ORDER_SCHEMA, "properties": {**ORDER_SCHEMA["properties"], "note": {"type": "string"}}}  # type: ignore[dict-item]
    assert shell("evolve", ORDERS, "--schema", shell.file("wider.json", wider), "--json").json["added"] == [
        "column note (string) is new"
    ]
    assert "already" in shell("evolve", ORDERS, "--schema", shell.file("wider.json", wider)).out
    receipt = shell("erase", ORDERS, "o-1", "--yes", "--reason", "requested", "--json").json
    assert receipt["rows_erased"] == 1
    assert not any(place["after"] for place in receipt["places"])
    assert [entry["operation"] for entry in shell("history", ORDERS, "--json").json] == [
        "FOLD",
        "EVOLVE",
        "FOLD",
        "FOLD",
        "CREATE TABLE",
    ]
    assert "EVOLVE" in shell("history", ORDERS, "-n", "2").out
    expired = shell("expire", ORDERS, "--before", "2100-01-01", "--json").json
    assert (expired["rows_dropped"], expired["rows_kept"], expired["before"]) == (18, 0, "2100-01-01")
    vacuumed = shell("vacuum", ORDERS, "--retention-hours", "0", "--dry-run", "--json").json
    assert (vacuumed["raised_to_floor"], vacuumed["dry_run"], vacuumed["files_deleted"]) == (True, True, 0)
    assert shell("vacuum", ORDERS, "--retention-hours", "0", "--force", "--json").json["files_deleted"] > 0


@pytest.mark.slow
def test_upkeep_reads_well(shell: Shell, spark: SparkRuntime) -> None:
    shell.with_rows()
    shell("delete", ORDERS, "o-0")
    for command in (
        ("compact", ORDERS, "--dry-run"),
        ("fold", ORDERS),
        ("compact", ORDERS),
        ("vacuum", ORDERS, "--retention-hours", "0"),
        ("erase", ORDERS, "o-1", "--yes"),
        ("expire", ORDERS, "--before", "2000-01-01"),
        ("tasks",),
    ):
        answer = shell(*command)
        assert answer.code == 0, answer.err
        assert command[0] == "tasks" or ORDERS in answer.out
        assert max(map(len, answer.out.splitlines())) <= 80
        assert answer.err == ""


def test_a_job_that_is_taken_back_leaves_the_table_as_it_was(
    shell: Shell, spark: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crannog.engine.maintenance.job import Job

    shell.with_rows()
    spark.session()
    real = Job.step
    # Whoever runs the tests in the background lets them ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted(job: Job, name: str, share: float) -> None:
        if "Spark" in name:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)
        real(job, name, share)

    monkeypatch.setattr(Job, "step", interrupted)
    try:
        taken = shell("fold", ORDERS)
        assert taken.code == 1
        assert "cancelled before it committed" in taken.error
        assert shell("describe", ORDERS, "--json").json["version"] == 0
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


# --- what goes wrong -------------------------------------------------------------------------------------------

NOWHERE = ("there is no table a.b.c; list the tables to see which exist", 2)
READING = ("describe", "history", "preview", "tombstones", "audit", "fold", "compact", "vacuum")


@pytest.mark.parametrize(
    "command",
    [
        ("tables",),
        ("tasks",),
        *[(name, "a.b.c") for name in READING],
        ("append", "a.b.c", "-"),
        ("delete", "a.b.c", "k"),
        ("drop", "a.b.c", "--yes"),
    ],
    ids=lambda c: c[0],
)
def test_a_warehouse_that_is_not_there_is_told_and_not_made(shell: Shell, command: tuple[str, ...]) -> None:
    missing = shell(*command)
    assert missing.code == 2
    assert "there is no warehouse at" in missing.error
    assert not shell.warehouse.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        *[((name, "a.b.c"), 2, NOWHERE[0]) for name in READING],
        (("append", "a.b.c", "-"), 2, NOWHERE[0]),
        (("upsert", "a.b.c", "-"), 2, NOWHERE[0]),
        (("delete", "a.b.c", "k"), 2, NOWHERE[0]),
        (("erase", "a.b.c", "k", "--yes"), 2, NOWHERE[0]),
        (("expire", "a.b.c", "--before", "2026-01-01"), 2, NOWHERE[0]),
        (("drop", "a.b.c", "--yes"), 2, NOWHERE[0]),
        (("describe", "orders"), 2, "give three, like catalog.schema.table"),
        (("describe", "a.b/c.d"), 2, "may hold letters, digits"),
        (("append", ORDERS, "missing.csv"), 2, "cannot read missing.csv: No such file or directory"),
        (("append", ORDERS, "-", "--format", "xml"), 2, "the format must be one of json, ndjson, csv, got 'xml'"),
        (("append", ORDERS, "-", "--batch-id", ""), 2, "a batch id is text of 1 to 256 characters"),
        (("upsert", NOTES, "-"), 2, "it has no key; append to it, or create it with a key"),
        (("delete", NOTES, "k"), 2, "it has no key, so there is nothing to delete by"),
        (("erase", NOTES, "k"), 2, "it has no key; give the columns to erase by"),
        (("erase", ORDERS, "k"), 2, "without a terminal; confirm with --yes"),
        (("expire", ORDERS, "--before", "soon"), 2, "a day must be written as YYYY-MM-DD, like 2026-01-31, got 'soon'"),
        (("expire", ORDERS, "--before", "2026-01-01", "--column", "what"), 2, "it has no such column"),
        (("vacuum", ORDERS, "--retention-hours", "-1"), 2, "retention_hours is a number from 0"),
        (("create", "a.b.c", "--schema", "missing.json"), 2, "cannot read missing.json"),
        (("create", "a.b.c", "--schema", "-"), 2, "standard input is not valid JSON"),
        (("create", ORDERS, "--schema", "order.json", "--key", "order_id"), 3, "set if_exists to ok to use it"),
        (("create", ORDERS, "--schema", "note.json"), 3, "exists with another definition"),
        (("create", ORDERS, "--schema", "order.json", "--if-exists", "replace"), 2, 'if_exists is "error" or "ok"'),
        (("create", "a.b.c", "--schema", "order.json", "--key", "what"), 2, "what"),
        (("evolve", ORDERS, "--schema", "note.json"), 2, "order_id"),
        (("--server", "http://127.0.0.1:1", "tables"), 2, "give --warehouse or --server, not both"),
        (("demo",), 2, "the demo uses a warehouse of its own"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_what_is_wrong_is_one_line_and_an_exit_code(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, words: str
) -> None:
    shell.with_tables()
    monkeypatch.chdir(shell.folder)
    wrong = shell(*arguments)
    assert wrong.code == code
    assert words in wrong.error
    assert wrong.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe",),
        ("preview", ORDERS, "-n", "0"),
        ("preview", ORDERS, "-n", "many"),
        ("frobnicate",),
        ("vacuum", ORDERS, "--retention-hours", "x"),
        ("create", ORDERS),
    ],
)
def test_a_command_that_cannot_be_read_is_told(shell: Shell, arguments: tuple[str, ...]) -> None:
    wrong = shell(*arguments)
    assert wrong.code == 2
    assert "Error" in wrong.err
    assert "Traceback" not in wrong.err
    assert wrong.out == ""


def test_a_full_stage_is_exit_code_4(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.with_tables()
    monkeypatch.setenv("CRANNOG_STAGED_ROWS_LIMIT", "2")
    full = shell("append", NOTES, "-", stdin='[{"text": "a"}, {"text": "b"}, {"text": "c"}]')
    assert full.code == 4
    assert "fold the table, or try again" in full.error


@pytest.mark.parametrize("width", [50, 80])
def test_a_bar_is_not_cut_where_its_words_are_long(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    for name, value in {"COLUMNS": str(width), "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr", terminal)
    with bar(ORDERS) as progress:
        progress("load 101 of 202 MiB, 1,250,000 rows/s", 0.75)
    frames = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in re.split(r"[\r\n]+", terminal.getvalue())]
    shown_at_75 = [frame for frame in frames if "75 %" in frame]
    assert shown_at_75
    for frame in shown_at_75:
        assert len(frame) == width
        assert re.fullmatch(rf". {ORDERS}: load.* ━{{9}}\S━{{2}}  75 % \d:\d\d:\d\d", frame), frame


def test_settings_that_are_wrong_are_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRANNOG_PORT", "many")
    assert "setting port" in shell("tables").error
    monkeypatch.delenv("CRANNOG_PORT")
    monkeypatch.chdir(shell.folder)
    for content in ("port = = 1", b"\xff = 1"):
        shell.file("crannog.toml", content)
        wrong = shell("tables")
        assert (wrong.code, "cannot read the settings in" in wrong.error) == (2, True)


def test_a_server_that_is_not_there_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["crannog", "--server", "http://127.0.0.1:1", "tables"])
    with pytest.raises(SystemExit) as ended:
        cli.run()
    assert ended.value.code == 5
    assert "no server responds at http://127.0.0.1:1" in capsys.readouterr().err


def test_the_demo_leaves_a_folder_alone_that_is_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("")
    monkeypatch.setattr("sys.argv", ["crannog", "demo", "--keep", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        cli.run()
    assert ended.value.code == 2
    assert "give --keep a new folder" in capsys.readouterr().err


def test_every_command_explains_itself(shell: Shell) -> None:
    listed = shell("--help").out
    for command in cli.app.registered_commands:
        name = command.name or command.callback.__name__  # type: ignore[union-attr]
        assert f" {name} " in listed
        shown_help = shell(name, "--help")
        assert shown_help.code == 0
        text = command.help or command.callback.__doc__ or ""  # type: ignore[union-attr]
        assert text.split(".")[0].split(":")[0].split()[0] in shown_help.out


# --- values ----------------------------------------------------------------------------------------------------


def test_values_are_plain_in_json_and_short_in_cells() -> None:
    import datetime as dt
    from decimal import Decimal

    instant = dt.datetime(2026, 1, 31, 10, 0, 0, 250_000, tzinfo=dt.UTC)
    values = {
        "t": instant,
        "d": instant.date(),
        "b": b"\x00\xff",
        "m": Decimal("0E-18"),
        "n": float("nan"),
        "i": float("-inf"),
        "l": ({1: b""},),
        "o": object,
    }
    made = to_plain_json(values)
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert made == {
        "t": "2026-01-31T10:00:00.250000+00:00",
        "d": "2026-01-31",
        "b": "AP8=",
        "m": "0.000000000000000000",
        "n": "nan",
        "i": "-inf",
        "l": [{"1": ""}],
        "o": "<class 'object'>",
    }
    assert [shown(value) for value in (None, True, "a\nb", instant, [1], "x" * 300)] == [
        "–",
        "yes",
        "a b",
        "2026-01-31 10:00:00.25",
        "[1]",
        "x" * 199 + "…",
    ]
    assert [moment(instant), of_bytes(0), of_bytes(1536), of_bytes(5 * 1024**4)] == [
        "2026-01-31 10:00:00.25",
        "0 B",
        "1.5 KiB",
        "5,120.0 GiB",
    ]
    assert [counted(1, "row"), counted(2_000, "row"), counted(2, "key")] == ["1 row", "2,000 rows", "2 keys"]
    assert [ago(dt.timedelta(seconds=s)) for s in (-5, 5, 120, 7_200, 200_000)] == ["0 s", "5 s", "2 min", "2 h", "2 d"]


@pytest.mark.parametrize("loaded", [False, True])
def test_pandas_is_left_out_only_of_the_program(loaded: bool) -> None:
    before = "import pyarrow; " if loaded else ""
    program = f"import sys; {before}from crannog.cli.main import leave_out_what_is_slow; leave_out_what_is_slow(); import pyarrow as pa; pa.array([1]); print('pandas' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert found == str(loaded)
