"""Conversations with language models: messages in one form for all conventions, sessions, and use over time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from crannog.api.traces import Event, Message, MessagePart, Span
from crannog.errors import CallerError, NotFound
from crannog.formats.json_values import to_lossless_json
from crannog.settings import Settings
from crannog.traces.llm.llm_messages import messages_of, shortened
from llm_samples import VERCEL
from otlp_samples import START, request_of, span, span_id, trace_id
from test_traces_show import Store

S = 10**9


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = Store(settings)
    yield store
    store.warehouse.close()


def made(attributes: dict[str, Any] | None = None, events: list[Event] | None = None, **more: Any) -> Span:
    return Span(
        *("00" * 16, "00" * 8, None, "chat", "s", "CLIENT", 0, 1, "UNSET", ""),
        *(attributes or {}, {}, "", "", {}, tuple(events or ()), (), "", 0),
        **more,
    )


def text(content: str) -> MessagePart:
    return MessagePart("text", text=content)


ASKED = Message("user", (text("Weather in Rome?"),))
CALLED = Message(
    "assistant", (MessagePart("tool_call", id="c1", name="weather", value={"city": "Rome"}),), finish_reason="tool_call"
)
ANSWERED = Message("tool", (MessagePart("tool_result", id="c1", value={"sky": "sunny"}),))
SAID = Message("assistant", (text("Sunny."),))
SYSTEM = Message("system", (text("Be brief."),))

GEN_AI = {
    "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
    "gen_ai.input.messages": json.dumps(
        [
            {"role": "user", "parts": [{"type": "text", "content": "Weather in Rome?"}]},
            {
                "role": "assistant",
                "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Rome"}}],
                "finish_reason": "tool_call",
            },
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"sky": "sunny"}}]},
        ]
    ),
    "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "Sunny."}]}]),
}
OPEN_INFERENCE = {
    "llm.input_messages.0.message.role": "system",
    "llm.input_messages.0.message.content": "Be brief.",
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.contents.0.message_content.type": "text",
    "llm.input_messages.1.message.contents.0.message_content.text": "Weather in Rome?",
    "llm.input_messages.2.message.role": "assistant",
    "llm.input_messages.2.message.tool_calls.0.tool_call.id": "c1",
    "llm.input_messages.2.message.tool_calls.0.tool_call.function.name": "weather",
    "llm.input_messages.2.message.tool_calls.0.tool_call.function.arguments": '{"city": "Rome"}',
    "llm.input_messages.2.message.finish_reason": "tool_call",
    "llm.input_messages.10.message.role": "tool",
    "llm.input_messages.10.message.tool_call_id": "c1",
    "llm.input_messages.10.message.content": '{"sky": "sunny"}',
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": "Sunny.",
}
TRACELOOP = {
    "gen_ai.prompt.0.role": "system",
    "gen_ai.prompt.0.content": "Be brief.",
    "gen_ai.prompt.1.role": "user",
    "gen_ai.prompt.1.content": "Weather in Rome?",
    "gen_ai.prompt.2.role": "assistant",
    "gen_ai.prompt.2.finish_reason": "tool_call",
    "gen_ai.prompt.2.tool_calls.0.id": "c1",
    "gen_ai.prompt.2.tool_calls.0.name": "weather",
    "gen_ai.prompt.2.tool_calls.0.arguments": '{"city": "Rome"}',
    "gen_ai.prompt.3.role": "tool",
    "gen_ai.prompt.3.tool_call_id": "c1",
    "gen_ai.prompt.3.content": '{"sky": "sunny"}',
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.content": "Sunny.",
}
EVENTS = [
    Event("gen_ai.system.message", 0, {"content": "Be brief."}),
    Event("gen_ai.user.message", 1, {"content": "Weather in Rome?"}),
    Event(
        "gen_ai.assistant.message",
        2,
        {
            "tool_calls": '[{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\\"city\\": \\"Rome\\"}"}}]',
            "finish_reason": "tool_call",
        },
    ),
    Event("gen_ai.tool.message", 3, {"id": "c1", "content": '{"sky": "sunny"}'}),
    Event("gen_ai.choice", 4, {"index": 0, "message": '{"role": "assistant", "content": "Sunny."}'}),
]
CHAT_COMPLETION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Weather in Rome?"}]},
    {
        "role": "assistant",
        "content": None,
        "finish_reason": "tool_call",
        "tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": '{"sky": "sunny"}'},
]


@pytest.mark.parametrize(
    "sent",
    [
        made(GEN_AI),
        made(events=[Event("gen_ai.client.inference.operation.details", 0, GEN_AI)]),
        made(events=EVENTS),
        made(OPEN_INFERENCE),
        made(TRACELOOP),
        made(
            input=json.dumps({"messages": CHAT_COMPLETION}),
            output=json.dumps({"choices": [{"message": {"role": "assistant", "content": "Sunny."}}]}),
        ),
    ],
    ids=["attributes", "an event", "events", "OpenInference", "Traceloop", "chat completion"],
)
def test_every_convention_gives_the_same_messages(sent: Span) -> None:
    assert messages_of(sent) == ((SYSTEM, ASKED, CALLED, ANSWERED), (SAID,))


def test_other_payloads_are_shown_as_they_are() -> None:
    assert messages_of(made()) == ((), ())
    assert messages_of(made(input='"plain"', output='{"answer": 42}')) == (
        (Message("input", (text("plain"),)),),
        (Message("output", (MessagePart("json", value={"answer": 42}),)),),
    )
    parts = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "blob", "mime_type": "audio/wav", "content": "AAAA"},
        {"type": "tool_result", "tool_use_id": "c2", "content": "done"},
        {"type": "other", "x": 1},
    ]
    [message], _ = messages_of(made({"gen_ai.input.messages": json.dumps([{"role": "user", "content": parts}])}))
    assert message.parts == (
        MessagePart("reasoning", text="hm"),
        MessagePart("media", uri="https://x/y.png", media_type="image_url"),
        MessagePart("media", media_type="image"),
        MessagePart("media", media_type="audio/wav"),
        MessagePart("tool_result", id="c2", value="done"),
        MessagePart("json", value={"type": "other", "x": 1}),
    )


def test_long_texts_are_cut() -> None:
    given = [Message("user", (text("abcdef"), text("ab"), MessagePart("json", value={"k": "v" * 10})))]
    [cut] = shortened(given, 3)
    assert [(part.text, part.cut) for part in cut.parts] == [("abc", 3), ("ab", 0), ('{"k', 16)]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "parts", "type", "message", "tool_calls", "function", "name", "0", "image_url"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
odd_keys = st.sampled_from(
    [
        *("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.prompt"),
        *(
            "llm.input_messages",
            "llm.input_messages.0",
            "llm.input_messages.0.message",
            "llm.input_messages.x.message.role",
        ),
        *(
            "llm.input_messages.0.message.role",
            "llm.input_messages.0.message.contents.0",
            "gen_ai.prompt.0.tool_calls.0",
        ),
        "llm.input_messages.²." + "a." * 100,
        "llm.input_messages.99999999999999999999.message.role",
    ]
)


@settings_of(max_examples=150, deadline=None)
@given(
    st.dictionaries(odd_keys, anything | anything.map(lambda value: json.dumps(value, default=str)), max_size=5),
    st.text(),
)
def test_nothing_that_is_sent_breaks_it(attributes: dict[str, Any], payload: str) -> None:
    events = [Event(name, 0, attributes) for name in ("gen_ai.choice", "gen_ai.tool.message")]
    for sent in (made(attributes), made(events=events), made(input=payload, output=json.dumps(payload))):
        given, returned = messages_of(sent)
        assert json.dumps(to_lossless_json([*shortened(given, 5), *shortened(returned, 5)]))


def test_deep_nesting_stays_text() -> None:
    deep = "[" * 500 + "]" * 500
    [message], _ = messages_of(made(input=deep))
    assert message.parts == (text(deep),)
    assert messages_of(made(input="[" * 100_000))[0][0].parts[0].text == "[" * 100_000


# -- through the store -------------------------------------------------------------------------------------------------


def call(trace: int, number: int, at: int, model: str, tokens: tuple[int, int], **more: Any) -> Any:
    usage = {
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": tokens[0],
        "gen_ai.usage.output_tokens": tokens[1],
    }
    return span(
        trace, number, 1, start=START + at * S, took=S, attributes={**usage, **more.pop("attributes", {})}, **more
    )


def send_sessions(store: Store) -> None:
    """Session s1 has two traces, with the session on their roots only; s2 has one, whose calls name it themselves."""
    store.send(
        span(1, 1, start=START, took=S, attributes={"session.id": "s1", "user.id": "ann"}),
        call(1, 2, 1, "m1", (10, 1)),
        call(1, 3, 2, "m2", (20, 2), status={"code": 2}),
        span(2, 1, start=START + 60 * S, took=S, attributes={"session.id": "s1", "user.id": "bob"}),
        call(2, 2, 61, "m1", (40, 4), attributes={"gen_ai.usage.cost": 0.5}),
        span(3, 1, start=START + 30 * S, took=S),
        call(3, 2, 30, "m1", (100, 8), attributes={"gen_ai.conversation.id": "s2", "user.id": "ann"}),
        call(4, 2, 10, "m3", (7, 7)),  # without a session
    )


def test_sessions_have_their_traces_tokens_and_users(store: Store) -> None:
    assert store.sessions().sessions == ()
    send_sessions(store)
    first, second = store.sessions().sessions
    assert (first.session_id, first.users, first.models) == ("s1", ("ann", "bob"), ("m1", "m2"))
    assert (first.traces, first.spans, first.calls, first.errors) == (2, 5, 3, 1)
    assert (first.input_tokens, first.output_tokens, first.cost) == (70, 7, 0.5)
    assert (first.start_ns, first.end_ns) == (START, START + 62 * S)
    assert (second.session_id, second.users, second.input_tokens, second.cost) == ("s2", ("ann",), 100, None)
    page = store.sessions(limit=1)
    assert ([one.session_id for one in page.sessions], page.next_offset) == (["s1"], 1)
    page = store.sessions(limit=1, offset=1)
    assert ([one.session_id for one in page.sessions], page.next_offset) == (["s2"], None)
    assert [one.session_id for one in store.sessions('model = "m2"').sessions] == ["s1"]
    assert [one.session_id for one in store.sessions('user = "ann" and model = "m1"').sessions] == ["s1", "s2"]
    assert [one.input_tokens for one in store.sessions(end=START + 30 * S).sessions] == [30]


def test_use_is_counted_by_time_model_and_user(store: Store) -> None:
    assert store.usage() == []
    send_sessions(store)
    [everything] = store.usage()
    assert (everything.start, everything.calls, everything.errors) == (None, 5, 1)
    assert (everything.input_tokens, everything.output_tokens, everything.cost) == (177, 22, 0.5)
    by_user = {point.group["user"]: point.input_tokens for point in store.usage(group_by="user")}
    assert by_user == {None: 7, "ann": 130, "bob": 40}
    by_model = store.usage("1m", ["model"])
    assert all(point.start is not None and point.start.second == 0 for point in by_model)
    assert sum(point.calls for point in by_model) == 5
    assert {point.group["model"] for point in by_model} == {"m1", "m2", "m3"}
    assert [point.input_tokens for point in store.usage(where='user = "bob"')] == [40]


def test_messages_of_a_trace_in_tree_order(store: Store) -> None:
    name = trace_id(5).hex()
    with pytest.raises(NotFound):
        store.messages(name)
    events = span(5, 3, 1, start=START + 2)
    for event in EVENTS:
        events.events.add(name=event.name, time_unix_nano=START + event.time_ns, attributes=request_of(span(1, 1, attributes=event.attributes)).resource_spans[0].scope_spans[0].spans[0].attributes)  # fmt: skip
    store.send(
        span(5, 1, start=START, took=S),
        span(5, 2, 1, start=START + 1, attributes={**GEN_AI, "gen_ai.operation.name": "chat"}),
        events,
        *(span(6, number, attributes=sample[2]) for number, sample in enumerate(VERCEL, 1)),
    )
    found = store.messages(name)
    assert [(one.span_id, one.row, one.operation) for one in found.spans] == [
        (span_id(2).hex(), 1, "chat"),
        (span_id(3).hex(), 2, None),
    ]
    for one in found.spans:
        assert (one.input, one.output) == ((SYSTEM, ASKED, CALLED, ANSWERED), (SAID,))
    assert (found.total, found.next_offset) == (2, None)
    page = store.messages(name, offset=1, limit=1)
    assert ([one.row for one in page.spans], page.next_offset) == ([2], None)
    assert store.messages(name, limit=1).next_offset == 1
    [only] = store.messages(name, span_id(1).hex()).spans
    assert (only.input, only.output) == ((), ())
    [cut] = store.messages(name, span_id(2).hex(), max_chars=2).spans
    assert (cut.input[1].parts[0].text, cut.input[1].parts[0].cut) == ("We", 14)
    assert len(store.messages(trace_id(6).hex()).spans) >= 3
    wrong: Any
    for wrong in ({"span_id": "zz"}, {"limit": 0}, {"offset": -1}, {"max_chars": 0}, {"max_chars": True}):
        with pytest.raises(CallerError):
            store.messages(name, **wrong)
