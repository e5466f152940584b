"""Group keys of metrics: fields of the filter language, and attribute keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crannog.errors import CallerError
from crannog.traces.attribute_values import to_python
from crannog.traces.search.attribute_sql import text_literal
from crannog.traces.search.filter_sql import COLUMNS
from crannog.traces.trace import STATUS_NAMES

_RED_COLUMNS = {"service": "service_name", "operation": "operation", "kind": "span_kind"}
_MAPS = {"span": "attributes", "resource": "resource_attributes", "scope": "scope_attributes"}
_IDS = ("trace_id", "span_id", "parent_span_id")
_MAX_GROUPS = 5


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A field or attribute to group by: its name, its SQL over spans, and its column in the RED table, if it has one."""

    name: str
    sql: str
    red_column: str | None = None
    is_attribute: bool = False

    def display_value(self, stored: Any) -> Any:
        """Return a stored value for the result: an attribute as a Python value, arrays and maps as JSON text."""
        if self.name == "status" and isinstance(stored, int):
            return STATUS_NAMES[stored] if 0 <= stored < len(STATUS_NAMES) else str(stored)
        if not self.is_attribute or stored is None:
            return stored
        value = to_python(stored)
        return value if isinstance(value, (str, int, float, bool)) or value is None else json.dumps(value, default=str)


def parse_group_by(group_by: Sequence[str] | str | None) -> list[GroupKey]:
    """Parse `group_by`. Raises CallerError if it is invalid."""
    names = [group_by] if isinstance(group_by, str) else list(group_by or ())
    if (
        len(names) > _MAX_GROUPS
        or len(set(names)) < len(names)
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise CallerError(
            f"group_by takes up to {_MAX_GROUPS} different fields or attribute keys, got {group_by!r}"[:300]
        )
    return [_group_key(name) for name in names]


def _group_key(name: str) -> GroupKey:
    if name == "kind":
        return GroupKey(name, "span_kind", _RED_COLUMNS[name])
    if name == "status":
        return GroupKey(name, "status_code")
    if name in _IDS:
        return GroupKey(name, f"lower(hex({name}))")
    if name in COLUMNS:
        return GroupKey(name, COLUMNS[name], _RED_COLUMNS.get(name))
    level, dot, key = name.partition(".")
    if dot and level in _MAPS and key:
        return GroupKey(name, f"{_MAPS[level]}[{text_literal(key)}]", is_attribute=True)
    return GroupKey(
        name,
        f"coalesce({', '.join(f'{column}[{text_literal(name)}]' for column in _MAPS.values())})",
        is_attribute=True,
    )
