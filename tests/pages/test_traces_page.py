"""The search of traces in a browser: form, filter with completion, pages, latency with a box, saved searches."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from browsers import Visitor, check_accessible, check_width, served_here
from crannog.embedded import EmbeddedLake
from crannog.tour.samples.spans import MS, SERVER, Made, otlp_bodies

HOSTILE = "<img src=x onerror=alert(1)>"


def _write(lake: EmbeddedLake, spans: list[Made]) -> None:
    for body in otlp_bodies([[span] for span in spans]):
        lake.traces.write_otlp(body, content_type="application/json")


def _roots(service: str, count: int, ms: float, **attributes: object) -> list[Made]:
    """Root spans of a service, the newest a second ago, five seconds apart."""
    now = time.time_ns()
    starts = [now - (1 + 5 * number) * 1_000 * MS for number in range(count)]
    return [
        Made(f"{abs(hash((service, start))):032x}"[-32:], f"{number + 1:016x}", "", service, "serve", SERVER, start,
             start + int(ms * MS), dict(attributes))
        for number, start in enumerate(starts)
    ]  # fmt: skip


def _query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_a_filter_is_completed_from_what_spans_have(visitor: Visitor) -> None:
    page = visitor.open("/traces")
    field = page.get_by_role("combobox", name="Filter")
    option = page.get_by_role("option")
    field.press_sequentially("http.rou")
    expect(option.first).to_contain_text("http.route")
    field.press("ArrowDown")
    field.press("Enter")
    expect(option.first).to_have_text("=")
    field.press_sequentially("= /che")
    expect(option.first).to_contain_text("/checkout")
    field.press("ArrowDown")
    field.press("Enter")
    expect(field).to_have_value('http.route = "/checkout" ')
    expect(option.first).to_have_text("and")
    field.press("Escape")
    field.press("Enter")
    expect(page.locator("tbody tr").first).to_contain_text("/checkout")
    assert _query(page)["q"] == ['http.route = "/checkout" ']
    field.fill("http.route =")
    field.press("Enter")
    expect(page.get_by_role("alert").first).to_contain_text("expected")
    visitor.wrong = [each for each in visitor.wrong if "400" not in each]


def test_names_of_services_and_operations_are_completed(visitor: Visitor) -> None:
    page = visitor.open("/traces")
    page.get_by_role("combobox", name="Service").press_sequentially("pay")
    page.get_by_role("option", name="payments").click()
    expect(page).to_have_url(visitor.url + "/traces?service=payments")
    page.get_by_role("combobox", name="Operation").click()
    expect(page.get_by_role("option").first).to_be_visible()
    names = page.get_by_role("option").locator(".name").all_inner_texts()
    assert "GET /search" not in names


def test_pages_lead_there_and_back(visitor: Visitor, lake: EmbeddedLake) -> None:
    _write(lake, _roots("paged", 7, 5))
    page = visitor.open("/traces?service=paged&limit=3")
    links = page.locator("tbody a")
    expect(links).to_have_count(3)
    firsts, seen = [], []
    for number in range(3):
        firsts.append(links.first.get_attribute("href"))
        seen += [link.get_attribute("href") for link in links.all()]
        if number < 2:
            page.get_by_role("button", name="Next").click()
            expect(links.first).not_to_have_attribute("href", str(firsts[-1]))
    assert len(seen) == len(set(seen)) == 7
    address = page.url
    for number in (1, 0):
        page.get_by_role("button", name="Previous").click()
        expect(links.first).to_have_attribute("href", str(firsts[number]))
    # A link to a page in the middle reopens it, although "the last 24 hours" are others by now.
    again = visitor.open(address.removeprefix(visitor.url))
    expect(again.locator("tbody a")).to_have_attribute("href", str(seen[-1]))


def test_a_duration_bounds_traces_or_spans(visitor: Visitor, lake: EmbeddedLake) -> None:
    now = time.time_ns() - 60_000 * MS
    trace = "d" * 32
    spans = [
        Made(trace, "1" * 16, "", "bounded", "whole", SERVER, now, now + 500 * MS),
        Made(trace, "2" * 16, "1" * 16, "bounded", "part", SERVER, now, now + 20 * MS),
    ]
    lake.traces.write_otlp(next(otlp_bodies([spans])), content_type="application/json")
    page = visitor.open("/traces?service=bounded&operation=part&min=100ms")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Duration of").select_option("span")
    expect(page.get_by_text("No trace matches")).to_be_visible()
    page.get_by_label("At least").fill("soon")
    expect(page.get_by_text("Write it as 250ms")).to_be_visible()
    page.get_by_label("At least").fill("10 ms")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("tbody tr")).to_have_count(1)


def test_a_box_in_the_picture_shows_what_differs(visitor: Visitor, lake: EmbeddedLake) -> None:
    _write(lake, _roots("boxed", 30, 10, **{"app.zone": "north"}) + _roots("boxed", 4, 900, **{"app.zone": HOSTILE}))
    page = visitor.open("/traces?service=boxed&last=15m")
    picture = page.locator(".heat")
    size = picture.bounding_box()
    assert size is not None
    # The upper half: the long ones.
    page.mouse.move(size["x"] + 70, size["y"] + 2)
    page.mouse.down()
    page.mouse.move(size["x"] + size["width"] - 9, size["y"] + size["height"] / 2, steps=3)
    page.mouse.up()
    differs = page.get_by_role("region", name="app.zone")
    expect(differs).to_contain_text(HOSTILE)
    expect(differs.get_by_role("listitem").first).to_contain_text("100 %")
    assert page.locator("main img").count() == 0
    box = _query(page)["box"]
    again = visitor.open(page.url.removeprefix(visitor.url))
    expect(again.get_by_role("region", name="app.zone")).to_be_visible()
    differs.get_by_role("button", name=HOSTILE).click()
    expect(page.get_by_role("combobox", name="Filter")).to_have_value(f'span.app.zone = "{HOSTILE}"')
    expect(page.locator("section").last.locator("tbody tr")).to_have_count(4)
    page.go_back()
    assert _query(page)["box"] == box
    page.get_by_role("button", name="Search in the box").click()
    expect(page.get_by_label("Duration of")).to_have_value("span")
    expect(page.locator("section").last.locator("tbody tr")).to_have_count(4)


def test_the_picture_is_used_by_keyboard_and_read_as_a_table(visitor: Visitor, lake: EmbeddedLake) -> None:
    _write(lake, _roots("keyed", 3, 10) + _roots("keyed", 1, 700, **{"app.slow": True}))
    page = visitor.open("/traces?service=keyed&last=5m")
    page.locator(".heat").focus()
    page.keyboard.press("ArrowUp")
    for _ in range(5):
        page.keyboard.press("Shift+ArrowLeft")
    expect(page.locator(".heat-text")).to_contain_text("1 span")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="app.slow")).to_contain_text("true")
    page.locator(".heat").focus()
    page.keyboard.press("Escape")
    expect(page.get_by_role("region", name="app.slow")).to_have_count(0)
    page.get_by_text("The same as a table").click()
    rows = page.get_by_role("region", name="Latency over time").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("UTC")
    rows.last.get_by_role("button", name="Choose").click()
    expect(page.get_by_text("What differs in the box")).to_be_visible()


def test_searches_are_saved_renamed_and_deleted(visitor: Visitor) -> None:
    page = visitor.open("/traces?service=payments&errors=1")
    page.get_by_role("button", name="Saved").click()
    page.get_by_role("menuitem", name="Save this search").click()
    page.get_by_label("Name").fill(f"failed {HOSTILE}")
    page.keyboard.press("Enter")
    page.goto(visitor.url + "/traces")
    page.get_by_role("button", name="Saved").click()
    page.get_by_role("menuitem", name="failed").click()
    expect(page).to_have_url(visitor.url + "/traces?service=payments&errors=1")
    expect(page.get_by_label("With errors")).to_be_checked()
    page.get_by_role("button", name="Saved").click()
    page.get_by_role("menuitem", name="Rename or delete").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("declined")
    page.get_by_role("button", name="Rename").click()
    page.get_by_role("button", name="Delete declined").click()
    expect(page.get_by_text("None is left")).to_be_visible()


def test_two_traces_are_compared(visitor: Visitor) -> None:
    page = visitor.open("/traces?service=payments")
    boxes = page.locator("tbody input[type=checkbox]")
    for place in (0, 1):
        boxes.nth(place).check()
    target = page.get_by_role("link", name="Compare the two").get_attribute("href")
    expect(page).to_have_url(re.compile("pick=.*pick="))
    picked = _query(page)["pick"]
    assert target == f"traces/compare?a={picked[0]}&b={picked[1]}"


def test_the_live_list_shows_what_comes_and_can_be_held(visitor: Visitor, lake: EmbeddedLake) -> None:
    page = visitor.open("/traces?service=tailed")
    expect(page.get_by_text("No trace matches")).to_be_visible()
    page.keyboard.press("l")
    expect(page.get_by_text("Waiting for traces").first).to_be_visible()
    _write(lake, _roots("tailed", 1, 5))
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    _write(lake, _roots("tailed", 1, 5))
    expect(page.get_by_text("1 new trace since")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("p")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("button", name="Stop").click()
    expect(page).to_have_url(visitor.url + "/traces?service=tailed")


def test_an_empty_server_says_how_to_send_spans(browser: Browser, tmp_path: Path) -> None:
    with served_here(tmp_path / "warehouse") as (url, _):
        visitor = Visitor(browser, url)
        page = visitor.open("/traces")
        expect(page.get_by_text("No spans have arrived yet")).to_be_visible()
        variables = page.get_by_label("variables", exact=True).inner_text()
        port = page.evaluate("fetch('api/v1/session').then((answer) => answer.json())")["otlp_http_port"]
        assert f"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:{port}\n" in variables
        with socket.create_connection(("127.0.0.1", port), 5):
            pass  # somebody listens there
        visitor.close()
        visitor.check()


def test_a_search_is_written_as_sql(visitor: Visitor, lake: EmbeddedLake) -> None:
    where = 'http.route = "/checkout" and duration > 100ms'
    page = visitor.open(
        f"/traces?{urlencode({'service': 'web', 'q': where, 'errors': 1, 'limit': 500, 'last': 'any'})}"
    )
    page.get_by_role("button", name="As SQL").click()
    sql = page.get_by_label("SQL", exact=True).inner_text()
    found = lake.sql(sql, engine="local").rows()
    expected = lake.traces.search(service="web", where=where, has_errors=True, limit=500).traces
    assert [row["trace_id"].hex() for row in found] == [trace.trace_id for trace in expected] != []
    link = page.get_by_role("link", name="Open in the editor").get_attribute("href") or ""
    assert parse_qs(urlsplit(link).query)["q"] == [sql]
    other = visitor.open(f"/traces?{urlencode({'q': 'error or root', 'service': HOSTILE})}")
    other.get_by_role("button", name="As SQL").click()
    expect(other.get_by_label("SQL", exact=True)).to_contain_text("no short form: error or root")


def test_a_range_is_chosen_in_the_shown_zone(visitor: Visitor) -> None:
    page = visitor.open("/traces", timezone_id="Asia/Kolkata")
    page.get_by_label("Time", exact=True).select_option("edit")
    page.get_by_label("From").fill("2026-01-02 10:30")
    page.get_by_label("Until").fill("yesterday")
    page.get_by_role("button", name="Use these dates").click()
    expect(page.get_by_text("Write it as 2026-11-17")).to_be_visible()
    page.get_by_label("Until").fill("2026-01-02 12:30")
    page.get_by_role("button", name="Use these dates").click()
    expect(page.get_by_label("Time", exact=True)).to_contain_text("2026-01-02 10:30:00 – 12:30:00 UTC+05:30")
    assert _query(page)["start"] == [str(1767330000 * 10**9)]
    page.get_by_role("button", name="Search any time").click()
    expect(page.locator("tbody tr").first).to_be_visible()


@pytest.mark.parametrize(("width", "dark"), [pytest.param(1400, True, marks=pytest.mark.slow), (360, False)])
def test_the_page_with_a_box_is_accessible_and_fits(visitor: Visitor, width: int, dark: bool) -> None:
    page = visitor.open("/traces?last=3h", width=width, dark=dark)
    page.locator(".heat").focus()
    page.keyboard.press("ArrowUp")
    for _ in range(8):
        page.keyboard.press("Shift+ArrowDown")
        page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.locator(".difference").first).to_be_visible()
    check_width(page)
    check_accessible(page)
