"""A table's schema in the Delta log: its JSON, its fingerprint, and the changes it allows.

All schemas here are in the normal form that `crannog.delta.schemas` produces; nothing touches storage.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from crannog.errors import CallerError, Corrupted, Refused

RESERVED_PREFIX = "_"
"""A top-level column whose name starts with this belongs to Crannog."""

INSTANT = pa.timestamp("us", tz="UTC")

_PRIMITIVES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": INSTANT,
}
_DELTA_NAMES = {arrow: delta for delta, arrow in _PRIMITIVES.items()}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FINGERPRINT_LENGTH = 32
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def list_of(element: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    """Return the normal form of a list; Delta and Parquet call its items `element`."""
    return pa.list_(pa.field("element", element, nullable=nullable))


def map_of(key: pa.DataType, value: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    """Return the normal form of a map; `nullable` is for the values, keys are never null."""
    return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value, nullable=nullable))


def to_delta_json(schema: pa.Schema) -> str:
    """Return the Delta log's `schemaString` of a schema in normal form. Raises Refused with any other column."""
    return json.dumps(_struct_to_delta(schema, ""), separators=(",", ":"), ensure_ascii=False)


def from_delta_json(text: str) -> pa.Schema:
    """Parse a `schemaString`; field metadata is dropped.

    Raises Refused with a column whose type Crannog does not support, and Corrupted if the text is not a schema.
    """
    try:
        return pa.schema(_struct_from_delta(json.loads(text), ""))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Corrupted(f"the schema in the Delta log cannot be read: {type(error).__name__}: {error}") from error


def _struct_to_delta(fields: Any, path: str) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {
                "name": field.name,
                "type": _to_delta(field.type, path + field.name),
                "nullable": field.nullable,
                "metadata": {},
            }
            for field in fields
        ],
    }


