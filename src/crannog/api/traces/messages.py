"""Conversations with language models, in one form for all conventions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A part of a message; `type` says which fields are set.

    text, reasoning: `text`. tool_call: `id`, `name` and `value`, the arguments. tool_result: `id`, `name` and `value`. media: `uri`
    and `media_type`; data in the message itself is left out. json: `value`, of any other form. If `cut` is greater than 0, that
    many characters of `text` were left out.
    """

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    value: Any = None
    uri: str | None = None
    media_type: str | None = None
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """A message: `role` is system, user, assistant or tool, any other that was sent, or input or output if none was."""

    role: str
    parts: tuple[MessagePart, ...]
    name: str | None = None
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class SpanMessages:
    """The messages of one span: what went into a call of a model, a tool or an agent, and what came out.

    `row` is its row number in the tree of the trace. `operation` is what the span was sent as, such as chat, execute_tool or
    AGENT.
    """

    span_id: str
    parent_span_id: str | None
    row: int
    name: str
    service: str
    operation: str | None
    is_error: bool
    start_ns: int
    end_ns: int
    model: str | None
    provider: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    session_id: str | None
    user_id: str | None
    input: tuple[Message, ...] = field(repr=False)
    output: tuple[Message, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class TraceMessages:
    """The spans of a trace with messages or a model, in tree order from `offset` on; `next_offset` is None at the end."""

    trace_id: str
    spans: tuple[SpanMessages, ...]
    offset: int
    total: int
    next_offset: int | None
