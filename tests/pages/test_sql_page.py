"""SQL in the browser: the editor, results of all sizes, cancel, charts, export, explain, history."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

from browsers import Visitor, check_accessible, check_width
from crannog.embedded import EmbeddedLake

HOSTILE = "<img src=x onerror=alert(1)>"
ORDERS = "SELECT state, count(*) AS orders, sum(amount) AS total FROM shop.sales.orders GROUP BY state ORDER BY state"
LONG = (
    "SELECT count(*) AS n FROM shop.sales.orders a CROSS JOIN shop.sales.orders b CROSS JOIN shop.sales.orders c"
    " WHERE length(concat(a.order_id, b.order_id, c.order_id)) = 1"
)
MILLION = (
    "SELECT a.order_id, b.order_id AS other, a.amount, a.ordered_at FROM shop.sales.orders a"
    " CROSS JOIN shop.sales.orders b CROSS JOIN shop.sales.customers c LIMIT 1000000"
)


def _open(visitor: Visitor, sql: str, **options: object) -> Page:
    page = visitor.open(f"/sql?q={quote(sql)}", **options)  # type: ignore[arg-type]
    page.wait_for_selector(".cm-content")
    return page


def _run(page: Page) -> None:
    page.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")


def test_a_statement_of_a_link_runs_and_shows_rows(visitor: Visitor) -> None:
    page = _open(visitor, ORDERS)
    _run(page)
    expect(page.locator(".result-line")).to_contain_text("3 rows")
    expect(page.locator(".grid-row").first).to_contain_text("paid")
    expect(page.locator(".result-line .badge").first).to_have_text("local")


def test_typing_completes_names_and_the_address_keeps_the_text(visitor: Visitor) -> None:
    page = visitor.open("/sql")
    page.locator(".cm-content").click()
    page.keyboard.type("SELECT count(*) FROM shop.sales.ord")
    option = page.locator(".cm-tooltip-autocomplete li").filter(has_text="orders")
    expect(option).to_be_visible()
    page.wait_for_timeout(100)  # CodeMirror takes no completion at once, so that no one chooses by accident
    page.keyboard.press("Enter")
    expect(page.locator(".cm-content")).to_have_text("SELECT count(*) FROM shop.sales.orders")
    expect(page).to_have_url(re.compile("orders"))
    # A key of the pages is a letter of the text here.
    page.keyboard.type(" ?/")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_values_are_exact_and_hostile_text_is_text(visitor: Visitor) -> None:
    page = _open(
        visitor,
        "SELECT 9007199254740993L AS big, CAST('12345678901234567890.50' AS DECIMAL(38,2)) AS dec, '' AS empty,"
        f" CAST(NULL AS STRING) AS nothing, '{HOSTILE}' AS `{HOSTILE}`, array(1, NULL) AS list",
        width=2000,
    )
    _run(page)
    cells = page.locator(".grid-row").first.locator(".grid-cell")
    expect(cells.first).to_have_text("9007199254740993")
    assert cells.all_inner_texts()[1:] == ["12345678901234567890.50", "empty text", "null", HOSTILE, "[1, null]"]
    assert page.locator("main img").count() == 0


def test_an_error_says_what_is_wrong(visitor: Visitor) -> None:
    page = _open(visitor, "DROP TABLE shop.sales.orders")
    _run(page)
    expect(page.get_by_role("alert")).to_be_visible()
    visitor.wrong = [each for each in visitor.wrong if "400" not in each and "403" not in each]


def test_a_long_statement_is_cancelled(visitor: Visitor, lake: EmbeddedLake) -> None:
    page = _open(visitor, LONG)
    page.get_by_label("Engine").select_option("local")
    _run(page)
    cancel = page.get_by_role("button", name="Cancel")
    expect(page.get_by_text("The server works on it")).to_be_visible()
    cancel.click()
    expect(page.get_by_text("Cancelled after")).to_be_visible()
    expect(page.get_by_role("button", name="Run")).to_be_visible()
    visitor.wrong = [each for each in visitor.wrong if "Failed to load resource" not in each]


def test_a_chart_takes_two_clicks(visitor: Visitor) -> None:
    page = _open(visitor, ORDERS)
    _run(page)
    page.get_by_role("tab", name="Chart").click()
    expect(page.locator(".chart canvas")).to_be_visible()
    page.get_by_role("button", name="Points").click()
    expect(page.get_by_role("button", name="Points")).to_have_attribute("aria-pressed", "true")
    expect(page).to_have_url(re.compile("chart=scatter"))


@pytest.mark.parametrize("label", ["CSV", "Arrow", "JSON", "Parquet"])
def test_a_result_is_saved_whole(visitor: Visitor, tmp_path: Path, label: str) -> None:
    page = _open(visitor, "SELECT order_id, amount FROM shop.sales.orders")
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as saving:
        page.get_by_role("menuitem", name=f"{label}, all rows").click()
    path = tmp_path / saving.value.suggested_filename
    saving.value.save_as(path)
    if label == "CSV":
        assert len(path.read_text().splitlines()) == 796
    elif label == "JSON":
        assert len(json.loads(path.read_text())) == 795
    elif label == "Arrow":
        assert pa.ipc.open_stream(path.read_bytes()).read_all().num_rows == 795
    else:
        import pyarrow.parquet as pq

        assert pq.read_table(path).num_rows == 795


def test_explain_is_a_picture(visitor: Visitor) -> None:
    page = _open(visitor, ORDERS)
    page.get_by_role("button", name="Explain").click()
    expect(page.locator(".flow-engine")).to_contain_text("In the server")
    expect(page.locator(".flow-tables")).to_contain_text("shop.sales.orders")
    page.get_by_role("button", name="Run it and measure").click()
    expect(page.locator(".flow-result")).to_contain_text("3 rows")


def test_tabs_and_history_stay(visitor: Visitor) -> None:
    page = _open(visitor, "SELECT 1 AS one")
    _run(page)
    expect(page.locator(".result-line")).to_contain_text("1 row")
    page.get_by_role("button", name="New statement").click()
    page.locator(".cm-content").click()
    page.keyboard.type("SELECT 2 AS two")
    page.get_by_role("button", name="SELECT 1 AS one", exact=True).click()
    expect(page.locator(".cm-content")).to_have_text("SELECT 1 AS one")
    page.goto(visitor.url + "/sql")
    expect(page.locator(".sheet")).to_have_count(2)
    page.get_by_role("button", name="History").click()
    expect(page.get_by_role("dialog")).to_contain_text("SELECT 1 AS one")
    page.get_by_role("dialog").get_by_role("button", name="SELECT 1 AS one").click()
    expect(page.locator(".cm-content")).to_have_text("SELECT 1 AS one")


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (360, True)])
def test_the_page_is_accessible_and_fits(visitor: Visitor, width: int, dark: bool) -> None:
    page = _open(visitor, ORDERS, width=width, dark=dark)
    _run(page)
    page.wait_for_selector(".grid-row")
    for view in ("Rows", "Chart", "Explain"):
        page.get_by_role("tab", name=view).click()
        page.wait_for_selector(".grid-row, canvas, .flow")
        check_width(page)
        check_accessible(page)


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1, 2])
def test_a_grid_of_a_million_rows_scrolls_to_its_end(visitor: Visitor, ratio: float) -> None:
    page = _open(visitor, MILLION, ratio=ratio)
    page.get_by_label("Most rows to show").select_option("1000000")
    page.get_by_label("Engine").select_option("local")
    _run(page)
    expect(page.locator(".result-line")).to_contain_text("1,000,000 rows", timeout=60_000)
    grid = page.get_by_role("grid")
    grid.focus()
    page.keyboard.press("Control+End")
    expect(page.locator(".grid-row").last.locator(".grid-number")).to_have_text("1000000")
    started = time.perf_counter()
    longest = page.evaluate(
        """async () => {
          const grid = document.querySelector(".grid");
          let longest = 0;
          for (let step = 0; step < 60; step++) {
            const before = performance.now();
            grid.scrollTop = (grid.scrollHeight * step) / 60;
            await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
            longest = Math.max(longest, performance.now() - before);
          }
          return longest;
        }"""
    )
    assert longest < 250, f"a step of scrolling took {longest:.0f} ms"
    assert time.perf_counter() - started < 15
    assert page.locator(".grid-row").count() < 100
