"""One trace in a browser: rows, zoom, find, collapse, keys, details, comparison, on a trace with everything odd about it."""

from __future__ import annotations

import json
import re
import time

import pytest
from playwright.sync_api import Browser, Page, expect

from browsers import Visitor, check_accessible, check_width
from crannog.embedded import EmbeddedLake
from crannog.tour.samples.spans import otlp_bodies
from large_traces import HOSTILE, ODD_LEVELS, ODD_SPANS, large_trace, odd_trace
from page_measures import measure_trace, wait_until_read

TRACE = "0d" * 16
ADDRESS = f"/traces/{TRACE}"
NOW = time.time_ns()


@pytest.fixture(autouse=True, scope="module")
def odd(sample_server: tuple[str, EmbeddedLake]) -> None:
    """The odd trace, written once."""
    [body] = otlp_bodies([odd_trace(TRACE, time.time_ns() - 10**10)])
    outcome = sample_server[1].traces.write_otlp(body, content_type="application/json")
    assert outcome.accepted == ODD_SPANS


def rows_of(page: Page) -> list[str]:
    """Return the operations of the rows that are drawn."""
    return page.locator(".waterfall-operation").all_inner_texts()


def whole(visitor: Visitor, query: str = "", **options: object) -> Page:
    """Open the trace and wait until all rows are there."""
    page = visitor.open(ADDRESS + query, **options)  # type: ignore[arg-type]
    page.wait_for_selector(".view-bar button:not([disabled])")
    expect(page.get_by_role("button", name="Operations")).to_be_enabled()
    return page


@pytest.mark.parametrize(
    ("width", "dark", "ratio", "query"),
    [(1400, False, 1, "?flame=1"), (1400, True, 2, "?span=0000000000000030"), (360, False, 2, "?q=reset")],
)
def test_the_page_is_accessible_and_fits(visitor: Visitor, width: int, dark: bool, ratio: float, query: str) -> None:
    page = whole(visitor, query, width=width, dark=dark, ratio=ratio)
    if "span=" in query:
        expect(page.get_by_role("complementary", name="Span")).to_contain_text("0000000000000030")
    check_width(page)
    check_accessible(page)


def test_what_is_odd_is_marked_by_shape_and_word(visitor: Visitor) -> None:
    page = whole(visitor)
    facts = page.locator(".trace-facts")
    for words in (f"{ODD_SPANS} spans", f"{ODD_LEVELS} levels", "7 errors", "2 orphans", "1 cycle", "2 skewed"):
        expect(facts).to_contain_text(words)
    grid = page.get_by_role("treegrid")
    assert grid.get_attribute("aria-rowcount") == str(ODD_SPANS)
    expect(grid.get_by_role("row").filter(has_text="starts before its parent")).to_contain_text("early")
    grid.focus()
    page.keyboard.press("End")
    expect(grid.get_by_role("row").filter(has_text="in a cycle")).to_contain_text("cycle")
    expect(grid.get_by_role("row").filter(has_text="orphan").first).to_be_visible()
    row = grid.locator("[aria-selected=true]")
    assert row.get_attribute("aria-rowindex") == str(ODD_SPANS)
    assert grid.get_attribute("aria-activedescendant") == row.get_attribute("id")


def test_keys_move_open_and_close(visitor: Visitor) -> None:
    page = whole(visitor)
    grid = page.get_by_role("treegrid")
    grid.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")  # closes the root
    expect(grid).to_have_attribute("aria-rowcount", "5")
    expect(grid.locator("[aria-selected=true]")).to_have_attribute("aria-expanded", "false")
    assert rows_of(page)[:2] == ["GET /checkout", "orphan"]
    page.keyboard.press("ArrowRight")
    expect(grid).to_have_attribute("aria-rowcount", str(ODD_SPANS))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(grid.locator("[aria-selected=true]")).to_contain_text("level 1")
    assert grid.locator("[aria-selected=true]").get_attribute("aria-level") == "2"
    page.keyboard.press("Space")
    expect(grid).to_have_attribute("aria-rowcount", str(ODD_SPANS - ODD_LEVELS + 2))
    page.keyboard.press("Enter")
    panel = page.get_by_role("complementary", name="Span")
    expect(panel.get_by_role("heading", name="level 1")).to_be_visible()
    page.wait_for_url("**?*span=0000000000000002*")
    again = visitor.open(page.url.removeprefix(visitor.url))
    expect(again.get_by_role("complementary", name="Span").get_by_role("heading", name="level 1")).to_be_visible()
    expect(again.get_by_role("treegrid")).to_have_attribute("aria-rowcount", str(ODD_SPANS - ODD_LEVELS + 2))
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Next match")


