"""What metrics may be grouped by: a field of the filter language, or an attribute by its key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crannog.errors import CallerError
from crannog.traces.attribute_values import to_python
from crannog.traces.search.attribute_sql import text
from crannog.traces.search.filter_sql import COLUMNS
from crannog.traces.trace import STATUS

_OF_RED = {"service": "service_name", "operation": "operation", "kind": "span_kind"}
_MAPS = {"span": "attributes", "resource": "resource_attributes", "scope": "scope_attributes"}
_IDS = ("trace_id", "span_id", "parent_span_id")
_MOST = 5


@dataclass(frozen=True, slots=True)
class Group:
    """One thing to group by: its name, its SQL over spans, and the column of the RED table that has it, if one has."""

    name: str
    sql: str
    column_of_red: str | None = None
    is_attribute: bool = False

    def shown(self, stored: Any) -> Any:
        """Return a stored value as people see it: an attribute as a plain value, arrays and maps as JSON."""
        if self.name == "status" and isinstance(stored, int):
            return STATUS[stored] if 0 <= stored < len(STATUS) else str(stored)
        if not self.is_attribute or stored is None:
            return stored
        value = to_python(stored)
        return value if isinstance(value, (str, int, float, bool)) or value is None else json.dumps(value, default=str)


def groups_of(asked: Sequence[str] | str | None) -> list[Group]:
    """Read what to group by; CallerError if it is wrong."""
    names = [asked] if isinstance(asked, str) else list(asked or ())
    if len(names) > _MOST or len(set(names)) < len(names) or not all(isinstance(name, str) and name for name in names):
        raise CallerError(f"group_by takes up to {_MOST} different names of fields or attributes, got {asked!r}"[:300])
    return [_group(name) for name in names]


def _group(name: str) -> Group:
    if name == "kind":
        return Group(name, "span_kind", _OF_RED[name])
    if name == "status":
        return Group(name, "status_code")
    if name in _IDS:
        return Group(name, f"lower(hex({name}))")
    if name in COLUMNS:
        return Group(name, COLUMNS[name], _OF_RED.get(name))
    level, dot, key = name.partition(".")
    if dot and level in _MAPS and key:
        return Group(name, f"{_MAPS[level]}[{text(key)}]", is_attribute=True)
    return Group(
        name, f"coalesce({', '.join(f'{column}[{text(name)}]' for column in _MAPS.values())})", is_attribute=True
    )
