"""The documents say what is true: their examples run and print what the page shows, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crannog.settings import Settings, reference
from derived_stand_in import stand_in_for_all
from doc_examples import Page, examples_of, needs_spark

ROOT = Path(__file__).parents[2]
WRITTEN = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PAGES = [page for page in WRITTEN if any(example.runs for example in examples_of(page.read_text()))]
# What stands around the reader of a page whose examples are parts of a program.
AROUND = {
    "loading.md": """
import gzip, pathlib, crannog
lake = crannog.connect("warehouse")
pathlib.Path("visits.csv").write_text("id,page\\n1,home\\n2,cart\\n")
pathlib.Path("more.csv").write_text("id,page\\n3,home\\n")
pathlib.Path("logs").mkdir()
pathlib.Path("logs/1.ndjson.gz").write_bytes(gzip.compress(b'{"id": 1}'))
""",
}
# Spark takes half a minute for what these show, and other tests have it done by Spark.
WITHOUT_SPARK = {"traces-pipeline.md"}
NO_EXAMPLES = {
    "chaos.md",
    "pages.md",
    "security.md",
    "index.md",
    "glossary.md",
    "architecture.md",
    "changes.md",
    "speed.md",
    "settings.md",
    "clusters-and-buckets.md",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if page.name in WITHOUT_SPARK:
        stand_in_for_all(monkeypatch)
    elif needs_spark(page.read_text()):
        request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for port in ("PORT", "OTLP_HTTP_PORT", "OTLP_GRPC_PORT"):
        monkeypatch.setenv(f"CRANNOG_{port}", "0")  # others may use the usual ones on this machine
    running = Page(page, tmp_path)
    exec(AROUND.get(page.name, ""), running.names)
    assert running.run()


def test_every_block_is_run_or_says_why_not() -> None:
    blocks = [(page.name, example) for page in WRITTEN for example in examples_of(page.read_text())]
    assert len(blocks) > 50
    assert [f"{page}, line {example.line}" for page, example in blocks if example.is_forgotten] == []


@pytest.mark.parametrize(
    "block",
    ["```\nmake demo\n```\n", "```sh\ncrannog tables\nls\n```\n", "```sql\nSELECT 1\n```\n", "```text\nalone\n```\n"],
)
def test_a_block_that_nobody_runs_is_found(block: str, tmp_path: Path) -> None:
    [example] = examples_of(block)
    assert example.is_forgotten
    (tmp_path / "page.md").write_text(block)
    with pytest.raises(AssertionError, match=r"page\.md, line 1: nobody runs this block"):
        Page(tmp_path / "page.md", tmp_path).run()
    [example] = examples_of(f"*Not run by the tests: it is a sample.*\n\n{block}")
    assert not example.is_forgotten


def test_every_page_has_examples() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert pages - {page.name for page in PAGES} - NO_EXAMPLES == set()


def test_a_page_that_does_not_say_what_happens_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    monkeypatch.chdir(tmp_path)
    for wrong in (
        "```python\nassert 1 == 2\n```\n",
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```console\n$ crannog --version\ncrannog of yesterday\n```\n",
        "```console\n$ crannog describe no.such.table\n```\n",
        "```console\n$ echo one | tr o x\none\n```\n",
        "```sh\ncrannog describe no.such.table\n```\n",
        "```filter\nduration > 5\n```\n",
    ):
        page.write_text(wrong)
        with pytest.raises(AssertionError, match=r"page\.md, line 1"):
            Page(page, tmp_path).run()


def test_a_block_is_left_out_only_for_a_reason_that_readers_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "*Not run by the tests: it needs a bucket.*\n\n```python\nassert False\n```\n\n```python\nran = True\n```\n"
    )
    assert [example.left_out for example in examples_of(page.read_text())] == ["it needs a bucket", ""]
    assert Page(page, tmp_path).run() == 1


def test_every_setting_is_documented() -> None:
    assert (ROOT / "docs" / "settings.md").read_text() == reference(), (
        "run: python -m crannog.settings > docs/settings.md"
    )
    for name, field in Settings.model_fields.items():
        assert field.description, name


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_variables_and_figures_that_pages_name_exist() -> None:
    code = "".join(path.read_text() for path in (ROOT / "src" / "crannog").rglob("*.py"))
    names = {f"CRANNOG_{name.upper()}" for name in Settings.model_fields}
    figures = set(re.findall(r'"(crannog_\w+)"', code))
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text()
        for variable in re.findall(r"CRANNOG_[A-Z_]+[A-Z]", text):
            assert variable in names or f'"{variable}"' in code, f"{page.name} names {variable}"
        for figure in re.findall(r"\bcrannog_[a-z_]+", text):
            assert figure in figures or figure.removesuffix("_total") in figures, f"{page.name} names {figure}"
