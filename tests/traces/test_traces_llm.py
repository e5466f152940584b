"""What clients for language models send fills the columns, and no token is counted twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import crannog
import llm_samples as samples
from crannog.traces.ingest.llm_dialects import AGGREGATE_MARKERS, COLUMN_KEYS, usage_number
from otlp_samples import request_of, span, trace_id
from test_traces_otlp import both

_NONE = dict.fromkeys(COLUMN_KEYS)


def columns(sample: list[samples.Sample]) -> list[dict[str, Any]]:
    """The columns of each span, without those that are null."""
    rows = both(request_of(*samples.spans_of(sample))).select(list(COLUMN_KEYS)).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def test_langfuse() -> None:
    agent, cached, wrapped = columns(samples.LANGFUSE)
    assert agent == {"input": '{"q": "hi"}', "output": '"bye"', "session_id": "s-1", "user_id": "u-1"}
    assert cached == {
        "input": '[{"role": "user", "content": "hi"}]', "output": '"bye"', "session_id": "s-1", "user_id": "u-1",
        "model": "gpt-4o", "input_tokens": 14, "output_tokens": 5, "cost": 0.003,
    }  # fmt: skip
    assert wrapped == {"model": "gpt-4o-mini-2024", "input_tokens": 11, "output_tokens": 3, "cost": 0.75}


def test_vercel() -> None:
    outer, first, tool, second, embed, inner = columns(samples.VERCEL)
    whose = {"model": "mock-model-id", "provider": "mock-provider", "session_id": "s-1", "user_id": "u-1"}
    assert outer == {
        **whose, "input": '{"prompt":"Weather?"}', "output": '"sunny"', "total_input_tokens": 20, "total_output_tokens": 40,
    }  # fmt: skip
    assert first == {**whose, "output": '[{"toolName":"weather"}]', "input_tokens": 10, "output_tokens": 20}
    assert tool == {"input": '{"city":"Rome"}', "output": '"sun"'}
    assert second == {**whose, "output": '"sunny"', "input_tokens": 10, "output_tokens": 20}
    assert (embed, inner) == ({"total_input_tokens": 7}, {"input_tokens": 7})


def test_traceloop() -> None:
    workflow, call = columns(samples.TRACELOOP)
    assert workflow == {
        "input": '{"args": [], "kwargs": {}}',
        "output": '"pong"',
        "session_id": "s-1",
        "user_id": "u-1",
    }
    assert call == {
        "model": "gpt-4o-mini", "provider": "openai", "session_id": "c-1", "user_id": "u-1", "input_tokens": 11, "output_tokens": 3,
    }  # fmt: skip


def test_pydantic_ai() -> None:
    agent, first, second, tool = columns(samples.PYDANTIC_AI)
    assert agent == {
        "input": '[{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]', "output": '{"weather":"sun"}', "session_id": "c-1",
        "total_input_tokens": 103, "total_output_tokens": 14,
    }  # fmt: skip
    call = {"provider": "test", "model": "test", "session_id": "c-1", "cost": 0.125}
    assert first == {**call, "input_tokens": 51, "output_tokens": 5}
    assert second == {**call, "input_tokens": 52, "output_tokens": 9}
    assert tool == {"input": '{"city":"a"}', "output": '"sun"'}


def test_mlflow() -> None:
    agent, call = columns(samples.MLFLOW)
    assert agent == {"input": '{"q": "ping"}', "output": '"pong"', "total_input_tokens": 11, "total_output_tokens": 3}
    assert call == {
        "model": "gpt-4o-mini-2024",
        "provider": "openai",
        "input_tokens": 11,
        "output_tokens": 3,
        "cost": 0.75,
    }


@pytest.mark.parametrize(
    ("sample", "tokens", "cost"),
    [
        (samples.LANGFUSE, (25, 8), 0.753),
        (samples.VERCEL, (27, 40), None),
        (samples.TRACELOOP, (11, 3), None),
        (samples.PYDANTIC_AI, (103, 14), 0.25),
        (samples.MLFLOW, (11, 3), 0.75),
        (samples.STRANDS, (30, 8), None),
        (samples.OPENINFERENCE, (9, 2), 0.5),
    ],
    ids=["langfuse", "vercel", "traceloop", "pydantic-ai", "mlflow", "strands", "openinference"],
)
def test_a_sum_over_a_trace_counts_each_call_once(
    sample: list[samples.Sample], tokens: tuple[int, int], cost: float | None
) -> None:
    rows = both(request_of(*samples.spans_of(sample)))
    assert tuple(pc.sum(rows[name]).as_py() for name in ("input_tokens", "output_tokens")) == tokens
    assert pc.sum(rows["cost"]).as_py() == cost


def test_a_span_that_says_totals_in_two_ways_keeps_those_that_are_named_so() -> None:
    attributes = {
        "gen_ai.aggregated_usage.input_tokens": 7,
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 2,
    }
    own, total = both(
        request_of(
            span(1, 1, attributes=attributes),
            span(1, 2, attributes={**attributes, "gen_ai.operation.name": "invoke_agent"}),
        )
    ).to_pylist()
    names = ("input_tokens", "output_tokens", "total_input_tokens", "total_output_tokens")
    assert [own[name] for name in names] == [3, 2, 7, None]
    assert [total[name] for name in names] == [None, None, 7, 2]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", '{"input": "12"}', '{"input": true}', "[" * 100_000, '{"input": 1e999}', '{"input": -4}'],
)
def test_usage_that_is_none_gives_nothing(text: str) -> None:
    [row] = (
        both(request_of(span(1, 1, attributes={"langfuse.observation.usage_details": text})))
        .select(list(COLUMN_KEYS))
        .to_pylist()
    )
    assert row == _NONE


def test_numbers_that_no_column_holds_are_left_out() -> None:
    assert usage_number('{"input": %s, "input_more": 1.5}' % ("9" * 4_000), "input_tokens") == ""
    for cost in ("-1", "1e400", "nan", "free", True):
        [row] = both(request_of(span(1, 1, attributes={"gen_ai.usage.cost": cost}))).to_pylist()
        assert row["cost"] is None
    [row] = both(request_of(span(1, 1, attributes={"gen_ai.usage.cost": 1.5e-7}))).to_pylist()
    assert row["cost"] == 1.5e-7


def test_the_docs_name_every_attribute() -> None:
    documented = (Path(__file__).parents[2] / "docs" / "traces.md").read_text()
    values = {value.strip('"') for listed in AGGREGATE_MARKERS.values() for value in listed or ()}
    named = {key for keys in COLUMN_KEYS.values() for key in keys} | set(AGGREGATE_MARKERS) | values
    assert [name for name in sorted(named) if f"`{name}`" not in documented] == []


def test_sql_and_a_trace_show_what_was_used(tmp_path: Path) -> None:
    with crannog.connect(str(tmp_path / "w")) as lake:
        lake.traces.write_otlp(request_of(*samples.spans_of(samples.PYDANTIC_AI, trace=5)).SerializeToString())
        found = lake.sql(
            "SELECT model, sum(input_tokens) AS tokens, sum(cost) AS cost, max(total_input_tokens) AS total"
            " FROM crannog.traces.spans GROUP BY model ORDER BY model NULLS FIRST"
        )
        assert [dict(row) for row in found.rows()] == [
            {"model": None, "tokens": None, "cost": None, "total": 103},
            {"model": "test", "tokens": 103, "cost": 0.25, "total": None},
        ]
        agent, *calls = lake.traces.get(trace_id(5).hex()).spans
        assert (agent.total_input_tokens, agent.total_output_tokens, agent.input_tokens) == (103, 14, None)
        assert [(call.input_tokens, call.cost) for call in calls[:2]] == [(51, 0.125), (52, 0.125)]
