"""What clients for language models send, cut down to the attributes that matter; recorded from the versions named."""

from __future__ import annotations

import json
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otlp_samples import span

Sample = tuple[str, int | None, dict[str, Any]]
"""The name of a span, the place of its parent, its attributes."""

_HI = [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]

LANGFUSE: list[Sample] = [
    (
        "agent",
        None,
        {
            "user.id": "u-1",
            "session.id": "s-1",
            "langfuse.observation.type": "agent",
            "langfuse.observation.input": '{"q": "hi"}',
            "langfuse.observation.output": "bye",
        },
    ),
    (
        "with a cache",
        0,
        {
            "user.id": "u-1",
            "session.id": "s-1",
            "langfuse.observation.type": "generation",
            "langfuse.observation.model.name": "gpt-4o",
            "langfuse.observation.input": '[{"role": "user", "content": "hi"}]',
            "langfuse.observation.output": "bye",
            "langfuse.observation.usage_details": '{"input": 10, "input_cached_tokens": 4, "output": 5, "total": 19}',
            "langfuse.observation.cost_details": '{"input": 0.001, "output": 0.002, "total": 0.003}',
        },
    ),
    (
        "OpenAI-generation",
        0,
        {
            "langfuse.observation.type": "generation",
            "langfuse.observation.model.name": "gpt-4o-mini-2024",
            "langfuse.observation.usage_details": '{"completion_tokens": 3, "prompt_tokens": 11, "total_tokens": 14, '
            '"completion_tokens_details": null, "prompt_tokens_details": {"cached_tokens": 4}}',
            "langfuse.observation.cost_details": '{"input": 0.25, "output": 0.5}',
        },
    ),
]
"""langfuse 5.0.4, its own spans and its wrapper of openai."""


def _vercel(operation: str, tokens: tuple[int, int], **more: Any) -> dict[str, Any]:
    return {
        "ai.operationId": operation,
        "ai.model.provider": "mock-provider",
        "ai.model.id": "mock-model-id",
        "ai.telemetry.metadata.sessionId": "s-1",
        "ai.telemetry.metadata.userId": "u-1",
        "ai.usage.inputTokens": tokens[0],
        "ai.usage.outputTokens": tokens[1],
        "ai.usage.totalTokens": sum(tokens),
        **{key.replace("__", "."): value for key, value in more.items()},
    }


VERCEL: list[Sample] = [
    ("ai.generateText", None, _vercel("ai.generateText", (20, 40), ai__prompt='{"prompt":"Weather?"}', ai__response__text="sunny")),
    (
        "ai.generateText.doGenerate",
        0,
        _vercel(
            "ai.generateText.doGenerate", (10, 20), ai__response__toolCalls='[{"toolName":"weather"}]',
            gen_ai__usage__input_tokens=10, gen_ai__usage__output_tokens=20,
        ),
    ),
    (
        "ai.toolCall",
        0,
        {"ai.operationId": "ai.toolCall", "ai.toolCall.args": '{"city":"Rome"}', "ai.toolCall.result": '"sun"'},
    ),
    ("ai.generateText.doGenerate", 0, _vercel("ai.generateText.doGenerate", (10, 20), ai__response__text="sunny")),
    ("ai.embed", 0, {"ai.operationId": "ai.embed", "ai.usage.tokens": 7}),
    ("ai.embed.doEmbed", 4, {"ai.operationId": "ai.embed.doEmbed", "ai.usage.tokens": 7}),
]  # fmt: skip
"""ai 6.0.326 with a tool, and an embedding."""

TRACELOOP: list[Sample] = [
    (
        "w.workflow",
        None,
        {
            "traceloop.span.kind": "workflow",
            "traceloop.association.properties.user_id": "u-1",
            "traceloop.association.properties.session_id": "s-1",
            "traceloop.entity.input": '{"args": [], "kwargs": {}}',
            "traceloop.entity.output": '"pong"',
        },
    ),
    (
        "openai.chat",
        0,
        {
            "gen_ai.operation.name": "chat",
            "traceloop.association.properties.user_id": "u-1",
            "traceloop.association.properties.chat_id": "c-1",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o-mini",
            "gen_ai.usage.input_tokens": 11,
            "gen_ai.usage.output_tokens": 3,
            "gen_ai.usage.cache_read.input_tokens": 4,
        },
    ),
]
"""traceloop-sdk 0.62.4."""


def _chat(tokens: tuple[int, int]) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "test",
        "gen_ai.response.model": "test",
        "gen_ai.conversation.id": "c-1",
        "gen_ai.usage.input_tokens": tokens[0],
        "gen_ai.usage.output_tokens": tokens[1],
        "operation.cost": 0.125,
    }


PYDANTIC_AI: list[Sample] = [
    (
        "invoke_agent weather",
        None,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": "c-1",
            "pydantic_ai.all_messages": json.dumps(_HI),
            "final_result": '{"weather":"sun"}',
            "gen_ai.aggregated_usage.input_tokens": 103,
            "gen_ai.aggregated_usage.output_tokens": 14,
        },
    ),
    ("chat test", 0, _chat((51, 5))),
    ("chat test", 0, _chat((52, 9))),
    (
        "running tool",
        0,
        {"gen_ai.operation.name": "execute_tool", "tool_arguments": '{"city":"a"}', "tool_response": "sun"},
    ),
]
"""pydantic-ai 2.66.0, and the tool of its older format."""

MLFLOW: list[Sample] = [
    (
        "run",
        None,
        {
            "mlflow.spanType": '"AGENT"',
            "mlflow.spanInputs": '{"q": "ping"}',
            "mlflow.spanOutputs": '"pong"',
            "mlflow.chat.tokenUsage": '{"input_tokens": 11, "output_tokens": 3, "total_tokens": 14}',
        },
    ),
    (
        "Completions",
        0,
        {
            "mlflow.spanType": '"CHAT_MODEL"',
            "mlflow.llm.model": '"gpt-4o-mini-2024"',
            "mlflow.llm.provider": '"openai"',
            "mlflow.chat.tokenUsage": '{"input_tokens": 11, "output_tokens": 3, "total_tokens": 14, "cache_read_input_tokens": 4}',
            "mlflow.llm.cost": '{"input_cost": 0.5, "output_cost": 0.25, "total_cost": 0.75}',
        },
    ),
]
"""mlflow-tracing 3.17.2; the usage of the agent is set by hand."""

STRANDS: list[Sample] = [
    (
        "invoke_agent weather",
        None,
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 8},
    ),
    ("chat", 0, {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 8}),
]
"""The form of strands-agents 1.62.0, which puts totals into the attributes of a call."""

OPENINFERENCE: list[Sample] = [
    (
        "agent",
        None,
        {
            "openinference.span.kind": "AGENT",
            "llm.token_count.prompt": 9,
            "llm.token_count.completion": 2,
            "llm.cost.total": 0.5,
        },
    ),
    (
        "call",
        0,
        {
            "openinference.span.kind": "LLM",
            "llm.token_count.prompt": 9,
            "llm.token_count.completion": 2,
            "llm.cost.total": 0.5,
        },
    ),
]


def spans_of(sample: list[Sample], trace: int = 1) -> list[Span]:
    """The spans of a sample, as one trace."""
    return [
        span(trace, place + 1, None if parent is None else parent + 1, name=name, attributes=attributes)
        for place, (name, parent, attributes) in enumerate(sample)
    ]
