"""The command line through a server: the same commands, the same output, and a server on the warehouse found by itself."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import crannog
from crannog.cli import main as cli
from servers import PROGRAM, Server, made_token, server, serving

__all__ = ["server"]
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "n": {"type": "integer"},
            "price": {"type": "decimal", "precision": 9, "scale": 2},
            "due": {"type": "string", "format": "date"},
        },
        "required": ["id"],
    }
)
ROWS = json.dumps([{"id": "a", "n": 1, "price": "1.50", "due": "2026-01-31"}, {"id": "b", "n": 2}, {"id": "c"}])


class Shell:
    """Runs commands in this process, with options before each."""

    def __init__(self, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str) -> None:
        self._patch, self._capsys, self._options = patch, capsys, options

    def __call__(self, *words: str) -> tuple[int, str, str]:
        self._patch.setattr(sys, "argv", ["crannog", *self._options, *words])
        self._patch.setenv("COLUMNS", "200")
        code = 0
        try:
            cli.run()
        except SystemExit as end:
            code = int(end.code or 0)
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def json(self, *words: str) -> Any:
        code, out, err = self(*words, "--json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a schema and rows."""
    (tmp_path / "schema.json").write_text(SCHEMA)
    (tmp_path / "rows.json").write_text(ROWS)
    (tmp_path / "bad.json").write_text('[{"id": 7}]')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what the program leaves out of its process out of the test's."""
    before = list(sys.meta_path)
    yield
    sys.meta_path[:] = before


COMMANDS: list[tuple[str, ...]] = [
    ("create", "shop.eu.NAME", "--schema", "schema.json", "--key", "id"),
    ("create", "shop.eu.NAME", "--schema", "schema.json", "--key", "id"),
    ("create", "shop.eu.NAME", "--schema", "schema.json", "--if-exists", "ok"),
    ("append", "shop.eu.NAME", "rows.json", "--batch-id", "one"),
    ("append", "shop.eu.NAME", "rows.json", "--batch-id", "one"),
    ("append", "shop.eu.NAME", "bad.json"),
    ("append", "shop.eu.NAME", "nowhere.json"),
    ("append", "shop.eu.nowhere", "rows.json"),
    ("upsert", "shop.eu.NAME", "rows.json", "--batch-id", "two"),
    ("describe", "shop.eu.NAME"),
    ("preview", "shop.eu.NAME", "-n", "2"),
    ("delete", "shop.eu.NAME", "c", "nobody", "--actor", "Ada", "--reason", "asked", "--batch-id", "three"),
    ("tombstones", "shop.eu.NAME"),
    ("audit", "shop.eu.NAME"),
    ("preview", "shop.eu.NAME", "--raw"),
    ("preview", "shop.eu.NAME", "--json"),
    ("history", "shop.eu.NAME"),
    ("sql", "select id, price, due from shop.eu.NAME order by id", "--csv"),
    ("sql", "select id, price, due from shop.eu.NAME order by id"),
    ("sql", "select nope from shop.eu.NAME"),
    ("sql", "drop table shop.eu.NAME"),
    ("sql", "select count(*) from shop.eu.NAME", "--explain"),
    ("sql", "select count(*) from shop.eu.NAME", "--engine", "abacus"),
    ("cache", "evict", "shop.eu.NAME"),
    ("cache", "evict", "shop.eu.nowhere"),
    ("compact", "shop.eu.NAME", "--dry-run"),
    ("vacuum", "shop.eu.NAME", "--dry-run"),
    ("erase", "shop.eu.NAME", "a"),
    ("load", "rows.json", "shop.eu.NAME", "--mode", "upsert"),
    ("drop", "shop.eu.NAME"),
    ("drop", "shop.eu.NAME", "--yes"),
    ("drop", "shop.eu.NAME", "--yes"),
    ("describe", "no-dots"),
]
_VOLATILE = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(\+00:00)?|[0-9a-f]{8}-[0-9a-f-]{27}|[\d,.]+ (ms|s|rows/s)\b|[\d.]+ K?i?B in memory"
)


def comparable(answer: tuple[int, str, str]) -> tuple[int, str, str]:
    """What a command said, without times and ids of its own."""
    code, out, err = answer
    return code, " ".join(_VOLATILE.sub("…", out).split()), _VOLATILE.sub("…", err)


