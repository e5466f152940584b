"""What is known of a schema before its rows are converted, and one Python value made exact for its column or refused."""

from __future__ import annotations

import enum
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation, localcontext
from operator import itemgetter
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
_LOST_DIGITS = re.compile(r"[.,]\d{6}\d*[1-9]")
_MOST_PLANS = 256
_plans: dict[int, Plan] = {}


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
    return shortened(text)


def shortened(text: str) -> str:
    """Return text for a message: short, and escaped, so that one with a lone surrogate can still be sent and logged."""
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


def exact_value(value: Any, node: Node) -> Any:
    """The value as pyarrow converts it exactly; raises BadValue."""
    if isinstance(value, enum.Enum):
        value = value.value
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        value = value.tolist()
    # pandas' NaT is a datetime that equals nothing, itself included.
    if value is None or (isinstance(value, datetime) and value != value):
        if not node.nullable:
            raise BadValue(node.path, "the value is null or missing, and the column is not null")
        return None
    return node.read(value, node)


def _wrong(value: Any, node: Node) -> NoReturn:
    raise BadValue(node.path, f"{shown(value)} is {type(value).__name__}, the column is {node.type}")


def _misfit(value: Any, node: Node, why: str) -> NoReturn:
    raise BadValue(node.path, f"{shown(value)} {why}, the column is {node.type}")


def _read_bool(value: Any, node: Node) -> Any:
    return value if isinstance(value, bool) else _wrong(value, node)


def _read_int(value: Any, node: Node) -> Any:
    if not isinstance(value, int) or isinstance(value, bool):
        _wrong(value, node)
    limit = 1 << (node.type.bit_width - 1)
    return int(value) if -limit <= value < limit else _misfit(value, node, "is too large")


def _read_float(value: Any, node: Node) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        _wrong(value, node)
    exact_below = 1 << (24 if node.type == pa.float32() else 53)
    if isinstance(value, int) and abs(value) > exact_below:
        _misfit(value, node, "cannot be kept exactly")
    number = float(value)
    if node.type == pa.float32() and LARGEST_FLOAT32 < abs(number) < float("inf"):
        _misfit(value, node, "is too large")
    return number


def _read_string(value: Any, node: Node) -> Any:
    if isinstance(value, uuid.UUID):
        return str(value)
    if not isinstance(value, str):
        _wrong(value, node)
    try:
        value.encode()
    except UnicodeError:
        _misfit(value, node, "is not valid UTF-8")
    return str(value)


def _read_bytes(value: Any, node: Node) -> Any:
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else _wrong(value, node)


def _read_date(value: Any, node: Node) -> Any:
    if isinstance(value, datetime):
        if value.time() != time() or getattr(value, "nanosecond", None):
            _misfit(value, node, "has a time of day")
        return value.date()
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            _misfit(value, node, "is no ISO 8601 date")
    return value if isinstance(value, date) else _wrong(value, node)


def _read_instant(value: Any, node: Node) -> Any:
    original = value
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            _misfit(original, node, "is no ISO 8601 date and time")
        if len(original) <= 10 or _LOST_DIGITS.search(original):
            _misfit(original, node, "has no time of day" if len(original) <= 10 else "is finer than a microsecond")
    if not isinstance(value, datetime):
        _wrong(value, node)
    if getattr(value, "nanosecond", None):
        _misfit(original, node, "is finer than a microsecond")
    try:
        # A datetime without a zone is taken as UTC, the zone of every timestamp here.
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        _misfit(original, node, "is outside the years 1 to 9999 in UTC")


def _read_decimal(value: Any, node: Node) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal)):
        _wrong(value, node)
    with localcontext() as context:
        context.prec = 100
        try:
            number = Decimal(value)
            rounded = number.quantize(Decimal(1).scaleb(-node.type.scale))
        except (InvalidOperation, ValueError):
            _misfit(value, node, "is no number that fits")
        if rounded.is_nan() or rounded != number:
            _misfit(value, node, "has more decimals")
        if abs(rounded) >= Decimal(10) ** (node.type.precision - node.type.scale):
            _misfit(value, node, "is too large")
    return rounded


def _read_list(value: Any, node: Node) -> Any:
    if not isinstance(value, (list, tuple, set, frozenset)):
        _wrong(value, node)
    return [exact_value(element, node.children[0]) for element in value]


def _read_struct(value: Any, node: Node) -> Any:
    if hasattr(value, "model_dump"):
        value = value.model_dump(by_alias=True)
    if not isinstance(value, Mapping):
        _wrong(value, node)
    for name in value:
        if name not in node.names:
            raise BadValue(f"{node.path}.{name}", f"{shown(value[name])} has no place, the struct has no such field")
    return {child.name: exact_value(value.get(child.name), child) for child in node.children}


def _read_map(value: Any, node: Node) -> Any:
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in pairs):
        _wrong(value, node)
    key, item = node.children
    exact = [(exact_value(k, key), exact_value(v, item)) for k, v in pairs]
    if len({k for k, _ in exact}) < len(exact):
        # Engines differ on which of the two they would find.
        _misfit(value, node, "has a key twice")
    return exact


READERS: tuple[tuple[Callable[[pa.DataType], bool], tuple[tuple[type, ...], Callable[[Any, Node], Any]]], ...] = (
    (pa.types.is_boolean, ((bool,), _read_bool)),
    (pa.types.is_integer, ((int,), _read_int)),
    (pa.types.is_floating, ((float, int), _read_float)),
    (pa.types.is_string, ((str,), _read_string)),
    (pa.types.is_binary, ((bytes,), _read_bytes)),
    (pa.types.is_date32, ((date,), _read_date)),
    (pa.types.is_timestamp, ((datetime,), _read_instant)),
    (pa.types.is_decimal128, ((Decimal, int), _read_decimal)),
    (pa.types.is_map, ((dict,), _read_map)),
    (pa.types.is_list, ((list, tuple), _read_list)),
    (pa.types.is_struct, ((dict,), _read_struct)),
)


def plan_of(schema: pa.Schema) -> Plan:
    # By identity: hashing a schema costs as much as converting a row, and the plan keeps its schema alive.
    plan = _plans.get(id(schema))
    if plan is None:
        columns = tuple(node_of(field.name, field) for field in schema)
        plan = Plan(schema, columns, frozenset(schema.names), pa.struct(list(schema)), {})
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        _plans[id(schema)] = plan
    return plan


def node_of(path: str, field: pa.Field) -> Node:
    kind, types = field.type, pa.types
    children: tuple[Node, ...] = ()
    if types.is_struct(kind):
        children = tuple(node_of(f"{path}.{child.name}", child) for child in kind)
    elif types.is_map(kind):
        children = (node_of(f"{path}[key]", kind.key_field), node_of(f"{path}[value]", kind.item_field))
    elif types.is_list(kind):
        children = (node_of(f"{path}[]", kind.value_field),)
    kinds, read = next(found for is_kind, found in READERS if is_kind(kind))
    names = frozenset(child.name for child in children)
    if field.nullable:
        kinds = (*kinds, NULL)
    return Node(path, field.name, kind, field.nullable, frozenset(kinds), read, children, names, itemgetter(field.name))
