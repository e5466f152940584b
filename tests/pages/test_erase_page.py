"""Erasing in a browser: find a person over tables and traces, hide, erase by typing a word, and one receipt to print."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator

import pyarrow as pa
import pytest
from playwright.sync_api import Page, Request, Route, expect

from browsers import Visitor, check_accessible, check_width, reason_to_skip, served_here
from crannog.api.reports import ErasureReceipt, Place
from crannog.embedded import EmbeddedLake
from crannog.engine.maintenance import receipts
from crannog.server.auth import Tokens
from crannog.storage.local import LocalStorage

HOSTILE = "<img src=x onerror=alert(1)>"
PEOPLE = "crm.pages.people"


def _filled(lake: EmbeddedLake, schema: str) -> tuple[str, str]:
    """Make two tables: a person by mail, and the person's notes by the number of the person."""
    people = f"crm.{schema}.people"
    notes = f"crm.{schema}.notes"
    lake.create_table(people, pa.schema([("person_id", pa.int64()), ("email", pa.string())]), key="person_id").append(
        [{"person_id": n, "email": f"{schema}-{n}@x.example"} for n in range(1, 6)]
    )
    fields = pa.schema([("note_id", pa.string()), ("person_id", pa.int64()), ("text", pa.string())])
    rows = [{"note_id": f"{HOSTILE}{n}", "person_id": n % 3, "text": HOSTILE} for n in range(9)]
    lake.create_table(notes, fields, key="note_id").append(rows)
    return people, notes


def _receipt(table: str, erased: int = 1) -> ErasureReceipt:
    places = (Place("live files", 3, 1, 0), Place("audit texts", 2, 0, 0))
    now = dt.datetime.now(dt.UTC)
    return ErasureReceipt(
        table, erased, ("ab" * 32,), f"dpo {HOSTILE}", "request 7", now, erased, places, 2, (1,), 0, 1.5
    )


def _look_for(page: Page, name: str, value: str) -> None:
    page.get_by_label("Column or attribute", exact=True).fill(name)
    page.get_by_label("Is", exact=True).fill(value)
    page.keyboard.press("Enter")


def test_a_person_is_found_and_hidden(visitor: Visitor, lake: EmbeddedLake) -> None:
    people, notes = _filled(lake, "hidden")
    page = visitor.open("/erase")
    _look_for(page, "email", "hidden-2@x.example")
    found = page.get_by_role("region", name="What was found")
    expect(found.get_by_role("row").filter(has_text=people)).to_contain_text("1 row")
    # The person's number is the key, and other tables have it too.
    page.get_by_role("button", name="Also look by person_id = 2").click()
    expect(found.get_by_role("row").filter(has_text=notes)).to_contain_text("3 rows")
    found.get_by_text("Keys").nth(1).click()
    expect(found).to_contain_text(HOSTILE)
    hide = page.get_by_role("button", name="Hide 4 rows now")
    expect(hide).to_be_disabled()
    page.get_by_label("Reason").fill("request 7")
    hide.click()
    expect(found.locator(".badge.ok", has_text="hidden")).to_have_count(2)
    assert lake.table(people).count() == 4
    assert lake.table(notes).count() == 6
    [stone] = lake.table(people).tombstones()
    assert (stone["actor"], stone["reason"]) == ("local", "request 7")
    # What a person is known by stays out of the address, and hidden rows can still be erased.
    assert page.url == visitor.url + "/erase"
    page.reload()
    _look_for(page, "email", "hidden-2@x.example")
    expect(found.get_by_role("row").filter(has_text=people)).to_contain_text("1 row")


def test_traces_are_found_by_an_attribute(visitor: Visitor) -> None:
    page = visitor.open("/erase")
    _look_for(page, "user.id", "nobody at all")
    expect(page.get_by_text("Nothing was found")).to_be_visible()
    page.get_by_label("Column or attribute", exact=True).fill("service.name")
    page.get_by_label("Is", exact=True).fill("payments")
    page.get_by_role("button", name="Find", exact=True).click()
    row = page.get_by_role("region", name="What was found").get_by_role("row").filter(has_text="Traces")
    expect(row).to_contain_text("payments")


