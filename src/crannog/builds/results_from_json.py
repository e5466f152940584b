"""Reading results from JSON, the inverse of `plain`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from crannog.builds.event_values import Status
from crannog.builds.events import BuildEvent, Kind, payload_of, stored_event

T = TypeVar("T")


def result_of(kind: type[T], value: Any) -> T:
    """Return a result of type `kind` from its JSON."""
    found: T = _read(kind, value)
    return found


def event_of(value: dict[str, Any]) -> BuildEvent:
    """Return an event from its JSON, without checking it: it was checked when it was appended."""
    kind = Kind.read(value["event_type"])
    payload = payload_of(kind, value[kind.column])
    return stored_event(value["event_id"], value["timestamp"], value["build_request_id"], payload, value.get("index"))


def _read(kind: Any, value: Any) -> Any:
    if isinstance(kind, UnionType):
        return None if value is None else _read(next(part for part in get_args(kind) if part is not type(None)), value)
    origin = get_origin(kind)
    if origin is tuple:
        return tuple(_read(get_args(kind)[0], inner) for inner in value)
    if origin is list:
        return [_read(get_args(kind)[0], inner) for inner in value]
    if origin is dict:
        return {name: _read(get_args(kind)[1], inner) for name, inner in value.items()}
    if kind is BuildEvent:
        return event_of(value)
    if isinstance(kind, type) and issubclass(kind, Status):
        return kind.read(value)
    if is_dataclass(kind):
        made: Any = kind
        return made(**{name: _read(inner, value[name]) for name, inner in _fields(made).items()})
    return value


@cache
def _fields(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
