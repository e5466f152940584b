"""Loading files through a real server: the same reports, rows and errors as on the warehouse itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import crannog
from crannog.api.lake import Lake
from crannog.api.reports import Drift
from crannog.errors import BadRows, CallerError, Conflict, CrannogError, NotFound, SchemaMismatch
from lakes import SYSTEM
from loads import put
from servers import Server, server
from test_cli import run

__all__ = ["server"]
NAME = "shop.eu.visits"
VISITS = 'id,n,page\n1,10,home\n2,x,cart\n3,30\n4,40,"two\nlines"\n'
REPORTS = ("dry run", "loaded", "again", "key", "drift")


def outcomes(lake: Lake, folder: Path) -> dict[str, Any]:
    """Load files into a lake, one way after the other; return each report, and each refusal, without what was measured."""
    folder.mkdir()
    visits, wide = put(folder, "visits.csv", VISITS), put(folder, "wide.csv", "id,n,page,who\n5,50,home,Ada\n")
    good = put(folder, "good.ndjson", '{"id": 1, "n": 11}\n{"id": 6, "n": 60}\n')
    rejects = str(folder / "bad.ndjson")
    lake.create_table(
        NAME,
        {
            "properties": {"id": {"type": "integer"}, "n": {"type": "integer"}, "page": {"type": "string"}},
            "required": ["id"],
        },
        key=["id"],
    )
    found: dict[str, Any] = {}

    def load(what: str, *files: str, **options: Any) -> None:
        try:
            found[what] = lake.load(files, options.pop("into", NAME), **options)
        except CrannogError as error:
            found[what] = (type(error), error.message.replace(str(folder), "FOLDER"))

    load("bad", visits)
    load("dry run", visits, reject=rejects, dry_run=True)
    found["written by the dry run"] = ((folder / "bad.ndjson").exists(), lake.table(NAME).count())
    load("loaded", visits, reject=rejects)
    load("again", visits, reject=rejects)
    load("key", good, mode="upsert")
    load("wider", wide)
    load("drift", wide, evolve=True)
    load("other key", good, key="n")
    load("missing", good, into="shop.eu.other")
    load("no file", str(folder / "no*.csv"))
    return found


@pytest.fixture(scope="module")
def both(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, Any], Path]]:
    """What both ways told, and where their files are."""
    here, there = tmp_path_factory.mktemp("embedded"), tmp_path_factory.mktemp("remote")
    with crannog.connect(str(here / "warehouse")) as embedded, crannog.connect(server.url) as remote:
        return {
            "embedded": (outcomes(embedded, here / "files"), here / "files"),
            "remote": (outcomes(remote, there / "files"), there / "files"),
        }


def plain(report: Any, folder: Path) -> Any:
    if isinstance(report, tuple):
        return report
    whole = {name: value for name, value in report.as_dict().items() if name not in ("seconds", "rows_per_s")}
    return json.loads(json.dumps(whole, default=str).replace(str(folder), "FOLDER"))


def test_the_reports_are_those_of_an_embedded_lake(both: dict[str, tuple[dict[str, Any], Path]]) -> None:
    [(embedded, here), (remote, there)] = both.values()
    assert list(embedded) == list(remote)
    for what in embedded:
        assert plain(remote[what], there) == plain(embedded[what], here), what


def test_what_each_report_says(both: dict[str, tuple[dict[str, Any], Path]]) -> None:
    found, folder = both["remote"]
    counts = {
        what: (found[what].rows, found[what].bad_rows, found[what].duplicate_rows, found[what].duplicate)
        for what in REPORTS
    }
    assert counts == {
        "dry run": (2, 2, 0, False),
        "loaded": (2, 2, 0, False),
        "again": (0, 2, 2, True),
        "key": (2, 0, 0, False),
        "drift": (1, 0, 0, False),
    }
    assert found["written by the dry run"] == (False, 0)
    assert found["drift"].drift == (Drift("who", "added", "", "string", "added, nullable"),)
    assert [(bad.line, bad.column, bad.value) for bad in found["loaded"].first_bad] == [(3, "n", "x"), (4, "", "3,30")]
    rejected = [json.loads(line) for line in (folder / "bad.ndjson").read_text().splitlines()]
    assert [(entry["line"], entry["row"]) for entry in rejected] == [
        (3, {"id": "2", "n": "x", "page": "cart"}),
        (4, "3,30"),
    ]


@pytest.mark.parametrize(
    ("what", "kind", "words"),
    [
        ("bad", BadRows, "2 bad rows; nothing was kept: FOLDER/visits.csv, line 3, column n: x"),
        ("wider", SchemaMismatch, "who"),
        ("other key", Conflict, "its key is ['id'], asked for ['n']"),
        ("missing", NotFound, "there is no table shop.eu.other"),
        ("no file", CallerError, "no file matches FOLDER/no*.csv"),
    ],
)
def test_refusals_are_told(
    both: dict[str, tuple[dict[str, Any], Path]], what: str, kind: type[CrannogError], words: str
) -> None:
    told_kind, message = both["remote"][0][what]
    assert issubclass(told_kind, kind)
    assert words in message


def test_the_rows_stand_in_the_warehouse(both: dict[str, tuple[dict[str, Any], Path]], server: Server) -> None:
    with crannog.connect(str(server.warehouse)) as behind:  # not asking the server
        kept = behind.table(NAME).to_arrow()
    rows = kept.drop_columns([column for column in kept.column_names if column in SYSTEM]).sort_by("id").to_pylist()
    assert rows == [
        {"id": 1, "n": 11, "page": None, "who": None},
        {"id": 4, "n": 40, "page": "two\nlines", "who": None},
        {"id": 5, "n": 50, "page": "home", "who": "Ada"},
        {"id": 6, "n": 60, "page": None, "who": None},
    ]


def test_the_command_goes_through_the_server_named_or_found(server: Server, tmp_path: Path) -> None:
    name = "shop.shell.visits"
    (tmp_path / "visits.csv").write_text(VISITS)
    options = ("--create", "--key", "id", "--types", "n=bigint", "--reject", "bad.ndjson", "--json")
    made = run("--server", server.url, "load", "visits.csv", name, *options, cwd=tmp_path)
    assert made.code == 0, made.err
    assert (made.json["rows"], made.json["bad_rows"], made.json["created"], made.json["key"]) == (2, 2, True, ["id"])
    assert len((tmp_path / "bad.ndjson").read_text().splitlines()) == 2
    before = writes(server, "duplicate")
    again = run("--warehouse", str(server.warehouse), "load", "visits.csv", name, "--max-bad", "2", cwd=tmp_path)
    assert again.code == 0, again.err
    assert f"loaded into {name} before; nothing was added" in " ".join(again.out.split())
    assert writes(server, "duplicate") == before + 1


def writes(server: Server, outcome: str) -> int:
    """How many batches came to this, by the server's own count."""
    with server.client() as client:
        figures = client.get("/metrics").text
    return sum(
        int(float(count))
        for count in re.findall(
            rf'^crannog_writes_total\{{[^}}]*outcome="{outcome}"[^}}]*\}} (\S+)$', figures, re.MULTILINE
        )
    )
