"""The frame of the pages, home, and what holds for all pages: keys, search, address, colours, zones, hostile text."""

from __future__ import annotations

import json
import time

import pytest
from playwright.sync_api import expect

from browsers import Visitor, behind_prefix, check_accessible, check_width
from crannog.embedded import EmbeddedLake
from crannog.tour.samples.spans import SERVER, Made, otlp_bodies

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (360, True)])
def test_home_is_accessible_and_fits(visitor: Visitor, width: int, dark: bool) -> None:
    page = visitor.open("/", width=width, dark=dark)
    expect(page.get_by_role("region", name="Tables").get_by_role("row").nth(1)).to_be_visible()
    check_width(page)
    check_accessible(page)


def test_home_shows_what_is_in_the_lake(visitor: Visitor) -> None:
    page = visitor.open("/")
    orders = page.get_by_role("row").filter(has_text="shop.sales.orders")
    expect(orders).to_contain_text("795")
    builds = page.get_by_role("region", name="Latest builds")
    expect(builds.get_by_text("completed").first).to_be_visible()
    expect(page.locator(".chart canvas")).to_be_visible()
    page.get_by_role("link", name="All traces").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Traces")
    assert page.url == visitor.url + "/traces"
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Home")


def test_the_search_finds_tables_services_and_traces(visitor: Visitor, lake: EmbeddedLake) -> None:
    page = visitor.open("/")
    page.keyboard.press("/")
    box = page.get_by_role("dialog").get_by_role("combobox")
    box.fill("orders")
    expect(page.get_by_role("dialog").get_by_role("option").first).to_contain_text("shop.sales.orders")
    box.fill("paym")
    page.get_by_role("dialog").get_by_role("option").filter(has_text="payments").first.click()
    expect(page.get_by_label("Service")).to_have_value("payments")
    assert page.url == visitor.url + "/traces?service=payments"
    trace = lake.traces.search(limit=1).traces[0].trace_id
    page.keyboard.press("Control+k")
    box.fill(trace)
    expect(page.get_by_role("dialog").get_by_role("option").first).to_contain_text(trace)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_keys_are_listed_and_lead_to_pages(visitor: Visitor) -> None:
    page = visitor.open("/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Go to Traces")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.get_by_role("heading", level=1)).to_have_text("Traces")


def test_the_address_reopens_the_same_view(visitor: Visitor) -> None:
    page = visitor.open("/traces")
    page.get_by_label("With errors").check()
    page.get_by_label("Order").select_option("longest")
    expect(page.locator("tbody tr .badge.error:visible").first).to_be_visible()
    assert page.url == visitor.url + "/traces?errors=1&order=longest"
    again = visitor.open("/traces?errors=1&order=longest")
    first = again.locator("tbody tr").first.inner_text()
    expect(page.locator("tbody tr").first).to_have_text(first, use_inner_text=True)
    page.go_back()
    page.go_back()
    expect(page.get_by_label("With errors")).not_to_be_checked()


def test_times_show_their_zone_and_switch(visitor: Visitor) -> None:
    page = visitor.open("/traces", timezone_id="Asia/Kolkata")
    time_shown = page.locator("tbody time").first
    expect(time_shown).to_contain_text("UTC+05:30")
    assert time_shown.get_attribute("title")[-6:] == "+05:30"  # type: ignore[index]
    page.get_by_role("button", name="Local time").click()
    expect(time_shown).not_to_contain_text("05:30")
    title = time_shown.get_attribute("title")
    assert title is not None
    assert title.endswith("Z")
    assert len(title) == len("2026-11-17T18:31:41.610000000Z")


def test_colours_switch_and_stay(visitor: Visitor) -> None:
    page = visitor.open("/")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="View").click()
    page.get_by_role("menuitem", name="Dark").click()
    assert page.evaluate(ground) != light
    page.reload()
    page.wait_for_selector("h1")
    assert page.evaluate(ground) != light


def test_an_address_without_a_page_says_so(visitor: Visitor) -> None:
    page = visitor.open("/")
    page.evaluate("history.pushState(null, '', 'traces/a/b/c/d'); dispatchEvent(new PopStateEvent('popstate'))")
    expect(page.get_by_text("There is no such page")).to_be_visible()


def test_what_senders_wrote_is_text(visitor: Visitor, lake: EmbeddedLake) -> None:
    now = time.time_ns()
    span = Made("f" * 32, "f" * 16, "", f"svc {HOSTILE}", HOSTILE, SERVER, now - 10**9, now)
    [body] = otlp_bodies([[span]])
    assert lake.traces.write_otlp(body, content_type="application/json").accepted == 1
    page = visitor.open("/traces")
    expect(page.locator("tbody tr").filter(has_text=HOSTILE)).to_be_visible()
    assert page.locator("tbody img").count() == 0


def test_an_error_says_what_to_do(visitor: Visitor) -> None:
    page = visitor.open("/")
    body = json.dumps(
        {"error": {"code": "unavailable", "message": "the disk is full; free some", "retry_after_s": None}}
    )
    page.route("**/api/v1/traces?*", lambda route: route.fulfill(status=503, body=body))
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.get_by_role("alert")).to_contain_text("the disk is full; free some")
    page.unroute("**/api/v1/traces?*")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector("tbody tr")
    # The browser itself tells of the failed request.
    visitor.wrong = [each for each in visitor.wrong if "503" not in each]


def test_the_pages_work_under_a_prefix(visitor: Visitor) -> None:
    with behind_prefix(visitor.url, "/tools/lake") as url:
        visitor.url = url
        page = visitor.open("/traces?order=longest")
        page.wait_for_selector("tbody tr")
        page.get_by_role("link", name="Home").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Home")
        page.wait_for_selector("tbody tr")
        assert page.url == url + "/"
        visitor.close()  # before the proxy ends, so that no request is refused
