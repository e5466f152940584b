"""Parts of nested values: elements of arrays, values of maps, fields of structs, and the functions that read them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from crannog.api.result import spark_name
from crannog.engine.duckdb.engine import quoted
from crannog.engine.sql.duckdb_compiler.operators import common, comparable, named, value_of
from crannog.engine.sql.duckdb_compiler.terms import NoRule, Typed, checked, constant, widened
from crannog.engine.sql.spark_types import is_atomic, is_integral, plain

Rule = Callable[[str, list[Typed]], Typed]


def field(term: Typed, name: str) -> Typed:
    """Return `struct.name`, or `map.name` for a map by text."""
    shown = named(term.name, ".", name)
    if pa.types.is_map(term.type) and term.type.key_type == pa.string():
        return element(term, constant(name, pa.string(), name))
    if not pa.types.is_struct(term.type):
        raise NoRule(f"{name} inside {term.name}")
    fields = [inner for inner in term.type if inner.name.lower() == name.lower()]
    if len(fields) != 1:
        raise NoRule(f"{name} inside {term.name}")
    quoted = fields[0].name.replace("'", "''")
    return Typed(f"struct_extract({term.sql}, '{quoted}')", fields[0].type, shown)


def element(term: Typed, index: Typed) -> Typed:
    """Return `array[index]`, counted from 0, `map[key]`, or `struct['field']`."""
    shown = named(term.name, "[", index.name, "]")
    if pa.types.is_map(term.type):
        return Typed(_value(term, index), term.type.item_type, shown)
    if pa.types.is_struct(term.type):
        return field(term, value_of(index, str))
    kind = _element_type(term)
    place = _whole(index)
    there = f"{term.sql} IS NULL OR {place} IS NULL OR ({place} >= 0 AND {place} < len({term.sql}))"
    return Typed(f"({checked(there, f'{term.sql}[{place} + 1]', 'an index outside of the array')})", kind, shown)


def _value(term: Typed, key: Typed) -> str:
    kind = term.type.key_type
    # Other keys, such as doubles, are compared in ways of their own.
    if kind != pa.string() and not is_integral(kind):
        raise NoRule(f"a value of {spark_name(term.type)}")
    if key.is_literal and key.literal is None:
        raise NoRule("NULL as a key")
    if key.type != kind and not (is_integral(kind) and is_integral(key.type)):
        raise NoRule(f"{spark_name(key.type)} as a key of {spark_name(term.type)}")
    return f"map_extract_value({term.sql}, {widened(key, kind).sql})"


def _element_type(term: Typed) -> pa.DataType:
    if not pa.types.is_list(term.type):
        raise NoRule(f"an element of {spark_name(term.type)}")
    return term.type.value_type


def _whole(index: Typed) -> str:
    if not is_integral(index.type):
        raise NoRule(f"{spark_name(index.type)} as an index")
    return widened(index, pa.int64()).sql


def _two(name: str, terms: list[Typed]) -> tuple[Typed, Typed]:
    if len(terms) != 2:
        raise NoRule(f"{name} with {len(terms)} arguments")
    return terms[0], terms[1]


def _get(name: str, terms: list[Typed]) -> Typed:
    term, index = _two(name, terms)
    kind, place = _element_type(term), _whole(index)
    return Typed(f"(CASE WHEN {place} >= 0 AND {place} < len({term.sql}) THEN {term.sql}[{place} + 1] END)", kind)


def _element_at(name: str, terms: list[Typed]) -> Typed:
    term, index = _two(name, terms)
    if pa.types.is_map(term.type):
        return Typed(_value(term, index), term.type.item_type)
    kind, place = _element_type(term), _whole(index)
    # Counted from 1, or from the end: so does DuckDB, which returns null outside of the array.
    inside = f"{place} <> 0"
    if name == "element_at":
        inside += f" AND abs({place}) <= len({term.sql})"
    allowed = f"{term.sql} IS NULL OR {place} IS NULL OR ({inside})"
    return Typed(f"({checked(allowed, f'{term.sql}[{place}]', 'an index outside of the array')})", kind)


def _size(name: str, terms: list[Typed]) -> Typed:
    if len(terms) != 1 or not (pa.types.is_list(terms[0].type) or pa.types.is_map(terms[0].type)):
        raise NoRule(f"{name} of other than an array or a map")
    if name == "array_size" and not pa.types.is_list(terms[0].type):
        raise NoRule("array_size of a map")
    word = "cardinality" if pa.types.is_map(terms[0].type) else "len"
    return Typed(f"CAST({word}({terms[0].sql}) AS INTEGER)", pa.int32())


def _sides_of_map(name: str, terms: list[Typed]) -> Typed:
    if len(terms) != 1 or not pa.types.is_map(terms[0].type):
        raise NoRule(f"{name} of other than a map")
    kind = terms[0].type.key_type if name == "map_keys" else terms[0].type.item_type
    return Typed(f"{name}({terms[0].sql})", pa.list_(kind))


def _map_contains_key(name: str, terms: list[Typed]) -> Typed:
    term, key = _two(name, terms)
    if not pa.types.is_map(term.type) or key.type != term.type.key_type or key.type != pa.string():
        raise NoRule(f"{name} of these types")
    return Typed(f"list_contains(map_keys({term.sql}), {key.sql})", pa.bool_())


def _array_contains(name: str, terms: list[Typed]) -> Typed:
    term, value = _two(name, terms)
    kind = _element_type(term)
    same, fitted = comparable(Typed("NULL", kind), value)
    if same.type != kind or not is_atomic(kind) or pa.types.is_floating(kind):
        raise NoRule(f"{name} of these types")
    # Whether it is there is unknown if it is not among the known elements and there are others.
    return Typed(
        f"(CASE WHEN {term.sql} IS NULL OR {fitted.sql} IS NULL THEN NULL"
        f" WHEN list_contains({term.sql}, {fitted.sql}) THEN true"
        f" WHEN list_aggregate({term.sql}, 'count') < len({term.sql}) THEN NULL ELSE false END)",
        pa.bool_(),
    )


def _array(name: str, terms: list[Typed]) -> Typed:
    kind = _one_type(name, terms)
    return Typed(f"[{', '.join(widened(term, kind).sql for term in terms)}]", plain(pa.list_(kind)))


def _map(name: str, terms: list[Typed]) -> Typed:
    keys, values = terms[::2], terms[1::2]
    if len(keys) != len(values) or len({value_of(key, (str, int)) for key in keys}) != len(keys):
        raise NoRule("a map with other than different constants as its keys")
    kinds = [_one_type(name, side) for side in (keys, values)]
    lists = [
        f"[{', '.join(widened(term, kind).sql for term in side)}]"
        for side, kind in zip((keys, values), kinds, strict=True)
    ]
    return Typed(f"map({lists[0]}, {lists[1]})", plain(pa.map_(*kinds)))


def _named_struct(name: str, terms: list[Typed]) -> Typed:
    names, values = [value_of(term, str) for term in terms[::2]], terms[1::2]
    if len(names) != len(values) or not names or len({one.lower() for one in names}) != len(names):
        raise NoRule("a struct with other than different names")
    if any(value.type == pa.null() for value in values):
        raise NoRule("a field of nothing but NULL")
    packed = ", ".join(f"{quoted(one)} := {value.sql}" for one, value in zip(names, values, strict=True))
    kind = pa.struct([pa.field(one, value.type) for one, value in zip(names, values, strict=True)])
    return Typed(f"struct_pack({packed})", plain(kind))


def _one_type(name: str, terms: list[Typed]) -> pa.DataType:
    if not terms:
        raise NoRule(f"{name} of nothing")
    kind = common(terms)
    if kind == pa.null():
        raise NoRule(f"{name} of nothing but NULL")
    return kind


RULES: dict[str, Rule] = {
    "array": _array,
    "array_contains": _array_contains,
    "array_size": _size,
    "cardinality": _size,
    "element_at": _element_at,
    "get": _get,
    "map": _map,
    "map_contains_key": _map_contains_key,
    "map_keys": _sides_of_map,
    "map_values": _sides_of_map,
    "named_struct": _named_struct,
    "size": _size,
    "try_element_at": _element_at,
}