def test_zoom_by_dragging_is_kept_in_the_address(visitor: Visitor) -> None:
    page = whole(visitor)
    box = page.locator(".overview").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20, steps=4)
    page.mouse.up()
    page.wait_for_url(re.compile(r"zoom=\d+"))
    written = re.search(r"zoom=([\d.]+)-([\d.]+)", page.url)
    assert written is not None
    start, end = map(float, written.groups())
    assert 0.24 < start / 1_340_000 < 0.26
    assert 0.49 < end / 1_340_000 < 0.51
    ticks = page.locator(".waterfall-axis span").all_inner_texts()
    again = visitor.open(page.url.removeprefix(visitor.url))
    expect(again.locator(".waterfall-axis span").first).to_have_text(ticks[0])
    expect(again.locator(".overview-range")).to_be_visible()
    again.keyboard.press("0")
    expect(again.locator(".overview-range")).to_have_count(0)


def test_find_shows_matches_and_their_ancestors(visitor: Visitor) -> None:
    page = whole(visitor)
    page.keyboard.press("/")
    page.keyboard.type("reset")
    expect(page.locator(".find-count")).to_have_text("– / 7")
    page.keyboard.press("Enter")
    expect(page.locator(".find-count")).to_have_text("1 / 7")
    expect(page.locator("[aria-selected=true]")).to_contain_text("error")
    page.get_by_role("treegrid").focus()
    page.keyboard.press("n")
    expect(page.locator(".find-count")).to_have_text("2 / 7")
    page.keyboard.press("N")
    expect(page.locator(".find-count")).to_have_text("1 / 7")
    page.get_by_label("Only matches").check()
    expect(page.get_by_role("treegrid")).to_have_attribute("aria-rowcount", "8")
    assert rows_of(page)[0] == "GET /checkout"
    page.get_by_label("Find by").select_option("filter")
    expect(page.get_by_role("alert")).to_contain_text("the filter")
    visitor.wrong = [each for each in visitor.wrong if "400" not in each]  # the browser tells of the refused request
    page.get_by_label("Find in this trace").fill("duration > 850ms")
    expect(page.get_by_role("treegrid")).to_have_attribute("aria-rowcount", "4")


def test_levels_critical_path_and_operations_narrow_the_rows(visitor: Visitor) -> None:
    page = whole(visitor)
    grid = page.get_by_role("treegrid")
    page.get_by_label("Levels").select_option("1")
    expect(grid).to_have_attribute("aria-rowcount", "4")
    page.get_by_label("Levels").select_option("0")
    page.keyboard.press("c")
    expect(page.get_by_role("button", name="Critical path")).to_have_attribute("aria-pressed", "true")
    assert 45 <= int(grid.get_attribute("aria-rowcount") or 0) < 100
    page.keyboard.press("c")
    page.keyboard.press("o")
    table = page.get_by_role("grid", name="Spans by operation")
    table.get_by_text("query 7", exact=True).first.click()
    expect(grid).to_be_visible()
    assert set(rows_of(page)) == {"GET /checkout", "query 7"}
    page.go_back()
    expect(table).to_be_visible()


def test_the_flame_graph_keeps_step(visitor: Visitor) -> None:
    page = whole(visitor)
    page.keyboard.press("f")
    flame = page.locator(".flame")
    box = flame.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 0.3, box["y"] + 9)
    expect(page.get_by_role("complementary", name="Span").get_by_role("heading", name="GET /checkout")).to_be_visible()
    expect(page.locator(".waterfall [aria-selected=true]")).to_contain_text("GET /checkout")


