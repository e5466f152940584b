"""Maps the attributes of LLM instrumentation dialects to columns of the span table.

The first key of a column that a span has wins. The attributes themselves are stored too.

`input_tokens`, `output_tokens` and `cost` are those of one call to a model, so that their sum over any spans counts
nothing twice. A span that stands for several calls (see `AGGREGATE_MARKERS`) has its totals in
`total_input_tokens`, `total_output_tokens` and `total_cost` instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from crannog.traces.attribute_values import text_json

COLUMN_KEYS: Mapping[str, tuple[str, ...]] = {
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
        "ai.toolCall.args",
        "pydantic_ai.all_messages",
        "all_messages_events",
        "tool_arguments",
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
        "ai.response.toolCalls",
        "ai.toolCall.result",
        "final_result",
        "tool_response",
        "gen_ai.completion",
    ),
    "model": (
        "gen_ai.response.model",
        "gen_ai.request.model",
        "llm.model_name",
        "ai.response.model",
        "ai.model.id",
        "langfuse.observation.model.name",
        "mlflow.llm.model",
        "llm.request.model",
    ),
    "provider": (
        "gen_ai.provider.name",
        "gen_ai.system",
        "llm.provider",
        "llm.system",
        "ai.model.provider",
        "mlflow.llm.provider",
    ),
    "input_tokens": (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
        "ai.usage.inputTokens",
        "ai.usage.promptTokens",
        "ai.usage.tokens",
        "langfuse.observation.usage_details",
        "mlflow.chat.tokenUsage",
        "llm.usage.prompt_tokens",
    ),
    "output_tokens": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "ai.usage.outputTokens",
        "ai.usage.completionTokens",
        "langfuse.observation.usage_details",
        "mlflow.chat.tokenUsage",
        "llm.usage.completion_tokens",
    ),
    "session_id": (
        "session.id",
        "gen_ai.conversation.id",
        "langfuse.session.id",
        "mlflow.trace.session",
        "ai.telemetry.metadata.sessionId",
        "traceloop.association.properties.session_id",
        "traceloop.association.properties.conversation_id",
        "traceloop.association.properties.chat_id",
        "traceloop.association.properties.thread_id",
    ),
    "user_id": (
        "user.id",
        "enduser.id",
        "langfuse.user.id",
        "mlflow.trace.user",
        "ai.telemetry.metadata.userId",
        "traceloop.association.properties.user_id",
    ),
    "label": ("scouter.tracing.label",),
    "cost": (
        "gen_ai.usage.cost",
        "gen_ai.usage.total_cost",
        "llm.cost.total",
        "operation.cost",
        "langfuse.observation.cost_details",
        "mlflow.llm.cost",
    ),
    "total_input_tokens": ("gen_ai.aggregated_usage.input_tokens",),
    "total_output_tokens": ("gen_ai.aggregated_usage.output_tokens",),
    "total_cost": (),
}

PAYLOAD_COLUMNS = frozenset({"input", "output"})
COUNT_COLUMNS = frozenset({"input_tokens", "output_tokens", "total_input_tokens", "total_output_tokens"})
COST_COLUMNS = frozenset({"cost", "total_cost"})

JSON_KEYS = frozenset(
    {
        *("mlflow.spanInputs", "mlflow.spanOutputs", "mlflow.llm.model", "mlflow.llm.provider"),
        *("mlflow.trace.session", "mlflow.trace.user", "traceloop.entity.input", "traceloop.entity.output"),
        *("ai.toolCall.args", "ai.toolCall.result"),
    }
)
"""Attributes whose text is always JSON, so that a string in them has quotes."""

TOTAL_COLUMNS: Mapping[str, str] = {f"total_{name}": name for name in ("input_tokens", "output_tokens", "cost")}
"""The columns for the values of a span that stands for several calls."""
AGGREGATE_MARKERS: Mapping[str, frozenset[str] | None] = {
    "gen_ai.operation.name": frozenset({"invoke_agent", "invoke_workflow", "create_agent", "execute_tool"}),
    "openinference.span.kind": frozenset({"AGENT", "CHAIN", "TOOL", "RETRIEVER", "GUARDRAIL", "EVALUATOR", "PROMPT"}),
    "ai.operationId": frozenset(
        f"ai.{name}"
        for name in ("generateText", "streamText", "generateObject", "streamObject", "embed", "embedMany", "rerank")
    ),
    "langfuse.observation.type": frozenset(
        {"span", "agent", "tool", "chain", "retriever", "evaluator", "guardrail", "event"}
    ),
    "mlflow.spanType": frozenset(
        f'"{name}"'
        for name in (
            *("AGENT", "CHAIN", "TOOL", "RETRIEVER", "PARSER", "MEMORY", "WORKFLOW", "TASK", "GUARDRAIL", "EVALUATOR"),
        )
    ),
    "traceloop.span.kind": frozenset({"workflow", "task", "agent", "tool"}),
    "pydantic_ai.all_messages": None,
    "all_messages_events": None,
}
"""Attributes that mark a span which stands for several model calls, or none: with one of these values, or any."""

MESSAGE_KEYS: Mapping[str, re.Pattern[str]] = {
    "input": re.compile(r"(?:llm\.input_messages\.(\d{1,4})\.message|gen_ai\.prompt\.(\d{1,4}))\.(role|content)"),
    "output": re.compile(r"(?:llm\.output_messages\.(\d{1,4})\.message|gen_ai\.completion\.(\d{1,4}))\.(role|content)"),
}
"""Conversations with one attribute per message and part, used if no key above has the whole conversation."""
MESSAGE_PREFIXES = ("llm.input_messages.", "gen_ai.prompt.", "llm.output_messages.", "gen_ai.completion.")

COUNT_PATTERN = r"^[0-9]{1,18}(\.0)?$"
COST_PATTERN = r"^[0-9]{1,18}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?$"
QUOTED_PATTERN = r'^"([^"\\]*)"$'
_COUNT_REGEX, _COST_REGEX, _QUOTED_REGEX = (
    re.compile(pattern) for pattern in (COUNT_PATTERN, COST_PATTERN, QUOTED_PATTERN)
)
_PYTHON_ONLY_JSON = ("NaN", "Infinity", "-Infinity")


def payload_json(text: str, *, is_text: bool, is_json: bool = False) -> str:
    """Return an input or output as JSON: text with a JSON object or array is returned as it is, other text is quoted.

    `text` is the value if `is_text`, otherwise its JSON. With `is_json`, for keys of `JSON_KEYS`, it may be any JSON.
    """
    if not is_text:
        return text
    if text[:1] in ("{", "[") or (is_json and text not in _PYTHON_ONLY_JSON):
        try:
            json.loads(text)
            return text
        except (ValueError, RecursionError):
            pass
    return text_json(text)


def conversation_json(parts: Iterable[tuple[str, str, bool]], pattern: re.Pattern[str]) -> str | None:
    """Build a conversation from attributes (key, text, is it text); None if none of them belongs to it."""
    messages: dict[int, dict[str, str]] = {}
    for key, text, is_text in parts:
        found = pattern.fullmatch(key)
        if found is not None:
            number = int(found[1] or found[2])
            messages.setdefault(number, {})[found[3]] = text_json(text) if is_text else text or "null"
    if not messages:
        return None
    listed = (
        ",".join(f'"{part}":{message[part]}' for part in ("role", "content") if part in message)
        for _, message in sorted(messages.items())
    )
    return f"[{','.join(f'{{{message}}}' for message in listed)}]"


_USAGE_PREFIXES: Mapping[str, str] = {"input_tokens": "input", "output_tokens": "output"}
_USAGE_NAMES: Mapping[str, tuple[str, ...]] = {
    "input_tokens": ("prompt_tokens", "promptTokens"),
    "output_tokens": ("completion_tokens", "completionTokens"),
    "cost": ("total", "total_cost"),
}

USAGE_KEYS = frozenset(
    {
        "langfuse.observation.usage_details",
        "langfuse.observation.cost_details",
        "mlflow.chat.tokenUsage",
        "mlflow.llm.cost",
    }
)
"""Attributes that have the usage or cost of a call as one JSON object."""


def usage_number(text: str, column: str) -> str:
    """Return the number for a column from an object of usage or cost, as text; empty if it has none.

    As in Langfuse, all entries whose name starts with "input" add up to the input (cached tokens have their own entry), and
    likewise for output. A cost is the total, or the sum of its parts if there is no total.
    """
    numbers = _usage_numbers(text)
    prefix = _USAGE_PREFIXES.get(column)
    parts = [number for name, number in numbers.items() if prefix is not None and name.startswith(prefix)]
    if not parts:
        parts = [numbers[name] for name in _USAGE_NAMES[column] if name in numbers][:1]
    if not parts and column == "cost":
        parts = list(numbers.values())
    try:
        return repr(sum(parts)) if parts else ""
    except (OverflowError, ValueError):
        return ""


def _usage_numbers(text: str) -> dict[str, int | float]:
    try:
        usage = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(usage, dict):
        return {}
    return {
        name: value for name, value in usage.items() if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
