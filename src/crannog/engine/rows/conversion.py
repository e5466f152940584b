"""What converting rows needs to know of a schema and of the call: value types and the two ways a value can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from crannog.errors import BadRows

NULL = type(None)
LONGEST_SHOWN = 80
LARGEST_FLOAT32 = 3.4028234663852886e38
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_PREPOSITIONS = {"upsert": "into", "delete": "from", "erase": "from"}
# What pyarrow raises, by value, when a Python object does not fit the type it is asked for.
MISFITS = (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError)


class BadValue(Exception):
    """A value that cannot be kept: the path of its column, why, and its row once that is known."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path, self.reason, self.row = path, reason, 0


class WrongType(Exception):
    """An Arrow column whose type no value could fit."""


@dataclass(frozen=True, slots=True)
class Node:
    """One column, or what is inside it, with what is known before the first row."""

    path: str
    name: str
    type: pa.DataType
    nullable: bool
    kinds: frozenset[type]  # the Python types that pyarrow converts exactly, without a look at the values
    read: Callable[[Any, Node], Any]  # any other value, made exact or refused
    children: tuple[Node, ...]
    names: frozenset[str]
    get: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Plan:
    schema: pa.Schema
    columns: tuple[Node, ...]
    names: frozenset[str]
    whole: pa.DataType
    keys: dict[tuple[str, ...], pa.Schema]


@dataclass(frozen=True, slots=True)
class Call:
    """Who asked for what, for the messages."""

    table: str
    verb: str

    def __str__(self) -> str:
        return f"cannot {self.verb} {_PREPOSITIONS.get(self.verb, 'to')} {self.table}"

    def refuse(self, row: int, path: str, reason: str) -> NoReturn:
        where = f", column {path}" if path else ""
        raise BadRows(f"{self}: row {row} (counting from 0){where}: {reason}; nothing of the batch was kept")


def shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # a foreign repr must not hide the real fault
        text = f"a {type(value).__name__}"
    # Escaped, so that a message with a lone surrogate can still be sent and logged.
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def check_calendar(array: pa.Array, node: Node) -> None:
    # Years outside 1 to 9999 are read differently, or not at all, from one engine to the next.
    if pa.types.is_timestamp(node.type):
        numbers, first, last = array.view(pa.int64()), _FIRST_US, _LAST_US
    elif pa.types.is_date32(node.type):
        numbers, first, last = array.view(pa.int32()), _FIRST_DAY, _LAST_DAY
    else:
        return
    ends = pc.min_max(numbers)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is not None and (least < first or most > last):
        raise BadValue(node.path, "the value is outside the years 1 to 9999")