def test_details_show_what_a_sender_wrote_as_text(visitor: Visitor) -> None:
    page = whole(visitor, "?span=0000000000000001")
    panel = page.get_by_role("complementary", name="Span")
    expect(panel.get_by_text(HOSTILE)).to_be_visible()
    assert page.locator("main img").count() == 0
    expect(panel.get_by_role("button", name="Show all 100 KB")).to_be_visible()
    panel.get_by_role("searchbox").fill("route")
    expect(panel.get_by_text(HOSTILE)).to_have_count(0)
    panel.get_by_role("tab", name="JSON").click()
    expect(panel.get_by_label("span as JSON", exact=True)).to_contain_text('"span_id": "0000000000000001"')
    page.keyboard.press("e")
    expect(panel.get_by_label("stack", exact=True)).to_contain_text("in pay")
    late = f"{ODD_SPANS - 5:016x}"
    page = visitor.open(f"{ADDRESS}?span={late}")
    panel = page.get_by_role("complementary", name="Span")
    panel.get_by_role("tab", name="Links").click()
    panel.get_by_role("link", name="A span of this trace").click()
    expect(panel.get_by_role("heading", name="starts before its parent")).to_be_visible()


def test_downloads_sql_and_an_unknown_trace(visitor: Visitor, lake: EmbeddedLake) -> None:
    page = whole(visitor)
    page.get_by_role("button", name="Download").click()
    with page.expect_download() as waited:
        page.get_by_role("menuitem", name="Jaeger JSON").click()
    assert "0d0d" in waited.value.suggested_filename
    page.get_by_role("button", name="As SQL").click()
    expect(page.get_by_role("dialog")).to_contain_text(TRACE.upper())
    written = page.get_by_role("dialog").locator("pre").inner_text()
    assert len(lake.sql(written, engine="local").rows()) == ODD_SPANS
    missing = visitor.open("/traces/" + "9" * 32)
    expect(missing.get_by_role("alert")).to_contain_text("9" * 32)
    visitor.wrong = [each for each in visitor.wrong if "404" not in each]


def test_a_trace_that_is_too_large_is_shown_in_windows(visitor: Visitor) -> None:
    page = visitor.open("/traces")
    body = json.dumps(
        {"error": {"code": "too_large", "message": "the trace has 3,000,000 spans", "retry_after_s": None}}
    )
    page.route("**/skeleton", lambda route: route.fulfill(status=413, body=body))
    page.route("**/api/v1/traces/*?limit=1000*", lambda route: route.continue_(url=_fewer(route.request.url)))
    page.goto(visitor.url + ADDRESS)
    bar = page.locator(".window-bar")
    expect(bar).to_contain_text("Rows 1 to 100 of 300. the trace has 3,000,000 spans")
    bar.get_by_role("button", name="After").click()
    expect(bar).to_contain_text("Rows 101 to 200 of 300")
    expect(page.locator(".waterfall-row").first).to_contain_text("query")
    expect(page.get_by_role("button", name="Operations")).to_be_disabled()
    visitor.wrong = [each for each in visitor.wrong if "413" not in each]


def _fewer(url: str) -> str:
    return url.replace("limit=1000", "limit=100")


def test_two_traces_are_compared(visitor: Visitor, lake: EmbeddedLake) -> None:
    first = lake.traces.search(service="web", limit=1).traces[0].trace_id
    page = visitor.open(f"/traces/compare?a={first}")
    expect(page.get_by_text("Choose two traces")).to_be_visible()
    page.get_by_label("After: trace id").fill(TRACE)
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("row").filter(has_text="gateway: GET /checkout").first).to_contain_text("added")
    page.get_by_label("Change").select_option("removed")
    expect(page.locator("tbody .badge").first).to_have_text(re.compile("removed"))
    check_width(page)
    check_accessible(page)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "ratio"), [(50_000, 1), (1_000_000, 1), (1_000_000, 2)])
def test_large_traces_stay_quick_and_small(
    browser: Browser, sample_server: tuple[str, EmbeddedLake], count: int, ratio: float
) -> None:
    """Work of the page's thread, which a busy machine changes little; the bench has the times of an idle one."""
    url, lake = sample_server
    trace_id = count.to_bytes(16, "big")
    for body in large_trace(count, trace_id, NOW - 3_600 * 10**9):
        lake.traces.write_otlp(body)  # the same bodies again are stored once
    wait_until_read(url, trace_id.hex())
    found = measure_trace(browser, url, trace_id.hex(), ratio=ratio)
    print(found)
    assert found.spans == count
    assert found.open_work_ms < 400
    assert found.scroll_ms_a_frame < 50
    assert max(found.jump_ms, found.next_match_ms, found.zoom_ms, found.flame_ms) < 100  # several frames each
    assert max(found.collapse_ms, found.expand_ms, found.find_ms) < 200
    assert found.process_mb < 300
