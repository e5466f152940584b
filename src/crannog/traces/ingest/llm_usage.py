"""Attributes that hold all of a call's usage, or all of its cost, as one JSON object: what each column takes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping

_PREFIXES: Mapping[str, str] = {"input_tokens": "input", "output_tokens": "output"}
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
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


def usage_number(text: str, column: str) -> str:
    """Return the number that an object of usage or cost has for a column, as text; empty if it has none.

    As Langfuse counts: everything whose name starts with "input" is input (it names what came from a cache apart), and
    likewise for output. A cost is the total, or the sum of its parts where no total is given.
    """
    numbers = _numbers(text)
    prefix = _PREFIXES.get(column)
    parts = [number for name, number in numbers.items() if prefix is not None and name.startswith(prefix)]
    if not parts:
        parts = [numbers[name] for name in _OTHER_NAMES[column] if name in numbers][:1]
    if not parts and column == "cost":
        parts = list(numbers.values())
    try:
        return repr(sum(parts)) if parts else ""
    except (OverflowError, ValueError):
        return ""


def _numbers(text: str) -> dict[str, int | float]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        name: value for name, value in found.items() if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
