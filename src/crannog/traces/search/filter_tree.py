"""A filter as a tree: what may be asked of a span, with typed values. Pure; one span, one yes or no.

Logic has two values. A comparison with something that a span does not have is no, `!=`, `!~` and `not in` too; only
NOT turns that around. A field that stands for several values (an attribute at any level, or of any event) meets a
comparison if one of them does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

Value = str | int | float | bool | Fraction


class Type(Enum):
    """What a field holds, which says what it may be compared with."""

    TEXT = "text"
    NUMBER = "a whole number"
    DURATION = "a duration such as 250ms"
    TIME = 'a time such as "2026-01-31T12:00:00Z", or nanoseconds'
    ID = "an id in hexadecimal"
    KIND = "a kind: unspecified, internal, server, client, producer or consumer"
    STATUS = "a status: unset, ok or error"
    TRUTH = "true or false"
    WORDS = "words in quotes"
    ATTRIBUTE = "text in quotes, a number, true or false"


class Level(Enum):
    """Where a field is looked for."""

    COLUMN = "column"
    ANY = "any"
    SPAN = "span"
    RESOURCE = "resource"
    SCOPE = "scope"
    EVENT = "event"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Field:
    """Something of a span: a column by its name in the language, or an attribute by its key."""

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
    """The field is one of the values; `negated`, it is there and none of them."""

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
    """All of the terms; without any, yes."""

    terms: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of the terms; without any, no."""

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
        Type.TRUTH: ("error", "root"),
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
    Type.TRUTH: ("=", "!="),
    Type.WORDS: ("~", "contains"),
    Type.ATTRIBUTE: ("=", "!=", "<", "<=", ">", ">=", "in", "not in", "=~", "!~", "contains", "is", "exists"),
}
NEGATED_OPERATORS = {"!=": "=", "!~": "=~"}
"""The operators that ask for a value that is there and does not meet another."""


def all_of(*terms: Filter) -> Filter:
    """Return one filter that asks for all of the terms, flat."""
    flat: list[Filter] = []
    for term in terms:
        flat.extend(term.terms if isinstance(term, And) else [term])
    return flat[0] if len(flat) == 1 else And(tuple(flat))
