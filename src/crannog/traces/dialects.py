"""What the LLM dialects call the same things: which attribute gives which column of the span table.

Within a column the first key that a span has wins. The attributes themselves are kept whatever is taken from them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from crannog.traces.values import quoted

DIALECTS: Mapping[str, tuple[str, ...]] = {
    "input": (
        "gen_ai.input.messages",
        "input.value",
        "gen_ai.tool.call.arguments",
        "langfuse.observation.input",
        "mlflow.spanInputs",
        "traceloop.entity.input",
        "scouter.tracing.input",
        "ai.prompt",
        "ai.prompt.messages",
        "gen_ai.prompt",
    ),
    "output": (
        "gen_ai.output.messages",
        "output.value",
        "gen_ai.tool.call.result",
        "langfuse.observation.output",
        "mlflow.spanOutputs",
        "traceloop.entity.output",
        "scouter.tracing.output",
        "ai.response.text",
        "ai.response.object",
        "gen_ai.completion",
    ),
    "model": (
        "gen_ai.response.model",
        "gen_ai.request.model",
        "llm.model_name",
        "ai.response.model",
        "ai.model.id",
        "langfuse.observation.model.name",
        "llm.request.model",
    ),
    "provider": ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system", "ai.model.provider"),
    "input_tokens": (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
        "ai.usage.promptTokens",
        "llm.usage.prompt_tokens",
    ),
    "output_tokens": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "ai.usage.completionTokens",
        "llm.usage.completion_tokens",
    ),
    "session_id": ("session.id", "gen_ai.conversation.id", "langfuse.session.id", "mlflow.trace.session"),
    "user_id": ("user.id", "enduser.id", "langfuse.user.id", "mlflow.trace.user"),
    "label": ("scouter.tracing.label",),
}

PAYLOADS = frozenset({"input", "output"})
COUNTS = frozenset({"input_tokens", "output_tokens"})

MESSAGES: Mapping[str, re.Pattern[str]] = {
    "input": re.compile(r"(?:llm\.input_messages\.(\d{1,4})\.message|gen_ai\.prompt\.(\d{1,4}))\.(role|content)"),
    "output": re.compile(r"(?:llm\.output_messages\.(\d{1,4})\.message|gen_ai\.completion\.(\d{1,4}))\.(role|content)"),
}
"""Conversations that are spread over one attribute per message and part: taken where no key above has it whole."""
MESSAGE_PREFIXES = ("llm.input_messages.", "gen_ai.prompt.", "llm.output_messages.", "gen_ai.completion.")

COUNT = r"^[0-9]{1,18}(\.0)?$"
_COUNT = re.compile(COUNT)


def payload(text: str, *, is_text: bool) -> str:
    """Return an input or output as JSON: a text that holds an object or array is that one, any other is quoted.

    `text` is the value in words if `is_text`, else its JSON.
    """
    if not is_text:
        return text
    if text[:1] in ("{", "["):
        try:
            json.loads(text)
            return text
        except (ValueError, RecursionError):
            pass
    return quoted(text)


def conversation(parts: Iterable[tuple[str, str, bool]], pattern: re.Pattern[str]) -> str | None:
    """Put a conversation together from attributes (key, text, is it text); None if none of them belongs to it."""
    messages: dict[int, dict[str, str]] = {}
    for key, text, is_text in parts:
        found = pattern.fullmatch(key)
        if found is not None:
            number = int(found[1] or found[2])
            messages.setdefault(number, {})[found[3]] = quoted(text) if is_text else text or "null"
    if not messages:
        return None
    listed = (
        ",".join(f'"{part}":{message[part]}' for part in ("role", "content") if part in message)
        for _, message in sorted(messages.items())
    )
    return f"[{','.join(f'{{{message}}}' for message in listed)}]"


def columns_of(attributes: Sequence[tuple[str, str, bool]]) -> dict[str, str | int | None]:
    """Return what one span's attributes (key, text, is it text) give to each column, one by one."""
    columns: dict[str, str | int | None] = {}
    for column, keys in DIALECTS.items():
        columns[column] = None
        for wanted in keys:
            found = [(text, is_text) for key, text, is_text in attributes if key == wanted and usable(column, text)]
            if found:
                text, is_text = found[-1]
                if column in PAYLOADS:
                    columns[column] = payload(text, is_text=is_text)
                elif column in COUNTS:
                    columns[column] = int(text.removesuffix(".0"))
                else:
                    columns[column] = text
                break
    for column, pattern in MESSAGES.items():
        if columns[column] is None:
            columns[column] = conversation(attributes, pattern)
    return columns


def usable(column: str, text: str) -> bool:
    """Tell whether a column takes a value: nothing takes an empty one, a count only a whole number."""
    return bool(_COUNT.fullmatch(text)) if column in COUNTS else bool(text)