def test_erasing_needs_a_word_and_ends_with_one_receipt(visitor: Visitor, lake: EmbeddedLake) -> None:
    people, notes = _filled(lake, "erased")
    requested: list[Request] = []

    def erase(route: Route) -> None:
        # In place of Spark, which takes too long here; the slow test below erases for real.
        requested.append(route.request)
        body = json.loads(route.request.post_data or "")
        table = route.request.url.split("/")[-2]
        if len(requested) == 2:
            error = {"code": "unavailable", "message": "Spark is busy; try again", "retry_after_s": None}
            lines = [{"progress": {"step": "fold", "share": 0.5}}, {"error": error}]
        else:
            kept = receipts.kept(lake.operations.warehouse.storage, _receipt(table), body["erasure_id"])
            lines = [{"progress": {"step": "verify", "share": 0.8}}, {"result": {"table": kept.table}}]
        route.fulfill(body="\n".join(map(json.dumps, lines)), content_type="application/x-ndjson")

    page = visitor.open("/erase")
    page.route("**/erase", lambda route: erase(route) if route.request.method == "POST" else route.continue_())
    page.get_by_label("Also in traces").uncheck()
    _look_for(page, "person_id", "2")
    page.get_by_role("checkbox", name=people).wait_for()
    for box in page.get_by_role("region", name="What was found").get_by_role("checkbox").all():
        box.uncheck()
    page.get_by_role("checkbox", name=people).check()
    page.get_by_role("checkbox", name=notes).check()
    page.get_by_label("Reason").fill("request 7")
    page.get_by_role("button", name="Erase now…").click()
    dialog = page.get_by_role("dialog", name="Erase for good?")
    expect(dialog).to_contain_text("cannot be undone")
    go_on = dialog.get_by_role("button", name="Erase for good")
    expect(go_on).to_be_disabled()
    check_accessible(page)
    dialog.get_by_label("Write erase to confirm").fill("erase")
    go_on.click()
    # The second table fails: it says so, what is done stays done, and one goes on under the same receipt.
    expect(dialog.get_by_role("alert")).to_contain_text("Spark is busy; try again")
    expect(dialog.locator(".badge.ok", has_text="erased")).to_have_count(1)
    dialog.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Receipt of an erasure")
    bodies = [json.loads(request.post_data or "") for request in requested]
    assert [request.url.split("/")[-2] for request in requested] == [notes, people, people]
    assert len({body["erasure_id"] for body in bodies}) == 1
    assert page.url.endswith(f"/receipts/{bodies[0]['erasure_id']}")
    expect(page.get_by_text("nothing left in any place that was looked at")).to_be_visible()
    expect(page.locator(".receipt h2")).to_have_text([notes, people])


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (360, True)])
def test_a_receipt_is_printed_without_the_frame(visitor: Visitor, lake: EmbeddedLake, width: int, dark: bool) -> None:
    kept = receipts.kept(lake.operations.warehouse.storage, _receipt(f"shop.printed.people{width}"), None)
    page = visitor.open("/erase", width=width, dark=dark)
    page.get_by_role("link", name=kept.erasure_id[:12]).wait_for()
    check_width(page)
    check_accessible(page)
    page.get_by_role("link", name=kept.erasure_id[:12]).click()
    expect(page.get_by_text(f"dpo {HOSTILE}")).to_be_visible()
    check_width(page)
    check_accessible(page)
    page.emulate_media(media="print")
    expect(page.get_by_role("button", name="Print")).to_be_hidden()
    expect(page.locator("nav").first).to_be_hidden()
    expect(page.get_by_text("ab" * 32)).to_be_visible()
    # On paper it is dark on light, whatever the screen is.
    ink = page.get_by_text("request 7").evaluate("(element) => getComputedStyle(element).color")
    assert ink == "rgb(0, 0, 0)"


def test_a_receipt_that_is_not_there_says_so(visitor: Visitor) -> None:
    page = visitor.open("/receipts/nothing")
    expect(page.get_by_text("There is no such receipt")).to_be_visible()
    visitor.wrong = [each for each in visitor.wrong if "404" not in each]


@pytest.fixture
def reader(visitor: Visitor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of a server with tokens, signed in with one that may only read."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    warehouse = tmp_path_factory.mktemp("readers") / "warehouse"
    warehouse.mkdir()
    token = Tokens(LocalStorage(warehouse)).create("reader", ["read"])
    with served_here(warehouse) as (url, lake):
        _filled(lake, "pages")
        visitor.url = url
        page = visitor.open("/erase")
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        yield page
        visitor.close()
        visitor.wrong = [each for each in visitor.wrong if "401" not in each]


def test_who_may_not_erase_is_told(reader: Page) -> None:
    expect(reader.get_by_text("Your token may not erase")).to_be_visible()
    expect(reader.get_by_role("link", name="Erase")).to_have_count(0)
    reader.goto(reader.url.replace("/erase", "/audit"))
    expect(reader.get_by_text("Your token may not read the audit")).to_be_visible()
    reader.goto(reader.url.replace("/audit", "/upkeep"))
    expect(reader.get_by_role("button", name=f"Start a job on {PEOPLE}")).to_be_disabled()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_erasing_for_real_leaves_a_receipt(visitor: Visitor, lake: EmbeddedLake) -> None:
    people, _ = _filled(lake, "real")
    page = visitor.open("/erase")
    page.get_by_label("Also in traces").uncheck()
    _look_for(page, "email", "real-3@x.example")
    page.get_by_label("Reason").fill("request 8")
    page.get_by_role("button", name="Erase now…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Write erase to confirm").fill("erase")
    dialog.get_by_role("button", name="Erase for good").click()
    expect(page.get_by_text("nothing left in any place that was looked at")).to_be_visible(timeout=800_000)
    assert lake.table(people).count(raw=True) == 4
