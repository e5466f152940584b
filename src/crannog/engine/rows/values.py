"""One Python value made exact for its column, or refused with the reason."""

from __future__ import annotations

import enum
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, NoReturn

import pyarrow as pa

from crannog.engine.rows.conversion import LARGEST_FLOAT32, BadValue, Node, shown

_LOST_DIGITS = re.compile(r"[.,]\d{6}\d*[1-9]")


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
    given = value
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            _misfit(given, node, "is no ISO 8601 date and time")
        if len(given) <= 10 or _LOST_DIGITS.search(given):
            _misfit(given, node, "has no time of day" if len(given) <= 10 else "is finer than a microsecond")
    if not isinstance(value, datetime):
        _wrong(value, node)
    if getattr(value, "nanosecond", None):
        _misfit(given, node, "is finer than a microsecond")
    try:
        # A datetime without a zone is taken as UTC, the zone of every timestamp here.
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        _misfit(given, node, "is outside the years 1 to 9999 in UTC")


def _read_decimal(value: Any, node: Node) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal)):
        _wrong(value, node)
    with localcontext() as context:
        context.prec = 100
        try:
            given = Decimal(value)
            kept = given.quantize(Decimal(1).scaleb(-node.type.scale))
        except (InvalidOperation, ValueError):
            _misfit(value, node, "is no number that fits")
        if kept.is_nan() or kept != given:
            _misfit(value, node, "has more decimals")
        if abs(kept) >= Decimal(10) ** (node.type.precision - node.type.scale):
            _misfit(value, node, "is too large")
    return kept


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
