"""Loading a file in the browser: what was found in it, key and types, bad rows, drift, and the route that does it."""

from __future__ import annotations

import gzip
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, expect

from browsers import Visitor, check_accessible, check_width
from crannog.embedded import EmbeddedLake

HOSTILE = "<img src=x onerror=alert(1)>"


def _choose(page: Page, path: Path) -> None:
    page.get_by_label("File to load").set_input_files(path)


def _post(url: str, table: str, data: bytes, **query: object) -> Any:
    address = f"{url}/api/v1/tables/{table}/load?{urlencode(query, doseq=True)}"
    request = urllib.request.Request(address, data, {"Content-Type": "application/octet-stream"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def test_a_file_is_looked_through_then_loaded_with_a_key(visitor: Visitor, lake: EmbeddedLake, tmp_path: Path) -> None:
    path = tmp_path / f"Visits {HOSTILE.replace('/', '')}.csv"
    path.write_text(f"id,Where At,when,large\n1,{HOSTILE},2026-01-31,9007199254740993\n2,Oslo,2026-02-01,1\n")
    page = visitor.open("/load")
    _choose(page, path)
    found = page.get_by_role("region", name="Columns of the file")
    expect(found).to_contain_text("in the file: Where At")
    expect(found).to_contain_text("9007199254740993")
    expect(found.get_by_label("Type of when")).to_have_value("date")
    page.get_by_label("Table").fill("pages.load.visits")
    page.get_by_label("id is part of the key").check()
    page.get_by_role("button", name="Load 2 rows").click()
    expect(page.get_by_text("in the new table")).to_be_visible()
    assert lake.table("pages.load.visits").get(1)["Where_At"] == HOSTILE
    assert lake.table("pages.load.visits").key == ("id",)
    assert page.locator("main img").count() == 0
    page.get_by_role("link", name="Look at the rows").click()
    expect(page.locator(".grid-row").first).to_contain_text(HOSTILE)


def test_bad_rows_are_shown_and_can_be_left_out(visitor: Visitor, lake: EmbeddedLake, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    lake.create_table("pages.load.numbers", schema, key=["id"])
    path = tmp_path / "numbers.csv"
    path.write_text("id,n\n1,10\n2,many\n3,30\n")
    page = visitor.open("/load?table=pages.load.numbers")
    _choose(page, path)
    expect(page.get_by_role("region", name="Bad rows")).to_be_visible()
    expect(page.get_by_role("button", name="Load 2 rows")).to_be_disabled()
    page.get_by_label("Leave out bad rows").check()
    expect(page.get_by_role("region", name="Bad rows")).to_contain_text("many")
    page.get_by_role("button", name="Load 2 rows").click()
    expect(page.get_by_text("Left out: 1 bad row.")).to_be_visible()
    assert lake.table("pages.load.numbers").count() == 2


def test_columns_that_the_table_lacks_are_an_error_with_a_way_out(
    visitor: Visitor, lake: EmbeddedLake, tmp_path: Path
) -> None:
    lake.create_table("pages.load.drift", pa.schema([("a", pa.int64())]))
    path = tmp_path / "more.parquet"
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), path)
    page = visitor.open("/load?table=pages.load.drift")
    _choose(page, path)
    drift = page.get_by_role("region", name="Differences from the table")
    expect(drift).to_contain_text("not settled")
    expect(page.get_by_role("button", name="Load 2 rows")).to_be_disabled()
    page.get_by_label("Add columns and widen types").check()
    expect(drift).to_contain_text("added, nullable")
    page.get_by_role("button", name="Load 2 rows").click()
    expect(page.get_by_text("added to")).to_be_visible()
    assert lake.table("pages.load.drift").count() == 2


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (360, True)])
def test_the_page_is_accessible_and_fits(visitor: Visitor, tmp_path: Path, width: int, dark: bool) -> None:
    path = tmp_path / "wide.json"
    path.write_text(json.dumps([{"a_column_with_quite_a_long_name": 1, "text": "x" * 500}]))
    page = visitor.open("/load?table=pages.load.unmade", width=width, dark=dark)
    _choose(page, path)
    page.wait_for_selector("table")
    check_width(page)
    check_accessible(page)


def test_the_route_takes_packed_files_once_and_hides_paths(
    sample_server: tuple[str, EmbeddedLake], lake: EmbeddedLake
) -> None:
    url, data = sample_server[0], gzip.compress(b'{"id": 1}\n{"id": 2}\n')
    dry = _post(url, "pages.load.packed", data, file="a/b/rows.ndjson.gz", create="true", key="id", dry_run="true")
    assert (dry["rows"], dry["files"][0]["file"], dry["dry_run"]) == (2, "rows.ndjson.gz", True)
    assert "pages.load.packed" not in lake.tables()
    first = _post(url, "pages.load.packed", data, file="rows.ndjson.gz", create="true", key="id")
    assert (first["rows"], first["created"]) == (2, True)
    assert _post(url, "pages.load.packed", data, file="other.ndjson.gz")["duplicate"] is True
    with pytest.raises(urllib.error.HTTPError) as refused:
        _post(url, "pages.load.packed", b'{"id": "x"}\n{"id"', file="broken*.ndjson")
    message = json.loads(refused.value.read())["error"]["message"]
    assert refused.value.code == 422
    assert "broken*.ndjson" in message
    assert "/tmp" not in message
