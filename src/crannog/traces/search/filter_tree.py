"""The syntax tree of a filter: typed conditions that one span meets or does not meet.

There is no third truth value. A comparison with something that the span does not have is false, also for `!=`, `!~`
and `not in`; only NOT inverts that. If a field has several values (an attribute at any level, or of any event), one of
them has to meet the comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

Value = str | int | float | bool | Fraction


class Type(Enum):
    """The type of a field, which decides what it can be compared with. The values are used in error messages."""

    TEXT = "text"
    NUMBER = "an integer"
    DURATION = "a duration such as 250ms"
    TIME = 'a time such as "2026-01-31T12:00:00Z", or nanoseconds'
    ID = "an id in hexadecimal"
    KIND = "a kind: unspecified, internal, server, client, producer or consumer"
    STATUS = "a status: unset, ok or error"
    BOOLEAN = "true or false"
    WORDS = "words in quotes"
    ATTRIBUTE = "text in quotes, a number, true or false"


class Level(Enum):
    """Where to look for a field."""

    COLUMN = "column"
    ANY = "any"
    SPAN = "span"
    RESOURCE = "resource"
    SCOPE = "scope"
    EVENT = "event"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Field:
    """A column by its name in the filter language, or an attribute by its key."""

    level: Level
    name: str
    type: Type = Type.ATTRIBUTE


@dataclass(frozen=True, slots=True)
class Compare:
    """`operator` is one of = != < <= > >= =~ !~ contains is ~"""

    field: Field
    operator: str
    value: Value


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field is one of the values; if `negated`, it exists and is not one of them."""

    field: Field
    values: tuple[Value, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Exists:
    field: Field


@dataclass(frozen=True, slots=True)
class Not:
    term: Filter


@dataclass(frozen=True, slots=True)
class And:
    """All terms are true; true if there are none."""

    terms: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one term is true; false if there are none."""

    terms: tuple[Filter, ...]


Filter = Compare | OneOf | Exists | Not | And | Or
MATCH_ALL = And(())

EVENT_NAME = Field(Level.EVENT, "name", Type.TEXT)
TEXT = Field(Level.COLUMN, "text", Type.WORDS)

FIELDS: dict[str, Field] = {
    name: Field(Level.COLUMN, name, kind)
    for kind, names in {
        Type.TEXT: (
            "service", "operation", "scope", "status_message", "input", "output", "model", "provider", "session", "user"
        ),
        Type.NUMBER: ("input_tokens", "output_tokens"),
        Type.DURATION: ("duration",),
        Type.TIME: ("start", "end"),
        Type.ID: ("trace_id", "span_id", "parent_span_id"),
        Type.KIND: ("kind",),
        Type.STATUS: ("status",),
        Type.BOOLEAN: ("error", "root"),
    }.items()
    for name in names
} | {"text": TEXT}  # fmt: skip
FIELDS["name"] = FIELDS["operation"]

OPERATORS: dict[Type, tuple[str, ...]] = {
    Type.TEXT: ("=", "!=", "<", "<=", ">", ">=", "in", "not in", "=~", "!~", "contains", "is", "exists"),
    Type.NUMBER: ("=", "!=", "<", "<=", ">", ">=", "in", "not in", "exists"),
    Type.DURATION: ("=", "!=", "<", "<=", ">", ">=", "in", "not in"),
    Type.TIME: ("=", "!=", "<", "<=", ">", ">=", "in", "not in"),
    Type.ID: ("=", "!=", "in", "not in", "exists"),
    Type.KIND: ("=", "!=", "in", "not in"),
    Type.STATUS: ("=", "!=", "in", "not in"),
    Type.BOOLEAN: ("=", "!="),
    Type.WORDS: ("~", "contains"),
    Type.ATTRIBUTE: ("=", "!=", "<", "<=", ">", ">=", "in", "not in", "=~", "!~", "contains", "is", "exists"),
}
NEGATED_OPERATORS = {"!=": "=", "!~": "=~"}
"""The operators that need a value which exists and does not meet the other operator."""


def all_of(*terms: Filter) -> Filter:
    """Return the conjunction of the terms, flattened."""
    flat: list[Filter] = []
    for term in terms:
        flat.extend(term.terms if isinstance(term, And) else [term])
    return flat[0] if len(flat) == 1 else And(tuple(flat))
