"""Upkeep in a browser: backlog, tasks, jobs with a dry run first, tables in memory, and the audit with filters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from playwright.sync_api import Route, expect

from browsers import Visitor, check_accessible, check_width, reason_to_skip, served_here
from crannog.embedded import EmbeddedLake
from crannog.engine.maintenance.scheduler import run_as_task
from crannog.names import TableName

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = "<img src=x onerror=alert(1)>"
TABLE = "shop.sales.orders"


@pytest.fixture
def tasks(lake: EmbeddedLake) -> None:
    """A task that succeeded and one that failed, with an error that somebody else wrote."""

    def fail() -> dict[str, object]:
        raise RuntimeError(f"no space left {HOSTILE}")

    control = lake.operations.control
    run_as_task(control, TableName.parse(TABLE), "vacuum", lambda: {"seconds": 1.5, "files_deleted": 3})
    run_as_task(control, TableName.parse("shop.sales.customers"), "fold", fail)


@pytest.mark.usefixtures("tasks")
def test_backlog_and_tasks_are_shown(visitor: Visitor) -> None:
    page = visitor.open("/upkeep")
    row = page.get_by_role("region", name="Tables").get_by_role("row").filter(has_text=TABLE)
    expect(row).to_contain_text("813")
    page.get_by_role("button", name="Not folded").click()
    expect(page.get_by_role("region", name="Tables").locator("tbody th").first).to_have_text("crannog.traces.spans")
    assert "sort=-staged" in page.url
    page.get_by_role("link", name="Failing tasks").click()
    failed = page.get_by_role("region", name="Tasks").locator("tbody tr").first
    expect(failed).to_contain_text("fold shop.sales.customers")
    expect(failed).to_contain_text(f"no space left {HOSTILE}")
    expect(page.get_by_role("region", name="Tasks")).to_contain_text("3 files deleted")
    assert page.locator("main img").count() == 0


def test_a_job_says_first_what_it_would_do(visitor: Visitor) -> None:
    requested: list[object] = []

    def answer(route: Route) -> None:
        # In place of Spark, which takes too long here.
        requested.append(route.request.url.rpartition("/")[2])
        lines = [
            {"progress": {"step": "write files", "share": 0.5}},
            {"result": {"folded_to": 3, "staged_rows": 813, "final_rows": 795, "seconds": 2.0}},
        ]
        route.fulfill(body="\n".join(map(json.dumps, lines)), content_type="application/x-ndjson")

    page = visitor.open("/upkeep")
    page.route("**/fold", answer)
    page.get_by_role("button", name=f"Start a job on {TABLE}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("fold 813 rows")
    dialog.get_by_label("Job").select_option("vacuum")
    expect(dialog).to_contain_text("delete nothing")
    dialog.get_by_label("Job").select_option("compact")
    expect(dialog.get_by_role("listitem").first).to_be_visible()
    page.wait_for_url(f"**/upkeep?of={TABLE}&job=compact")
    check_accessible(page)
    dialog.get_by_label("Job").select_option("fold")
    assert requested == []
    dialog.get_by_role("button", name="Fold now").click()
    expect(dialog).to_contain_text("813 rows folded, 795 rows now, in 2.00 s")
    dialog.get_by_role("button", name="Close").last.click()
    expect(dialog).to_have_count(0)


def test_a_table_is_pinned_and_evicted(visitor: Visitor) -> None:
    page = visitor.open("/upkeep?view=memory")
    expect(page.get_by_text("No table is held in memory")).to_be_visible()
    page.get_by_label("Table to pin").select_option(TABLE)
    page.get_by_role("button", name="Pin").click()
    row = page.get_by_role("region", name="Tables in memory").get_by_role("row").filter(has_text=TABLE)
    expect(row).to_contain_text("pinned")
    page.get_by_role("button", name=f"Evict {TABLE}").click()
    expect(page.get_by_text("No table is held in memory")).to_be_visible()


def test_nothing_was_folded_yet(visitor: Visitor) -> None:
    page = visitor.open("/upkeep?view=work&table=ops.warehouse.incidents")
    expect(page.get_by_text("Nothing has been folded or compacted yet")).to_be_visible()
    page = visitor.open("/audit")
    expect(page.get_by_text("This server keeps no audit")).to_be_visible()
    visitor.wrong = [each for each in visitor.wrong if "404" not in each]


@pytest.fixture
def audited(browser: Browser, tmp_path: Path) -> Iterator[tuple[Visitor, EmbeddedLake]]:
    """A server that keeps an audit."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    with served_here(tmp_path / "warehouse", audit=True) as (url, lake):
        lake.create_table("a.b.things", pa.schema([("id", pa.string())]), key="id").append([{"id": "x"}])
        visitor = Visitor(browser, url)
        yield visitor, lake
        visitor.close()
        visitor.check()


def test_the_audit_is_filtered(audited: tuple[Visitor, EmbeddedLake]) -> None:
    visitor, _ = audited
    page = visitor.open("/upkeep")
    page.wait_for_selector("tbody tr")
    ask = "fetch('api/v1/sql', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify({sql})})"
    page.evaluate(f"(sql) => {ask}", f"SELECT '{HOSTILE}' AS x FROM a.b.things")
    page.evaluate(f"(sql) => {ask}", "SELECT nothing FROM a.b.things")
    page.wait_for_timeout(2_500)  # entries are written every two seconds
    page.get_by_role("link", name="Audit").first.click()
    rows = page.get_by_role("region", name="Audit").locator("tbody tr")
    page.get_by_label("Verb").fill("sql")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(2)
    rows.nth(1).get_by_text("SQL").click()
    expect(rows.nth(1)).to_contain_text(HOSTILE)
    page.get_by_label("Only what failed").check()
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("400")
    assert page.url == visitor.url + "/audit?verb=sql&failed=1"
    page.get_by_label("From").fill("yesterday")
    expect(page.get_by_text("A time is 2026-11-17")).to_be_visible()
    page.get_by_label("From").fill("2100-01-01")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No request matches")).to_be_visible()
    visitor.wrong = [each for each in visitor.wrong if "400" not in each]


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(("width", "dark"), [(1400, True), (360, False)])
def test_the_pages_of_upkeep_are_accessible_and_fit(visitor: Visitor, width: int, dark: bool) -> None:
    page = visitor.open("/upkeep", width=width, dark=dark)
    for view in ("tables", "tasks", "work", "memory"):
        page.goto(f"{visitor.url}/upkeep?view={view}")
        page.wait_for_selector("main table, main .empty")
        check_width(page)
        check_accessible(page)
