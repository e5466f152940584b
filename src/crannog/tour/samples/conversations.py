"""Conversations with language models, half in the OpenTelemetry form and half in that of OpenInference."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from crannog.tour.samples.spans import CLIENT, INTERNAL, MS, SERVER, Made

_HOURS = 20
_MODELS = (("claude-sonnet-5", "anthropic"), ("gpt-5.2-mini", "openai"), ("gpt-5.2", "openai"))
_TOPICS = (
    ("Where is my order 4711?", "find_order", {"order": "4711"}, "It left Cork this morning and arrives on Thursday."),
    ("Is the blue tent in stock?", "check_stock", {"item": "tent, blue"}, "Yes: 12 are left, 3 of them in your size."),
    (
        "Can I send the boots back?",
        "return_policy",
        {"item": "boots"},
        "Yes, within 30 days. I can make a label for you.",
    ),
    (
        "Which coat is warm enough for Norway?",
        "search_items",
        {"terms": "coat winter"},
        "The Fjell parka: rated to −25 °C.",
    ),
)
_SYSTEM = "You help the customers of an outdoor shop. Use the tools; do not guess."


@dataclass(frozen=True)
class _Turn:
    """One question of a user, and what was said before it."""

    at: int
    session: str
    user: str
    model: str
    provider: str
    topic: tuple[str, str, dict[str, str], str]
    history: list[tuple[str, str]]


def conversation_traces(dice: random.Random, count: int, now: int) -> Iterator[list[Made]]:
    """Yield a trace for each turn of each conversation."""
    for number in range(count):
        session, user = f"chat-{number + 1:04}", f"customer-{dice.randint(1, 25)}"
        at = now - int(dice.random() * _HOURS * 3_600 * 1_000 * MS) - 300_000 * MS
        model, provider = dice.choice(_MODELS)
        history: list[tuple[str, str]] = []
        for topic in dice.sample(_TOPICS, dice.randint(1, 3)):
            make = _genai if number % 2 == 0 else _openinference
            yield make(dice, _Turn(at, session, user, model, provider, topic, history))
            history += [("user", topic[0]), ("assistant", topic[3])]
            at += dice.randint(15, 90) * 1_000 * MS


def _ids(dice: random.Random, count: int) -> tuple[str, list[str]]:
    return f"{dice.getrandbits(128) | 1:032x}", [f"{dice.getrandbits(64) | 1:016x}" for _ in range(count)]


def _spans(dice: random.Random, at: int, names: tuple[tuple[str, int], ...]) -> list[Made]:
    """Make an agent's turn: the agent, a model that asks for a tool, the tool, and the model again."""
    trace_id, ids = _ids(dice, len(names))
    first_ms, tool_ms, last_ms = dice.randint(500, 2_500), dice.randint(20, 300), dice.randint(700, 4_000)
    starts = (0, 5, 10 + first_ms, 15 + first_ms + tool_ms)
    lengths = (25 + first_ms + tool_ms + last_ms, first_ms, tool_ms, last_ms)
    return [
        Made(
            trace_id,
            ids[place],
            ids[0] if place else "",
            "assistant",
            name,
            kind,
            at + starts[place] * MS,
            at + (starts[place] + lengths[place]) * MS,
        )
        for place, (name, kind) in enumerate(names)
    ]


def _tokens(dice: random.Random, history: list[tuple[str, str]]) -> tuple[int, int]:
    return 240 + 60 * len(history) + dice.randint(0, 80), dice.randint(30, 220)


def _part(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _genai(dice: random.Random, turn: _Turn) -> list[Made]:
    question, tool, arguments, reply = turn.topic
    names = (
        ("invoke_agent shop", SERVER),
        (f"chat {turn.model}", CLIENT),
        (f"execute_tool {tool}", INTERNAL),
        (f"chat {turn.model}", CLIENT),
    )
    spans = _spans(dice, turn.at, names)
    common = {"gen_ai.conversation.id": turn.session, "session.id": turn.session, "user.id": turn.user}
    prompt = [_part("system", _SYSTEM), *(_part(role, text) for role, text in turn.history), _part("user", question)]
    call = {"role": "assistant", "parts": [{"type": "tool_call", "id": "call_1", "name": tool, "arguments": arguments}]}
    result = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": {"found": True}}]}
    spans[0].attributes = {**common, "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop"}
    for span, messages, answer in (
        (spans[1], prompt, call),
        (spans[3], [*prompt, call, result], _part("assistant", reply)),
    ):
        read, wrote = _tokens(dice, turn.history)
        span.attributes = {
            **common,
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": turn.provider,
            "gen_ai.request.model": turn.model,
            "gen_ai.response.model": turn.model,
            "gen_ai.request.temperature": 0.2,
            "gen_ai.usage.input_tokens": read,
            "gen_ai.usage.output_tokens": wrote,
            "gen_ai.input.messages": json.dumps(messages),
            "gen_ai.output.messages": json.dumps([answer]),
        }
    spans[2].attributes = {
        **common,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.call.arguments": json.dumps(arguments),
        "gen_ai.tool.call.result": json.dumps({"found": True}),
    }
    if dice.random() < 0.05:
        spans[2].error = spans[0].error = f"{tool} did not answer within 300 ms"
    return spans


def _messages(prefix: str, messages: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        f"llm.{prefix}_messages.{place}.message.{name}": value
        for place, (role, text) in enumerate(messages)
        for name, value in (("role", role), ("content", text))
    }


def _openinference(dice: random.Random, turn: _Turn) -> list[Made]:
    question, tool, arguments, reply = turn.topic
    spans = _spans(
        dice, turn.at, (("agent", INTERNAL), ("ChatCompletion", CLIENT), (tool, INTERNAL), ("ChatCompletion", CLIENT))
    )
    common = {"session.id": turn.session, "user.id": turn.user}
    prompt = [("system", _SYSTEM), *turn.history, ("user", question)]
    spans[0].attributes = {**common, "openinference.span.kind": "AGENT", "input.value": question, "output.value": reply}
    for span, messages, answer in ((spans[1], prompt, ""), (spans[3], [*prompt, ("tool", '{"found": true}')], reply)):
        read, wrote = _tokens(dice, turn.history)
        span.attributes = {
            **common,
            "openinference.span.kind": "LLM",
            "llm.model_name": turn.model,
            "llm.provider": turn.provider,
            "llm.token_count.prompt": read,
            "llm.token_count.completion": wrote,
            "llm.token_count.total": read + wrote,
            "input.value": messages[-1][1],
            "output.value": answer,
            **_messages("input", messages),
            **_messages("output", [("assistant", answer)]),
        }
    call = "llm.output_messages.0.message.tool_calls.0.tool_call"
    spans[1].attributes |= {
        f"{call}.id": "call_1",
        f"{call}.function.name": tool,
        f"{call}.function.arguments": json.dumps(arguments),
    }
    spans[2].attributes = {
        **common,
        "openinference.span.kind": "TOOL",
        "tool.name": tool,
        "input.value": json.dumps(arguments),
        "output.value": '{"found": true}',
    }
    return spans
