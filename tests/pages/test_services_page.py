"""The services in a browser: rate, errors and durations by an attribute, and the map."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from browsers import Visitor, check_accessible, check_width
from crannog.embedded import EmbeddedLake


def test_figures_are_grouped_by_any_attribute_and_lead_to_traces(visitor: Visitor, lake: EmbeddedLake) -> None:
    page = visitor.open("/services?last=24h")
    expect(page.locator(".chart canvas")).to_have_count(3)
    payments = page.get_by_role("row").filter(has=page.get_by_role("link", name="payments"))
    expect(payments.get_by_text(re.compile(r"^[\d.]+/(h|min)$"))).to_be_visible()
    by = page.get_by_role("combobox", name="By")
    by.fill("http.rou")
    page.get_by_role("option", name="http.route").click()
    [checkout] = lake.traces.metrics(step="36500d", group_by="http.route", where='http.route = "/checkout"')
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="/checkout"))
    expect(row).to_contain_text(f"{checkout.count:,}")
    page.get_by_role("button", name="p95").click()
    expect(page).to_have_url(f"{visitor.url}/services?last=24h&by=http.route&sort=-p95")
    row.get_by_role("link", name="/checkout").click()
    expect(page.get_by_role("combobox", name="Filter")).to_have_value('http.route is "/checkout"')
    expect(page.locator("tbody tr").first).to_contain_text("/checkout")


def test_the_map_shows_calls_with_errors_and_leads_to_services(visitor: Visitor, lake: EmbeddedLake) -> None:
    page = visitor.open("/services?tab=map&last=24h")
    [edge] = [each for each in lake.traces.dependencies() if each.child == "payments"]
    calls = page.get_by_role("region", name="Calls").get_by_role("row").filter(has_text="payments")
    expect(calls).to_contain_text(f"{edge.calls:,}")
    node = page.get_by_role("region", name="Service map").get_by_role("link", name="payments")
    expect(node).to_contain_text("✕")
    node.click()
    expect(page.get_by_role("combobox", name="Service")).to_have_value("payments")
    expect(page.get_by_role("link", name="charge").first).to_be_visible()


@pytest.mark.parametrize(
    ("tab", "width", "dark"),
    [
        ("figures", 360, False),
        ("map", 1400, True),
        pytest.param("figures", 1400, True, marks=pytest.mark.slow),
        pytest.param("map", 360, False, marks=pytest.mark.slow),
    ],
)
def test_the_page_is_accessible_and_fits(visitor: Visitor, tab: str, width: int, dark: bool) -> None:
    page = visitor.open(f"/services?tab={tab}&last=24h", width=width, dark=dark)
    expect(page.locator("tbody tr").first).to_be_visible()
    check_width(page)
    check_accessible(page)