def _to_delta(type_: pa.DataType, path: str) -> str | dict[str, Any]:
    if type_ in _DELTA_NAMES:
        return _DELTA_NAMES[type_]
    if pa.types.is_decimal128(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_struct(type_):
        return _struct_to_delta(type_, path + ".")
    if pa.types.is_map(type_):
        return {
            "type": "map",
            "keyType": _to_delta(type_.key_type, path + "[key]"),
            "valueType": _to_delta(type_.item_type, path + "[value]"),
            "valueContainsNull": type_.item_field.nullable,
        }
    if pa.types.is_list(type_):
        return {
            "type": "array",
            "elementType": _to_delta(type_.value_type, path + "[]"),
            "containsNull": type_.value_field.nullable,
        }
    raise Refused(
        f"column {path} has type {type_}, which the Delta log cannot hold; pass the schema to user_schema first"
    )


def _struct_from_delta(node: Any, path: str) -> list[pa.Field]:
    if node["type"] != "struct":
        raise ValueError(f"expected a struct, found {node['type']!r}")
    return [
        pa.field(f["name"], _from_delta(f["type"], path + f["name"]), nullable=bool(f["nullable"]))
        for f in node["fields"]
    ]


def _from_delta(node: Any, path: str) -> pa.DataType:
    if isinstance(node, str):
        if node in _PRIMITIVES:
            return _PRIMITIVES[node]
        decimal = _DECIMAL.fullmatch(node)
        if decimal and int(decimal[2]) <= int(decimal[1]) <= 38 and int(decimal[1]) > 0:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        raise Refused(
            f"column {path} has the Delta type {node}, which Crannog does not hold; read this table through Spark"
        )
    kind = node["type"]
    if kind == "struct":
        return pa.struct(_struct_from_delta(node, path + "."))
    if kind == "array":
        return list_of(_from_delta(node["elementType"], path + "[]"), nullable=bool(node["containsNull"]))
    if kind == "map":
        key, value = _from_delta(node["keyType"], path + "[key]"), _from_delta(node["valueType"], path + "[value]")
        return map_of(key, value, nullable=bool(node["valueContainsNull"]))
    raise Refused(
        f"column {path} has the Delta type {kind}, which Crannog does not hold; read this table through Spark"
    )


def fingerprint(schema: pa.Schema) -> str:
    """Return a hash of the names, types and nullability of a schema, independent of the order of columns and fields."""
    # JSON rather than joined text: a name may contain ':' or '<', and two schemas must never give the same text.
    canonical = json.dumps(_canonical_fields(schema), separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:_FINGERPRINT_LENGTH]


def _canonical_fields(fields: Any) -> list[Any]:
    return sorted(([f.name, _canonical(f.type), f.nullable] for f in fields), key=lambda entry: str(entry[0]))


def _canonical(type_: pa.DataType) -> Any:
    if pa.types.is_struct(type_):
        return ["struct", _canonical_fields(type_)]
    if pa.types.is_map(type_):
        return ["map", _canonical(type_.key_type), _canonical(type_.item_type), type_.item_field.nullable]
    if pa.types.is_list(type_):
        return ["list", _canonical(type_.value_type), type_.value_field.nullable]
    return str(type_)


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """The differences between a proposed schema and the current one, in words, by column."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    incompatible: tuple[str, ...] = ()
    added_fields: tuple[pa.Field, ...] = ()
    widened_fields: tuple[pa.Field, ...] = ()

    @property
    def is_same(self) -> bool:
        """True if both have the same columns, in any order."""
        return not (self.added or self.removed or self.widened or self.incompatible)

    @property
    def is_evolution(self) -> bool:
        """True if the change is allowed: columns added or widened, and nothing else."""
        return bool(self.added or self.widened) and not (self.removed or self.incompatible)

    def describe(self) -> str:
        """Return one line for a message; what is not allowed comes first."""
        return "; ".join((*self.incompatible, *self.removed, *self.widened, *self.added)) or "no difference"


def difference(current: pa.Schema, proposed: pa.Schema) -> SchemaDifference:
    """Compare the user columns of two schemas in normal form; system columns are ignored.

    Key columns are not nullable: pass the proposed schema through `check_key` first.
    """
    old, new = _user_fields(current), _user_fields(proposed)
    widened, widened_fields, incompatible, added = [], [], [], []
    for name, field in new.items():
        if name in old:
            reason = _change(old[name], field)
            if reason is None:
                continue
            if _widens(old[name].type, field.type) and old[name].nullable == field.nullable:
                widened.append(f"column {name} widens from {old[name].type} to {field.type}")
                widened_fields.append(field)
            else:
                incompatible.append(f"column {name} {reason}")
        elif field.nullable:
            added.append(field)
        else:
            incompatible.append(
                f"column {name} is new and not null; existing rows have no value for it, make it nullable"
            )
    return SchemaDifference(
        added=tuple(f"column {f.name} ({f.type}) is new" for f in added),
        removed=tuple(f"column {name} is missing; columns cannot be removed" for name in old if name not in new),
        widened=tuple(widened),
        incompatible=tuple(incompatible),
        added_fields=tuple(added),
        widened_fields=tuple(widened_fields),
    )


def evolved(current: pa.Schema, proposed: pa.Schema) -> pa.Schema:
    """The current schema after a legal evolution: same order, new columns after the other user columns.

    System columns of `current` stay last. Raises CallerError with every reason when the change is not allowed.
    """
    change = difference(current, proposed)
    if change.is_same:
        return current
    if not change.is_evolution:
        raise CallerError(f"the schema cannot change this way: {'; '.join((*change.incompatible, *change.removed))}")
    wider = {field.name: field for field in change.widened_fields}
    kept = [wider.get(f.name, f) for f in current]
    user = [f for f in kept if not f.name.startswith(RESERVED_PREFIX)]
    system = [f for f in kept if f.name.startswith(RESERVED_PREFIX)]
    return pa.schema([*user, *change.added_fields, *system])


def _user_fields(schema: pa.Schema) -> Mapping[str, pa.Field]:
    return {field.name: field for field in schema if not field.name.startswith(RESERVED_PREFIX)}


def _change(old: pa.Field, new: pa.Field) -> str | None:
    """Describe how a column changes; None if it does not."""
    if _canonical(old.type) != _canonical(new.type):
        if old.nullable != new.nullable and _widens(old.type, new.type):
            return f"would widen to {new.type} and change from {_null(old)} to {_null(new)}; only widening is allowed"
        if pa.types.is_nested(old.type) and old.type.id == new.type.id:
            # Older files lack the inner field, and the engines do not all fill it in the same way.
            return f"would change inside from {old.type} to {new.type}; nested types cannot change"
        return f"is {old.type}, proposed is {new.type}, which is not a widening"
    if old.nullable and not new.nullable:
        return "is nullable, proposed is not null; existing rows may have nulls"
    if new.nullable and not old.nullable:
        return "is not null, proposed is nullable; dropping not null is not supported yet"
    return None


def _null(field: pa.Field) -> str:
    return "nullable" if field.nullable else "not null"


def _widens(old: pa.DataType, new: pa.DataType) -> bool:
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) < _INTEGERS.index(new)
    if pa.types.is_decimal128(old) and pa.types.is_decimal128(new) and old != new:
        # Integer digits and decimals may each only grow, or an existing value would not fit.
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    return bool(old == pa.float32() and new == pa.float64())
