"""The catalogue, and one table: rows in pages, exact values, statistics, history, pending deletes and jobs."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from urllib.parse import quote

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

from browsers import Visitor, check_accessible, check_width
from crannog.embedded import EmbeddedLake

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
COLUMN = "<b>&'*%[x]</b>"
LARGE = 2**53 + 1


@pytest.fixture(scope="module")
def exact(sample_server: tuple[str, EmbeddedLake]) -> str:
    """A table with all types and hostile names and values."""
    name = "pages.tables.exact"
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("amount", pa.decimal128(38, 10)),
            ("share", pa.float64()),
            ("note", pa.string()),
            ("content", pa.binary()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
            (COLUMN, pa.string()),
        ]
    )
    table = sample_server[1].create_table(name, schema, key=["id"])
    at = dt.datetime(2026, 11, 17, 23, 59, 59, 123456, tzinfo=dt.UTC)
    notes = ["", None, HOSTILE, "two\nlines"]
    table.append(
        [
            {
                "id": LARGE + n,
                "amount": Decimal("-1234567890123456789012345678.0123456789"),
                "share": [float("nan"), 0.1][n % 2],
                "note": notes[n % 4],
                "content": b"\x00\xff",
                "day": dt.date(1969, 12, 31),
                "at": at,
                "tags": ["a", None],
                "counts": {"k": 2**60},
                COLUMN: HOSTILE,
            }
            for n in range(300)
        ]
    )
    table.delete([LARGE + 7], actor=HOSTILE, reason="a request")
    return name


def _cells(page: Page, row: int) -> list[str]:
    return page.locator(".grid-row").nth(row).locator(".grid-cell").all_inner_texts()


def test_the_catalogue_is_a_tree_that_can_be_searched(visitor: Visitor, exact: str) -> None:
    page = visitor.open("/tables")
    orders = page.get_by_role("row").filter(has=page.get_by_role("link", name="orders", exact=True))
    expect(orders).to_contain_text("795")
    page.get_by_role("button", name="shop", exact=False).first.click()
    expect(orders).to_have_count(0)
    assert "closed=shop" in page.evaluate("new Promise(r => setTimeout(() => r(location.search), 400))")
    page.get_by_label("Find a table or column").fill("counts")
    expect(page.locator(".leaf")).to_have_count(1)
    page.get_by_role("link", name="exact").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(exact)


@pytest.mark.parametrize(("width", "dark"), [(1400, True), (360, False)])
def test_the_catalogue_is_accessible_and_fits(visitor: Visitor, width: int, dark: bool) -> None:
    page = visitor.open("/tables", width=width, dark=dark)
    page.wait_for_selector(".leaf")
    check_width(page)
    check_accessible(page)


def test_values_of_all_types_are_exact(visitor: Visitor, exact: str) -> None:
    page = visitor.open(f"/tables/{exact}", timezone_id="Asia/Kolkata", width=2600)
    page.wait_for_selector(".grid-row")
    first, second, third = (_cells(page, row) for row in range(3))
    assert first[:3] == [str(LARGE), "-1234567890123456789012345678.0123456789", "NaN"]
    assert (first[3], second[3], third[3]) == ("empty text", "null", HOSTILE)
    assert first[4:6] == ["00 ff (2 B)", "1969-12-31"]
    assert first[6] == "2026-11-18 05:29:59.123456"
    assert first[7:10] == ['["a", null]', f'{{"k": {2**60}}}', HOSTILE]
    assert _cells(page, 3)[3] == "two↵lines"
    assert page.locator("main img").count() == 0
    page.get_by_role("button", name="Local time").click()
    expect(page.locator(".grid-cell").nth(6)).to_have_text("2026-11-17 23:59:59.123456")


def test_rows_are_paged_sorted_and_filtered_in_the_address(visitor: Visitor, exact: str) -> None:
    page = visitor.open(f"/tables/{exact}?limit=50")
    expect(page.locator(".grid-row .grid-cell").first).to_have_text(str(LARGE))
    page.get_by_role("button", name="Next →").click()
    expect(page.locator(".grid-row .grid-cell").first).to_have_text(str(LARGE + 51))  # one was deleted
    page.reload()
    expect(page.locator(".grid-row .grid-cell").first).to_have_text(str(LARGE + 51))
    page.get_by_role("button", name="← Before").click()
    expect(page.locator(".grid-row .grid-cell").first).to_have_text(str(LARGE))
    page.get_by_role("columnheader").filter(has_text="bigint").get_by_role("button").first.click()
    page.get_by_role("columnheader").filter(has_text="bigint").get_by_role("button").first.click()
    expect(page.locator(".grid-row .grid-cell").first).to_have_text(str(LARGE + 299))
    page.get_by_label("Operator").select_option(">=")
    page.get_by_label("Value").fill(str(LARGE + 298))
    page.get_by_role("button", name="Filter", exact=True).click()
    expect(page.get_by_text("2 rows, by id, descending")).to_be_visible()
    assert quote(str(LARGE + 298)) in page.evaluate("new Promise(r => setTimeout(() => r(location.search), 400))")
    page.get_by_role("button", name="Remove the filter").click()
    expect(page.get_by_text("50 rows, by id, descending")).to_be_visible()


def test_a_cell_opens_by_keyboard_and_is_text(visitor: Visitor, exact: str) -> None:
    page = visitor.open(f"/tables/{exact}")
    page.wait_for_selector(".grid-row")
    page.get_by_role("grid").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("note of row 3")
    expect(dialog.locator("pre")).to_have_text(HOSTILE)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("grid")).to_be_focused()


def test_statistics_lead_to_rows(visitor: Visitor) -> None:
    page = visitor.open("/tables/shop.sales.orders?tab=statistics")
    expect(page.locator(".histogram").first).to_be_visible()
    values = page.get_by_label("Most frequent values of state")
    state = values.get_by_role("link").first.inner_text()
    values.get_by_role("link").first.click()
    expect(page.get_by_label("Filters")).to_contain_text(f'state is "{state}"')
    page.wait_for_selector(".grid-row")


def test_files_pending_deletes_and_history(visitor: Visitor, exact: str) -> None:
    page = visitor.open(f"/tables/{exact}?tab=files")
    deletes = page.get_by_role("region", name="Pending deletes")
    expect(deletes).to_contain_text(str(LARGE + 7))
    expect(deletes).to_contain_text(HOSTILE)
    page.get_by_role("tab", name="History").click()
    expect(page.get_by_role("region", name="Versions")).to_contain_text("create table")
    page.get_by_role("link", name="Look at version 0").click()
    expect(page.get_by_text("There are no rows here")).to_be_visible()  # all rows are staged
    page.get_by_role("button", name="Back to now").click()
    page.wait_for_selector(".grid-row")


def test_a_job_shows_what_it_would_do_first(visitor: Visitor) -> None:
    page = visitor.open("/tables/shop.sales.orders?tab=jobs")
    compact = page.locator(".panel").filter(has_text="merges small files")
    expect(compact.get_by_role("button", name="Compact now")).to_be_disabled()
    compact.get_by_role("button", name="Dry run").click()
    expect(compact).to_contain_text("staged changes")
    expect(compact.get_by_role("button", name="Compact now")).to_be_enabled()


@pytest.mark.parametrize("tab", ["rows", "columns", "statistics", "history", "files", "jobs"])
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (360, True)])
def test_a_table_is_accessible_and_fits(visitor: Visitor, exact: str, tab: str, width: int, dark: bool) -> None:
    page = visitor.open(f"/tables/{exact}?tab={tab}", width=width, dark=dark)
    page.wait_for_selector(".grid-row, table, .facets, .jobs, .pairs")
    check_width(page)
    check_accessible(page)


def test_a_wide_table_makes_only_the_columns_on_the_screen(visitor: Visitor, lake: EmbeddedLake) -> None:
    fields = [pa.field("id", pa.int64(), nullable=False), *[(f"column_{n}", pa.int64()) for n in range(600)]]
    table = lake.create_table("pages.tables.wide", pa.schema(fields), key=["id"])
    table.append([{"id": row, **{f"column_{n}": n for n in range(600)}} for row in range(40)])
    page = visitor.open("/tables/pages.tables.wide", ratio=2)
    page.wait_for_selector(".grid-row")
    assert page.locator(".grid-cell").count() < 1000
    page.get_by_role("grid").focus()
    page.keyboard.press("End")
    expect(page.get_by_role("columnheader").filter(has_text="_batch_id")).to_be_visible()
    page.keyboard.press("Home")
    expect(page.get_by_role("columnheader").filter(has_text="column_0 ")).to_be_visible()


def test_a_missing_table_says_so(visitor: Visitor) -> None:
    page = visitor.open("/tables/no.such.table")
    expect(page.get_by_role("alert").first).to_contain_text("no.such.table")
    # The browser itself tells of the failed request.
    visitor.wrong = [each for each in visitor.wrong if "404" not in each]