@pytest.mark.usefixtures("quiet")
def test_every_command_says_the_same_through_a_server(
    server: Server, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    direct = Shell(monkeypatch, capsys, "--warehouse", str(files / "warehouse"))
    through = Shell(monkeypatch, capsys, "--server", server.url)
    for command in COMMANDS:
        words = [word.replace("NAME", "same") for word in command]
        expected, found = comparable(direct(*words)), comparable(through(*words))
        assert found == expected, command


@pytest.mark.usefixtures("quiet")
def test_json_has_the_same_shape_through_a_server(
    server: Server, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    direct = Shell(monkeypatch, capsys, "--warehouse", str(files / "warehouse"))
    through = Shell(monkeypatch, capsys, "--server", server.url)
    for shell in (direct, through):
        assert shell.json("create", "shop.eu.shape", "--schema", "schema.json", "--key", "id")["rows"] == 0
        assert shell.json("append", "shop.eu.shape", "rows.json", "--batch-id", "one") == {
            "table": "shop.eu.shape",
            "sequence": 1,
            "rows": 3,
            "batch_id": "one",
            "duplicate": False,
        }
    for words in (("tables",), ("describe", "shop.eu.shape"), ("cache", "stats"), ("history", "shop.eu.shape")):
        one, other = direct.json(*words), through.json(*words)
        if isinstance(one, list):
            one, other = (
                one[0] if one else {},
                next((entry for entry in other if entry.get("name") in (None, "shop.eu.shape")), {}),
            )
        assert set(one) == set(other), words
    assert isinstance(through.json("tasks"), list)
    assert through.json("cache", "pin", "shop.eu.shape")["rows"] == 3
    assert through.json("sql", "select count(*) as c from shop.eu.shape")["engine"] == "hot"
    assert "until it is evicted" in through("cache", "pin", "shop.eu.shape")[1]


def run(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **{f"CRANNOG_{name.upper()}": value for name, value in settings.items()}}
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, env=env, timeout=60)


@pytest.mark.usefixtures("quiet")
def test_the_server_and_the_token_may_be_settings(
    server: Server, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = Shell(monkeypatch, capsys)
    monkeypatch.setenv("CRANNOG_SERVER", server.url)
    assert plain("create", "shop.eu.settings", "--schema", "schema.json")[0] == 0
    assert plain("tables", "--names")[1].splitlines().count("shop.eu.settings") == 1
    # A warehouse that is named wins over a server that is set.
    code, _, err = Shell(monkeypatch, capsys, "--warehouse", str(files / "none"))("tables")
    assert code == 2
    assert "there is no warehouse at" in err
    monkeypatch.delenv("CRANNOG_SERVER")
    (files / "crannog.toml").write_text(f'server = "{server.url}"\ntoken = "unneeded"\n')
    assert "shop.eu.settings" in plain("tables", "--names")[1]
    assert Shell(monkeypatch, capsys, "--server", "http://127.0.0.1:1")("tables")[0] == 5
    assert Shell(monkeypatch, capsys, "--server", "ftp://x")("tables")[0] == 2
    assert Shell(monkeypatch, capsys, "--server", server.url, "--warehouse", "w")("tables")[0] == 2


@pytest.mark.usefixtures("quiet")
def test_a_server_on_the_warehouse_is_found_by_itself_and_only_while_it_runs(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse = files / "warehouse"
    shell = Shell(monkeypatch, capsys, "--warehouse", str(warehouse))
    assert shell("create", "shop.eu.found", "--schema", "schema.json", "--key", "id")[0] == 0
    with serving(warehouse) as running:
        with crannog.connect(running.url) as lake:
            assert shell.json("cache", "pin", "shop.eu.found")["state"]
            # Only in the server's memory can it still be held after the command.
            assert [held["name"] for held in lake.cache.stats()["tables"]] == ["shop.eu.found"]
            assert shell("append", "shop.eu.found", "rows.json")[0] == 0
            assert lake.table("shop.eu.found").count() == 3
            token = made_token(warehouse, "me", "admin")
            with pytest.raises(crannog.Unauthorized):
                for _ in range(10_000):  # the server looks at its tokens every now and then
                    lake.tables()
        # The server lets nobody in without a token: the folder does.
        assert shell.json("cache", "stats")["tables"] == []
        assert shell("append", "shop.eu.found", "rows.json")[0] == 0
        monkeypatch.setenv("CRANNOG_TOKEN", token)
        assert shell.json("sql", "select count(*) as c from shop.eu.found")["engine"] == "hot"
        monkeypatch.delenv("CRANNOG_TOKEN")
        with_token = Shell(monkeypatch, capsys, "--server", running.url, "--token", token)
        assert with_token("tables")[0] == 0
        assert Shell(monkeypatch, capsys, "--server", running.url)("tables")[0] == 2
        running.kill()
    assert (warehouse / "_crannog" / "server.lock").exists()
    assert shell.json("tables")[0]["rows"] == 3


def test_completion_is_offered_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    # Whose child this is tells the shell; a run of tests may have none above it.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    shown = run("--show-completion", "bash")
    assert "_CRANNOG_COMPLETE" in shown.stdout or "complete" in shown.stdout
    env = {**os.environ, "_CRANNOG_COMPLETE": "complete_bash", "COMP_WORDS": "crannog ta", "COMP_CWORD": "1"}
    found = subprocess.run([PROGRAM], capture_output=True, text=True, env=env, timeout=60)
    assert found.stdout.split() == ["tables", "tasks"]


def completed(words: str, program: tuple[str, ...] = (PROGRAM,)) -> tuple[list[str], str]:
    """What bash is offered for the last word, and what is said besides; it tears words at colons, and gives each a line."""
    torn = words.replace(":", " : ").split(" ")
    env = {
        **os.environ,
        "_CRANNOG_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(torn),
        "COMP_CWORD": str(len(torn) - 1),
    }
    found = subprocess.run(program, capture_output=True, text=True, env=env, timeout=60)
    return found.stdout.split(), found.stderr


def test_names_of_tables_are_completed(server: Server) -> None:
    with crannog.connect(server.url) as lake:
        for name in ("shop.done.a1", "shop.done.a2", "shop.done.b"):
            lake.create_table(name, json.loads(SCHEMA))
    both = ["shop.done.a1", "shop.done.a2"]
    assert completed(f"crannog --server {server.url} cache pin shop.done.a") == (both, "")
    assert completed(f"crannog --server {server.url} load rows.csv shop.done.a") == (both, "")
    assert completed(f"crannog --server {server.url} load shop.done.a") == ([], "")  # the shell completes files


def test_completion_is_silent_whatever_is_wrong(files: Path) -> None:
    assert completed("crannog --server http://127.0.0.1:1 describe s") == ([], "")
    (files / "crannog.toml").write_text("port = = 1")
    assert completed("crannog describe s") == ([], "")
    (files / "crannog.toml").unlink()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        impatient = "import sys; sys.argv = ['crannog']; from crannog.cli import arguments, main; arguments._COMPLETION_TIMEOUT_S = 0.3; main.run()"
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        assert completed(f"crannog --server {address} describe s", (sys.executable, "-c", impatient)) == ([], "")


@pytest.mark.parametrize("place", ["--server", "--warehouse"])
def test_a_light_command_loads_nothing_heavy(server: Server, files: Path, place: str) -> None:
    where = server.url if place == "--server" else str(files / "warehouse")
    prepared = run(place, where, "create", f"shop.eu.light{place[2]}", "--schema", "schema.json", "--if-exists", "ok")
    assert prepared.returncode == 0, prepared.stderr
    program = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr))\n"
        f"sys.argv = ['crannog', {place!r}, {where!r}, 'tables']\n"
        "from crannog.cli.main import run\nrun()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    loaded = set(json.loads(ran.stderr.strip().splitlines()[-1].replace("'", '"')))
    heavy = {"duckdb", "pyspark", "pandas", "numpy", "sqlglot", "polars", "fastapi", "pygments"}
    if place == "--server":
        heavy |= {"pyarrow", "deltalake", "pydantic_settings"}
    assert not loaded & heavy


@pytest.mark.usefixtures("quiet")
def test_builds_go_through_the_server_as_tables_do(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from crannog.builds import BuildEvent, BuildRequestEvent, BuildRequestStatus, open_log

    def keep(uri: str, *builds: str) -> None:
        with open_log(uri) as log:
            log.append_events(
                [BuildEvent(build, 0, build, BuildRequestEvent(BuildRequestStatus.RECEIVED)) for build in builds]
            )

    warehouse, other, third = files / "warehouse", f"sqlite:///{files}/other.db", f"sqlite:///{files}/third.db"
    keep(f"delta://{warehouse}", "in-folder")
    keep(third, "in-third")

    def seen(shell: Shell, *options: str) -> list[str]:
        return [build["build_request_id"] for build in shell.json("builds", *options, "list")["builds"]]

    plain, named = Shell(monkeypatch, capsys), Shell(monkeypatch, capsys, "--warehouse", str(warehouse))
    # Only through the server can a command find what is in the server's log.
    with serving(warehouse, build_log=other) as running:
        keep(running.url, "in-server")
        assert seen(named) == ["in-server"]  # it runs on the warehouse
        assert seen(plain) == ["in-server"]  # whose name is the default
        assert seen(Shell(monkeypatch, capsys, "--server", running.url)) == ["in-server"]
        assert seen(plain, "--log", third) == seen(named, "--log", third) == ["in-third"]
        monkeypatch.setenv("CRANNOG_SERVER", running.url)
        monkeypatch.chdir("/")  # no warehouse here
        assert seen(plain) == ["in-server"]
        assert plain.json("builds", "stats")["events"] == 1
        assert plain("builds", "--as-of", "0", "list")[1] == "There are no builds.\n"
        monkeypatch.setenv("CRANNOG_BUILD_LOG", third)
        assert seen(plain) == ["in-third"]
        assert seen(Shell(monkeypatch, capsys, "--server", running.url)) == ["in-server"]
        monkeypatch.delenv("CRANNOG_BUILD_LOG")
    assert plain("builds", "list")[0] == 5
    assert seen(named) == ["in-folder"]
    monkeypatch.delenv("CRANNOG_SERVER")
    code, _, err = plain("builds", "list")
    assert (code, "there is no warehouse at" in err) == (2, True)
