"""What the LLM dialects call the same things: which attribute gives which column of the span table.

Within a column the first key that a span has wins. The attributes themselves are kept whatever is taken from them.

`input_tokens`, `output_tokens` and `cost` are those of one call to a model, so that their sum over any spans counts
nothing twice. A span that stands for several calls (`AGGREGATE_MARKERS` tells which one does) has what it used in all in
`total_input_tokens`, `total_output_tokens` and `total_cost` instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from crannog.traces.attribute_values import text_json
from crannog.traces.ingest.llm_usage import USAGE_KEYS, usage_number

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
"""Attributes whose text is JSON whatever it holds, so that a text among them has quotes of its own."""

TOTAL_COLUMNS: Mapping[str, str] = {f"total_{name}": name for name in ("input_tokens", "output_tokens", "cost")}
"""Where a span that stands for several calls has what it says of itself."""
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
"""What tells that a span stands for several calls to models, or none: an attribute with one of these values, or any."""

MESSAGE_KEYS: Mapping[str, re.Pattern[str]] = {
    "input": re.compile(r"(?:llm\.input_messages\.(\d{1,4})\.message|gen_ai\.prompt\.(\d{1,4}))\.(role|content)"),
    "output": re.compile(r"(?:llm\.output_messages\.(\d{1,4})\.message|gen_ai\.completion\.(\d{1,4}))\.(role|content)"),
}
"""Conversations that are spread over one attribute per message and part: taken where no key above has it whole."""
MESSAGE_PREFIXES = ("llm.input_messages.", "gen_ai.prompt.", "llm.output_messages.", "gen_ai.completion.")

COUNT_PATTERN = r"^[0-9]{1,18}(\.0)?$"
COST_PATTERN = r"^[0-9]{1,18}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?$"
QUOTED_PATTERN = r'^"([^"\\]*)"$'
_COUNT_REGEX, _COST_REGEX, _QUOTED_REGEX = (
    re.compile(pattern) for pattern in (COUNT_PATTERN, COST_PATTERN, QUOTED_PATTERN)
)
_ONLY_PYTHONS = ("NaN", "Infinity", "-Infinity")


def payload_json(text: str, *, is_text: bool, is_json: bool = False) -> str:
    """Return an input or output as JSON: a text that holds an object or array is that one, any other is quoted.

    `text` is the value in words if `is_text`, else its JSON. With `is_json`, for keys of `JSON_KEYS`, it may hold any
    JSON.
    """
    if not is_text:
        return text
    if text[:1] in ("{", "[") or (is_json and text not in _ONLY_PYTHONS):
        try:
            json.loads(text)
            return text
        except (ValueError, RecursionError):
            pass
    return text_json(text)


def conversation_json(parts: Iterable[tuple[str, str, bool]], pattern: re.Pattern[str]) -> str | None:
    """Put a conversation together from attributes (key, text, is it text); None if none of them belongs to it."""
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


def llm_columns_of_span(attributes: Sequence[tuple[str, str, bool]]) -> dict[str, str | int | float | None]:
    """Return what one span's attributes (key, text, is it text) give to each column, one by one."""
    columns: dict[str, str | int | float | None] = dict.fromkeys(COLUMN_KEYS)
    for column, keys in COLUMN_KEYS.items():
        for wanted in keys:
            given = ((_text_for(column, key, text), is_text) for key, text, is_text in attributes if key == wanted)
            found = [(text, is_text) for text, is_text in given if is_usable(column, text)]
            if found:
                text, is_text = found[-1]
                if column in PAYLOAD_COLUMNS:
                    columns[column] = payload_json(text, is_text=is_text, is_json=wanted in JSON_KEYS)
                elif column in COUNT_COLUMNS:
                    columns[column] = int(text.removesuffix(".0"))
                else:
                    columns[column] = float(text) if column in COST_COLUMNS else text
                break
    for column, pattern in MESSAGE_KEYS.items():
        if columns[column] is None:
            columns[column] = conversation_json(attributes, pattern)
    if any(marks_aggregate(key, text) for key, text, _ in attributes):
        for total, own in TOTAL_COLUMNS.items():
            columns[total] = columns[own] if columns[total] is None else columns[total]
            columns[own] = None
    return columns


def _text_for(column: str, key: str, text: str) -> str:
    if key in USAGE_KEYS:
        return usage_number(text, column)
    inner = _QUOTED_REGEX.fullmatch(text) if key in JSON_KEYS and column not in PAYLOAD_COLUMNS else None
    return text if inner is None else inner[1]


def marks_aggregate(key: str, text: str) -> bool:
    """Tell whether an attribute says that its span stands for several calls, or none."""
    if key not in AGGREGATE_MARKERS:
        return False
    values = AGGREGATE_MARKERS[key]
    return values is None or text in values


def is_usable(column: str, text: str) -> bool:
    """Tell whether a column takes a value: nothing takes an empty one, a count only a whole number, a cost any of 0 or more."""
    if column in COUNT_COLUMNS:
        return bool(_COUNT_REGEX.fullmatch(text))
    return bool(_COST_REGEX.fullmatch(text)) if column in COST_COLUMNS else bool(text)
