"""`crannog traces`: finds, shows, brings elsewhere and back; on a folder and through a server."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from crannog.cli.main import app
from crannog.cli.waterfall import bar, took
from crannog.embedded import EmbeddedLake
from crannog.errors import CallerError, CrannogError
from crannog.traces.ingest.decode import json_of_request, parse_otlp_json
from doors import serving_here
from otlp_samples import START, comparable, request_of, span, trace_id
from test_jaeger import CHECKOUT, MISSING, SHORT, fill

Crannog = Callable[..., Result]
DEEP = trace_id(5).hex()


@pytest.fixture(scope="module", params=["folder", "server"])
def crannog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crannog]:
    """Runs a command on a folder with traces, or through a server."""
    folder = tmp_path_factory.mktemp("cli")

    def run(*words: str, stdin: bytes | None = None) -> Result:
        result = CliRunner(env={"COLUMNS": "100"}).invoke(app, [*place, "traces", *words], input=stdin)
        if isinstance(result.exception, CrannogError):
            result.exit_code = result.exception.exit_code
        elif result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def filled(lake: EmbeddedLake) -> None:
        fill(lake)
        chain = [
            span(5, n, n - 1 if n > 1 else None, start=START + n * 10**6, took=10**8 - n * 10**6) for n in range(1, 41)
        ]
        lake.traces.write_otlp(request_of(*chain, service="deep").SerializeToString())

    if request.param == "folder":
        place = ["--warehouse", str(folder / "warehouse")]
        with EmbeddedLake(str(folder / "warehouse")) as lake:
            filled(lake)
        yield run
        return
    with serving_here(folder) as server:
        place = ["--server", server.url]
        filled(server.service.lake)
        yield run


def parsed(result: Result) -> Any:
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def test_a_search_lists_traces_newest_first(crannog: Crannog) -> None:
    lines = crannog("search", "--count").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == [SHORT, DEEP, CHECKOUT]
    assert "GET /checkout shop" in lines[3]
    assert lines[4] == "3 match."
    found = parsed(crannog("search", "--json", "-a", "card=visa", "-s", "shop"))
    assert [one["trace_id"] for one in found["traces"]] == [CHECKOUT]
    assert found["traces"][0]["services"] == ["bank/eu", "shop"]
    assert parsed(crannog("search", "--json", "-a", "http.status_code=50"))["traces"] == []
    assert [one["trace_id"] for one in parsed(crannog("search", "--json", "--errors"))["traces"]] == [CHECKOUT]
    assert crannog("search", "--start", "2h").stdout == "No traces match.\n"


def test_a_search_goes_on_where_a_page_ended(crannog: Crannog) -> None:
    first = crannog("search", "-n", "2").stdout
    [more] = re.findall(r"^More: --cursor (\S+)$", first, re.MULTILINE)  # in one line, however long
    second = crannog("search", "-n", "2", "--cursor", more).stdout
    assert CHECKOUT in second
    [back] = re.findall(r"^Back: --cursor (\S+)$", second, re.MULTILINE)
    assert [one["trace_id"] for one in parsed(crannog("search", "-n", "2", "--cursor", back, "--json"))["traces"]] == [
        SHORT,
        DEEP,
    ]


def test_a_search_lists_spans_if_asked(crannog: Crannog) -> None:
    found = parsed(crannog("search", "--spans", "-w", "kind = server and error", "--json"))
    assert [one["name"] for one in found["spans"]] == ["GET /checkout"]
    # What JSON cannot say is marked, so nothing is lost.
    assert found["spans"][0]["attributes"]["raw"] == {"$bytes": "AP8="}
    assert found["spans"][0]["attributes"]["odd"] == {"$double": "NaN"}
    assert "✗ GET /checkout shop" in crannog("search", "--spans", "-w", "error").stdout
    assert crannog("search", "--spans", "--errors").exit_code == 2


def test_a_trace_is_shown_as_a_waterfall(crannog: Crannog) -> None:
    lines = crannog("show", CHECKOUT).stdout.splitlines()
    assert lines[0] == f"trace {CHECKOUT}"
    assert "took 2 s" in lines[1]
    root, charge, debit, late, legend = lines[5:10]
    assert root.startswith("✗ GET /checkout shop █")
    assert root.endswith("2 s")
    assert charge.startswith("  charge shop ")
    assert debit.startswith("    debit bank/eu ")
    assert "░" in late
    assert late.startswith("? late shop")
    assert {len(line) for line in lines[5:9]} == {100}
    assert root.count("█") > 7 * charge.count("█") > 0
    assert "█ critical path" in legend
    assert "↺" not in legend


def test_a_trace_is_shown_with_what_its_spans_carry(crannog: Crannog) -> None:
    text = crannog("show", CHECKOUT, "--details").stdout
    for said in (
        "http.status_code  500",
        "status  ERROR card refused",
        'retry {"count": 2}',
        f"link  {SHORT}",
        "self time  1.75 s",
    ):
        assert said in text


def test_a_large_trace_is_shown_in_windows(crannog: Crannog) -> None:
    text = crannog("show", DEEP, "-n", "15").stdout
    assert "15 of 40 spans; continue with --offset 15" in " ".join(text.split())
    assert "op 15" in text
    assert "op 16" not in text
    assert "+1 op 14" in text  # deeper than there is room for
    view = parsed(crannog("show", DEEP, "--offset", "38", "--json"))
    assert [one["name"] for one in view["spans"]] == ["op 39", "op 40"]
    assert (view["next_offset"], view["total"], view["spans"][1]["depth"]) == (None, 40, 39)
    assert [
        one["name"]
        for one in parsed(crannog("show", DEEP, "--under", "0000000000000003", "--depth", "1", "--json"))["spans"]
    ] == ["op 3", "op 4"]


def test_names_figures_and_edges_are_listed(crannog: Crannog) -> None:
    assert crannog("services").stdout.split() == ["bank/eu", "deep", "shop"]
    assert parsed(crannog("services", "--json")) == ["bank/eu", "deep", "shop"]
    assert parsed(crannog("operations", "bank/eu", "--json")) == [{"operation": "debit", "kind": "SERVER"}]
    assert "debit      server" in crannog("operations", "bank/eu").stdout
    points = parsed(crannog("metrics", "-s", "shop", "--step", "1m", "--json"))
    assert [(one["count"], one["errors"]) for one in points] == [(3, 1), (1, 0)]
    assert points[0]["start"] == "2025-10-09T08:53:00+00:00"
    assert "33.3%" in crannog("metrics", "-s", "shop", "--step", "1m").stdout
    assert "bank/eu" in crannog("metrics", "--by", "service").stdout
    assert parsed(crannog("dependencies", "--json")) == [
        {"parent": "shop", "child": "bank/eu", "calls": 1, "errors": 0}
    ]
    assert "shop    bank/eu" in crannog("dependencies").stdout
    assert parsed(crannog("complete", "value", "v", "--key", "card", "--json")) == [{"value": "visa", "count": 1}]
    assert "service.name" in crannog("complete", "key", "service").stdout


def test_two_traces_are_compared(crannog: Crannog) -> None:
    found = parsed(crannog("compare", CHECKOUT, SHORT, "--json"))
    assert {one["change"] for one in found["changes"]} == {"added", "removed"}
    assert "GET /checkout / charge / debit" in crannog("compare", CHECKOUT, SHORT).stdout


@pytest.mark.parametrize("name", ["t.json", "t.pb", "t.pb.gz"])
def test_a_trace_goes_out_and_comes_back_the_same(crannog: Crannog, tmp_path: Path, name: str) -> None:
    file = tmp_path / name.removesuffix(".gz")
    assert crannog("export", CHECKOUT, "--output", str(file)).exit_code == 0
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress(file.read_bytes()))
    other = ["--warehouse", str(tmp_path / "other"), "traces"]
    done = CliRunner().invoke(app, [*other, "import", str(tmp_path / name), "--json"])
    assert json.loads(done.stdout) == {"accepted": 4, "rejected": 0, "duplicates": 0, "messages": []}
    again = CliRunner().invoke(app, [*other, "import", str(tmp_path / name)])
    assert again.stdout == "0 spans imported; 4 were already stored, 0 rejected.\n"
    back = CliRunner().invoke(app, [*other, "export", CHECKOUT])
    assert comparable(parse_otlp_json(back.stdout_bytes)) == comparable(
        parse_otlp_json(crannog("export", CHECKOUT).stdout_bytes)
    )


def test_lines_of_requests_and_zipkin_are_imported(crannog: Crannog, tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(json_of_request(request_of(span(number, 1), service="lines"))) for number in (61, 62))
    other = ["--warehouse", str(tmp_path / "other"), "traces", "import"]
    done = CliRunner().invoke(app, [*other, "-", "--json"], input=lines)
    assert json.loads(done.stdout)["accepted"] == 2
    zipkin = [
        {"traceId": trace_id(63).hex(), "id": "1", "name": "get", "timestamp": START // 1000},
        {"traceId": "00", "id": "1"},
    ]
    (tmp_path / "z.json").write_text(json.dumps(zipkin))
    done = CliRunner().invoke(app, [*other, str(tmp_path / "z.json"), "--format", "zipkin", "--json"])
    assert (json.loads(done.stdout)["accepted"], json.loads(done.stdout)["rejected"]) == (1, 1)
    assert "trace id" in json.loads(done.stdout)["messages"][0]


def test_lines_are_read_while_they_are_taken_and_a_wrong_one_is_told_with_its_place(tmp_path: Path) -> None:
    lines = [json.dumps(json_of_request(request_of(span(number, 1), service="lines"))) for number in (71, 72)]
    other = ["--warehouse", str(tmp_path / "other"), "traces", "import", str(tmp_path / "some.json.gz")]
    (tmp_path / "some.json.gz").write_bytes(gzip.compress("\n\n".join([*lines, "{broken"]).encode()))
    wrong = CliRunner().invoke(app, other)
    assert isinstance(wrong.exception, CallerError)
    assert "some.json.gz before this one are stored; correct the file and import it again" in wrong.exception.message
    # Packed files may follow one another; one that ends early is told, too.
    (tmp_path / "some.json.gz").write_bytes(gzip.compress(f"{lines[0]}\n".encode()) + gzip.compress(lines[1].encode()))
    assert CliRunner().invoke(app, other).stdout == "0 spans imported; 2 were already stored, 0 rejected.\n"
    (tmp_path / "some.json.gz").write_bytes(gzip.compress(lines[0].encode())[:-20])
    cut = CliRunner().invoke(app, other)
    assert isinstance(cut.exception, CallerError)
    assert "some.json.gz" in cut.exception.message


def test_an_erasure_tells_first_what_would_go_and_asks(crannog: Crannog) -> None:
    plan = parsed(crannog("erase", "--where", 'user = "u1"', "--dry-run", "--json"))
    assert plan == {"traces": 1, "spans": 4, "services": {"bank/eu": 1, "shop": 3}, "days": {"2025-10-09": 4}}
    assert "1 trace with 4 spans would be erased" in crannog("erase", CHECKOUT, "--dry-run").stdout
    assert crannog("erase", CHECKOUT).exit_code == 2  # nobody is there to ask
    assert crannog("show", CHECKOUT).exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "zz"), "a trace id must have 32 (or 16) hexadecimal digits"),
        (("show", MISSING), "not found: no span with this id"),
        (("show", CHECKOUT, "--under", "00000000000000ff"), "has no span"),
        (("search", "--order", "best"), "order must be one of"),
        (("search", "-w", "service ="), "at character 10"),
        (("search", "-w", "service =", "-a", "k=1"), "at character 10"),
        (("search", "-a", "novalue"), "key=value"),
        (("metrics", "--step", "soon"), "step must be a number"),
        (("search", "--timeout", "0"), "timeout_s is a number"),
        (("complete", "anything"), ""),
        (("export", MISSING), "not found: no span with this id"),
        (("import", "nowhere.json"), "there is no file"),
        (("expire", "--before", "soon"), "YYYY-MM-DD"),
        (("erase", "--dry-run"), "either trace_ids or where"),
    ],
)
def test_what_is_wrong_is_told_in_one_line_and_exit_code_2(crannog: Crannog, words: tuple[str, ...], said: str) -> None:
    result = crannog(*words)
    assert result.exit_code == 2
    assert isinstance(result.exception, CrannogError)
    assert said in result.exception.message
    assert "\n" not in result.exception.message


def test_bars_stay_in_their_room_and_are_never_empty() -> None:
    assert bar(0, 100, 0, 100, 50) == (0, 50)
    assert bar(50, 100, 0, 100, 50) == (25, 25)
    assert bar(100, 100, 0, 100, 50) == (49, 1)
    assert bar(0, 0, 0, 0, 10) == (0, 1)
    assert bar(99, 10**18, 0, 10**18, 10) == (0, 10)
    for start in range(0, 101, 7):
        for end in range(start, 101, 9):
            left, length = bar(start, end, 0, 100, 13)
            assert 0 <= left < 13
            assert 1 <= length <= 13 - left


def test_times_read_well() -> None:
    assert [took(ns) for ns in (0, 7, 1_500, 250_000_000, 2_000_001_999, 90 * 10**9, 600 * 10**9, 10**13)] == [
        "0 ns", "7 ns", "1.5 µs", "250 ms", "2 s", "90 s", "10 min", "2.78 h",
    ]  # fmt: skip
