"""`crannog load` as its users meet it: what it prints, what it reads, how it ends."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crannog.embedded import EmbeddedTable as Table
from crannog.tables import load_write as write
from test_cli import Shell, run

NAME = "shop.eu.visits"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def test_a_file_is_loaded_told_and_not_loaded_twice(shell: Shell) -> None:
    path = shell.file("v.csv", "id,Page Name,at\n1,home,2026-01-01T00:00:00Z\n2,shop,2026-01-02T00:00:00Z\n")
    missing = shell("load", path, NAME, "--create", "--dry-run")
    assert (missing.code, shell.warehouse.exists()) == (0, False)
    assert "would be created, and 2 rows would be loaded" in " ".join(missing.out.split())
    made = shell("load", path, NAME, "--create", "--key", "id")
    assert made.code == 0
    for text in (
        "2 rows loaded into shop.eu.visits, which was created.",
        "bigint",
        "timestamp",
        "Page Name     Page_Name",
        "rows/s",
    ):
        assert text in made.out
    again = shell("load", path, NAME)
    assert again.code == 0
    assert "loaded into shop.eu.visits before; nothing was added. Use --again to load again." in " ".join(
        again.out.split()
    )
    assert shell("preview", NAME, "--json").json[0]["Page_Name"] == "home"
    report = shell("load", path, NAME, "--again", "--json").json
    assert (report["rows"], report["duplicate"], report["files"][0]["format"], report["batches"]) == (
        2,
        False,
        "csv",
        1,
    )
    assert shell("load", path, NAME, "--json").json["duplicate"] is True


def test_standard_input_and_many_files(shell: Shell) -> None:
    piped = shell("load", "-", NAME, "--create", "--format", "csv", stdin=gzip.compress(b"a,b\n1,x\n"))
    assert "1 row loaded" in piped.out
    for number in range(3):
        shell.file(f"f{number}.ndjson", f'{{"a":{number + 10},"b":"y"}}\n')
    report = shell("load", str(shell.folder / "f*.ndjson"), NAME)
    assert "3 rows loaded" in report.out
    assert "f2.ndjson" in report.out.replace("\n", "")
    assert shell("tables", "--json").json[0]["rows"] == 4
    assert shell("load", "-", NAME, stdin=b'[{"a": 5}]').code == 0


def test_every_refusal_has_its_exit_code_and_speaks_of_flags(shell: Shell) -> None:
    path = shell.file("v.csv", "a,b\n1,x\n2\n")
    good = shell.file("g.csv", "a,b\n1,x\n")
    assert shell("load", good, NAME, "--create").code == 0
    wide = shell.file("w.csv", "a,b,c\n1,x,2\n")
    for arguments, code, message in (
        (("load", NAME), 2, "crannog load FILE... NAME"),
        (("load", good, "shop.eu.other"), 2, "set the option create to make it from the files"),
        (("load", "no*.csv", NAME), 2, "no file matches no*.csv"),
        (("load", path, NAME), 2, "Set the option reject to a file to put them aside"),
        (("load", wide, NAME), 2, "set the option evolve to add them, or ignore_extra to leave them out"),
        (("load", good, NAME, "--mode", "upsert"), 2, "create it with a key"),
        (("load", good, NAME, "--create", "--key", "a"), 3, "its key is []"),
        (("load", shell.file("x.dat", "??"), NAME), 2, "set the format to csv, json, ndjson or parquet"),
    ):
        answer = shell(*arguments)
        assert (answer.code, message in answer.error) == (code, True), answer
    bad = shell("load", path, NAME, "--reject", str(shell.folder / "bad.ndjson"))
    assert bad.code == 0
    assert "the row has 1 value, the first line" in " ".join(bad.out.split())
    assert json.loads((shell.folder / "bad.ndjson").read_text())["line"] == 3
    drift = shell("load", wide, NAME, "--evolve")
    assert "added, nullable" in drift.out


def test_an_interrupt_says_what_was_kept_and_how_to_go_on(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "BATCH_ROWS", 10)
    path = shell.file("v.csv", "a\n" + "".join(f"{n}\n" for n in range(50)))
    real, calls = Table.append, []

    def interrupted(self: Table, rows: Any, batch_id: str | None = None) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, rows, batch_id)

    monkeypatch.setattr(Table, "append", interrupted)
    stopped = shell("load", path, NAME, "--create")
    assert stopped.code == 1
    assert (
        stopped.error
        == "crannog: stopped: 20 rows were kept before it stopped; load the same files again to go on: nothing is kept twice"
    )
    report = shell("load", path, NAME, "--create", "--json").json
    assert (report["rows"], report["duplicate_rows"]) == (30, 20)


def test_a_pipe_is_loaded_by_the_program_itself(tmp_path: Path) -> None:
    """In processes of their own: standard input, and no bar where nobody looks."""
    done = run("load", "-", NAME, "--create", "--format", "ndjson", cwd=tmp_path, stdin='{"a":1}\n')
    assert (done.code, done.err) == (0, "")
    assert "1 row loaded" in done.out


def test_loading_needs_no_engine_so_that_a_client_can_do_it() -> None:
    program = "import sys, crannog.tables.load; print(sorted({'pyspark', 'duckdb', 'deltalake', 'obstore'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
