"""Signing in where tokens are set: the cookie, what a token may see, and the end of a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browsers import Visitor, check_accessible, reason_to_skip, served_here
from crannog.server.auth import Tokens
from crannog.storage.local import LocalStorage

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Tokens, str]]:
    """A server with tokens: its address, its tokens, and one that may read."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    warehouse = tmp_path_factory.mktemp("guarded") / "warehouse"
    warehouse.mkdir()
    tokens = Tokens(LocalStorage(warehouse))
    token = tokens.create("reader", ["read"])
    with served_here(warehouse) as (url, _):
        yield url, tokens, token


@pytest.fixture
def stranger(browser: Browser, guarded: tuple[str, Tokens, str]) -> Iterator[Visitor]:
    found = Visitor(browser, guarded[0])
    yield found
    found.close()
    # The browser itself tells of answers with 401.
    found.wrong = [each for each in found.wrong if "401" not in each]
    found.check()


def test_a_person_signs_in_and_out(stranger: Visitor, guarded: tuple[str, Tokens, str]) -> None:
    page = stranger.open("/traces?order=longest")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Crannog")
    check_accessible(page)
    page.get_by_label("Token").fill("crannog_reader_" + "0" * 64)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("the token is not valid")).to_be_visible()
    page.get_by_label("Token").fill(guarded[2])
    page.keyboard.press("Enter")
    # The page that was asked for, and its state.
    expect(page.get_by_role("heading", level=1)).to_have_text("Traces")
    expect(page.get_by_label("Order")).to_have_value("longest")
    [cookie] = page.context.cookies(guarded[0] + "/api/v1/session")
    assert cookie.get("httpOnly")
    assert cookie.get("sameSite") == "Strict"
    assert cookie.get("path") == "/api/v1"
    assert guarded[2] not in str(page.evaluate("[document.cookie, JSON.stringify({...localStorage})]"))
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Traces")
    page.get_by_role("button", name="reader").click()
    page.get_by_role("menuitem", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Crannog")


def test_a_revoked_token_ends_the_session(stranger: Visitor, guarded: tuple[str, Tokens, str]) -> None:
    token = guarded[1].create("brief", ["read"])
    page = stranger.open("/traces")
    page.wait_for_timeout(2_100)  # the server notices new tokens within two seconds
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Traces")
    guarded[1].revoke("brief")
    page.wait_for_timeout(2_100)
    page.get_by_role("link", name="Home").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Crannog")
