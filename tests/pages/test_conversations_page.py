"""Conversations with language models in a browser: sessions, use over time, and the messages of a session."""

from __future__ import annotations

import json
import time

import pytest
from playwright.sync_api import expect

from browsers import Visitor, check_accessible, check_width
from crannog.embedded import EmbeddedLake
from crannog.tour.samples.spans import CLIENT, MS, Made, otlp_bodies
from large_traces import HOSTILE

SESSION = "odd session / <b>"
CODE = f"Try *this*:\n\n```python\nprint('{HOSTILE}')\n```\nand **that**."
PICTURE = "data:image/png;base64," + "iVBORw0KGgo" * 60


@pytest.fixture(autouse=True, scope="module")
def odd(sample_server: tuple[str, EmbeddedLake]) -> None:
    """A session of two turns with hostile text, code, encoded bytes, and a very long answer."""
    now = time.time_ns() - 60 * 10**9
    said: list[dict[str, object]] = []

    def say(role: str, *parts: dict[str, object]) -> dict[str, object]:
        return {"role": role, "parts": list(parts)}

    def text(content: str) -> dict[str, object]:
        return {"type": "text", "content": content}

    traces = []
    answers = (text(CODE), text("word " * 6_000))
    for turn, answer in enumerate(answers):
        said.append(say("user", text("yes" if turn else f"help {HOSTILE}"), text(PICTURE)))
        span = Made(
            f"{0xC0FFEE + turn:032x}",
            f"{0xC0FFEE + turn:016x}",
            "",
            "assistant",
            "chat model-x",
            CLIENT,
            now + turn * 1_000 * MS,
            now + (turn * 1_000 + 500) * MS,
        )
        span.attributes = {
            "session.id": SESSION,
            "user.id": "odd-user",
            "gen_ai.operation.name": "chat",
            "gen_ai.response.model": "model-x",
            "gen_ai.usage.input_tokens": 11,
            "gen_ai.usage.output_tokens": 7,
            "gen_ai.input.messages": json.dumps(said),
            "gen_ai.output.messages": json.dumps([say("assistant", answer)]),
        }
        said.append(say("assistant", answer))
        traces.append([span])
    for body in otlp_bodies(traces):
        sample_server[1].traces.write_otlp(body, content_type="application/json")


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (360, True)])
@pytest.mark.parametrize("address", ["/conversations", "/conversations/chat-0001?steps=1"])
def test_the_pages_are_accessible_and_fit(visitor: Visitor, address: str, width: int, dark: bool) -> None:
    page = visitor.open(address, width=width, dark=dark)
    page.wait_for_selector(".message, tbody tr")
    check_width(page)
    check_accessible(page)


def test_sessions_and_use_over_time_are_listed(visitor: Visitor) -> None:
    page = visitor.open("/conversations")
    row = page.get_by_role("row").filter(has_text=SESSION)
    expect(row).to_contain_text("odd-user")
    expect(row).to_contain_text("model-x")
    expect(row).to_contain_text("22")
    expect(page.locator(".u-legend")).to_contain_text("model-x")
    page.get_by_label("By", exact=True).select_option("user")
    expect(page.locator(".chart figcaption")).to_contain_text("by user")
    page.get_by_label("Filter").fill('user = "odd-user"')
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("region", name="Sessions").locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name=SESSION).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(SESSION)
    expect(page.locator(".session-facts")).to_contain_text("22 tokens in, 14 tokens out")


def test_a_conversation_reads_once_and_as_text(visitor: Visitor) -> None:
    page = visitor.open("/conversations/" + "odd%20session%20%2F%20%3Cb%3E")
    users = page.locator(".message.user")
    expect(users).to_have_count(2)  # the second call repeats the first question, the page does not
    expect(users.first).to_contain_text(f"help {HOSTILE}")
    expect(users.first).to_contain_text("of image/png, as base64")
    assert "iVBORw0KGgo" not in page.locator("main").inner_text()
    first = page.locator(".message.assistant").first
    expect(first.locator("pre")).to_have_text(f"print('{HOSTILE}')")
    expect(first).to_contain_text("Try *this*:")
    assert page.locator("main img, main script, main b").count() == 0
    long = page.locator(".message.assistant").nth(1)
    assert len(long.inner_text()) < 21_000
    long.get_by_role("button", name="more characters").click()
    expect(long.get_by_role("button", name="more characters")).to_have_count(0)
    assert len(long.inner_text()) > 29_000
    page.get_by_role("link", name="chat model-x").first.click()
    panel = page.get_by_role("complementary", name="Span")
    expect(panel).to_contain_text("model-x")
    expect(panel.locator(".message.user")).to_contain_text("of image/png, as base64")


@pytest.mark.parametrize("session", ["chat-0001", "chat-0002"])
def test_tools_are_shown_in_both_conventions(visitor: Visitor, session: str) -> None:
    page = visitor.open(f"/conversations/{session}")
    turn = page.locator(".transcript .panel").first
    expect(turn.locator(".message.system")).to_have_count(1)
    expect(turn.locator(".message.user")).to_have_count(1)
    expect(turn.locator(".message.assistant").first).to_contain_text("Calls")
    expect(turn.locator(".message.tool")).to_contain_text("found")
    expect(turn.locator(".message.assistant").last).not_to_contain_text("Calls")
    expect(turn.locator(".entry.step")).to_have_count(0)
    page.get_by_label("Show tools").check()
    expect(turn.locator(".entry.step").first).to_be_visible()


def test_an_unknown_session_says_so(visitor: Visitor) -> None:
    page = visitor.open("/conversations/nobody")
    expect(page.get_by_text("There is no such conversation")).to_be_visible()
