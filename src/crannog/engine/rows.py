"""What a caller hands in, made into an Arrow table that has exactly the table's schema, or refused whole.

Rows come as dicts, Pydantic models, Arrow, pandas or Polars. Nothing is lost on the way: a value is kept exactly or
the batch is refused with its row, column and value. A clean batch of dicts costs one pass in C; only a batch with
something to convert or to complain about is walked value by value.
"""

from __future__ import annotations

import enum
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation, localcontext
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from crannog.errors import BadRows, CallerError, SchemaMismatch

_NULL = type(None)
_LONGEST_SHOWN = 80
_LARGEST_FLOAT32 = 3.4028234663852886e38
_MOST_PLANS = 256
_FEW_ROWS = 64
_EDGE_YEARS = frozenset((1, 9999))
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_PREPOSITIONS = {"upsert": "into", "delete": "from"}
_LOST_DIGITS = re.compile(r"[.,]\d{6}\d*[1-9]")
# What pyarrow raises, by value, when a Python object does not fit the type it is asked for.
_MISFITS = (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError)


class _BadValue(Exception):
    """A value that cannot be kept: the path of its column, why, and its row once that is known."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path, self.reason, self.row = path, reason, 0


class _WrongType(Exception):
    """An Arrow column whose type no value could fit."""


@dataclass(frozen=True, slots=True)
class _Node:
    """One column, or what is inside it, with what is known before the first row."""

    path: str
    name: str
    type: pa.DataType
    nullable: bool
    kinds: frozenset[type]  # the Python types that pyarrow converts exactly, without a look at the values
    read: Callable[[Any, _Node], Any]  # any other value, made exact or refused
    children: tuple[_Node, ...]
    names: frozenset[str]
    get: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Plan:
    schema: pa.Schema
    columns: tuple[_Node, ...]
    names: frozenset[str]
    whole: pa.DataType
    keys: dict[tuple[str, ...], pa.Schema]


@dataclass(frozen=True, slots=True)
class _Call:
    """Who asked for what, for the messages."""

    table: str
    verb: str

    def __str__(self) -> str:
        return f"cannot {self.verb} {_PREPOSITIONS.get(self.verb, 'to')} {self.table}"

    def refuse(self, row: int, path: str, reason: str) -> NoReturn:
        where = f", column {path}" if path else ""
        raise BadRows(f"{self}: row {row} (counting from 0){where}: {reason}; nothing of the batch was kept")


def to_arrow(rows: Any, schema: pa.Schema, *, table: str, verb: str) -> pa.Table:
    """The rows as a table of exactly `schema`; columns are found by name, missing nullable ones are null.

    Raises SchemaMismatch when columns do not fit, BadRows naming the first row, column and value that does not,
    and CallerError when `rows` is none of the accepted forms.
    """
    plan, call = _plan(schema), _Call(table, verb)
    if isinstance(rows, (list, tuple)):
        return _from_rows(rows, plan, call)
    batch, naive_is_utc = _as_table(rows, call)
    return _from_table(batch, plan, call, naive_is_utc=naive_is_utc)


def keys_to_arrow(keys: Any, schema: pa.Schema, key: Sequence[str], *, table: str, verb: str) -> pa.Table:
    """The keys as a table of the key columns, not null, in the order of `key`.

    Takes a list of dicts, bare values where the key is one column, or Arrow, pandas or Polars with those columns;
    raises as `to_arrow` does.
    """
    call = _Call(table, verb)
    plan = _plan(schema)
    wanted = plan.keys.get(tuple(key))
    if wanted is None:
        wanted = plan.keys[tuple(key)] = pa.schema([schema.field(name).with_nullable(False) for name in key])
    bare = isinstance(keys, (pa.Array, pa.ChunkedArray))
    if isinstance(keys, (list, tuple)):
        bare = any(not isinstance(k, Mapping) and not hasattr(k, "model_dump") for k in keys)
    if bare and len(key) != 1:
        raise CallerError(f"{call}: the key is {', '.join(key)}; give each key as a dict of these columns")
    if isinstance(keys, (pa.Array, pa.ChunkedArray)):
        keys = pa.table([keys], names=list(key))
    elif bare:
        keys = [k if isinstance(k, Mapping) else {key[0]: k} for k in keys]
    return to_arrow(keys, wanted, table=table, verb=verb)


# --- what is known of a schema ---------------------------------------------------------------------------------

_plans: dict[int, _Plan] = {}


def _plan(schema: pa.Schema) -> _Plan:
    # By identity: hashing a schema costs as much as converting a row, and the plan keeps its schema alive.
    plan = _plans.get(id(schema))
    if plan is None:
        columns = tuple(_node(field.name, field) for field in schema)
        plan = _Plan(schema, columns, frozenset(schema.names), pa.struct(list(schema)), {})
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        _plans[id(schema)] = plan
    return plan


def _node(path: str, field: pa.Field) -> _Node:
    kind, types = field.type, pa.types
    children: tuple[_Node, ...] = ()
    if types.is_struct(kind):
        children = tuple(_node(f"{path}.{child.name}", child) for child in kind)
    elif types.is_map(kind):
        children = (_node(f"{path}[key]", kind.key_field), _node(f"{path}[value]", kind.item_field))
    elif types.is_list(kind):
        children = (_node(f"{path}[]", kind.value_field),)
    kinds, read = next(found for is_kind, found in _READERS if is_kind(kind))
    names = frozenset(child.name for child in children)
    if field.nullable:
        kinds = (*kinds, _NULL)
    return _Node(
        path, field.name, kind, field.nullable, frozenset(kinds), read, children, names, itemgetter(field.name)
    )


# --- rows as Python objects ------------------------------------------------------------------------------------


def _from_rows(rows: Sequence[Any], plan: _Plan, call: _Call) -> pa.Table:
    if not rows:
        return plan.schema.empty_table()
    if set(map(type, rows)) != {dict}:
        rows = [_as_dict(number, row, call) for number, row in enumerate(rows)]
    columns = [_values(rows, node) for node in plan.columns]
    clean = list(map(_is_clean, columns, plan.columns))
    known = plan.names.issuperset(rows[0] if len(rows) == 1 else set().union(*rows))
    # One call for all columns is twice as quick for a row; from a hundred rows on, a call for each column is.
    if known and len(rows) <= _FEW_ROWS and all(clean):
        try:
            return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array(rows, type=plan.whole))])
        except _MISFITS:
            pass  # the walk below finds which value it was
    return _walk(rows, columns, clean, known, plan, call)


def _values(rows: Sequence[Any], node: _Node) -> list[Any]:
    try:
        return list(map(node.get, rows))
    except KeyError:
        return [row.get(node.name) for row in rows]


def _as_dict(number: int, row: Any, call: _Call) -> dict[Any, Any]:
    if hasattr(row, "model_dump"):
        return dict(row.model_dump(by_alias=True))
    if not isinstance(row, Mapping):
        call.refuse(number, "", f"{_shown(row)} is {type(row).__name__}, a row is a dict or a model")
    return dict(row)


def _is_clean(values: list[Any], node: _Node) -> bool:
    """True when pyarrow converts all these values exactly and none is null where it may not be."""
    found = set(map(type, values))
    if not found <= node.kinds:
        return False
    if not node.children:
        if node.type == pa.float32():
            # Larger numbers become infinite in silence; NaN and infinity fail here too and are looked at one by one.
            return all(map(_LARGEST_FLOAT32.__ge__, map(abs, filter(None, values))))
        if datetime in node.kinds:
            # Only in these years can a zone carry a time out of the calendar.
            return _EDGE_YEARS.isdisjoint(map(attrgetter("year"), filter(None, values)))
        return True
    present = [value for value in values if value is not None] if _NULL in found else values
    if pa.types.is_struct(node.type):
        if not node.names.issuperset(set().union(*present)):
            return False
        inner = [_values(present, child) for child in node.children]
    elif pa.types.is_map(node.type):
        inner = [list(chain.from_iterable(present)), list(chain.from_iterable(map(dict.values, present)))]
    else:
        inner = [list(chain.from_iterable(present))]
    return all(_is_clean(below, child) for below, child in zip(inner, node.children, strict=True))


def _walk(
    rows: Sequence[Any], columns: list[list[Any]], clean: list[bool], known: bool, plan: _Plan, call: _Call
) -> pa.Table:
    """Convert column by column, value by value only where needed; refuse at the first row that has a fault."""
    arrays, faults = [], []
    for values, node, is_clean in zip(columns, plan.columns, clean, strict=True):
        try:
            arrays.append(_column(values, node, is_clean))
        except _BadValue as bad:
            faults.append((bad.row, bad.path, bad.reason))
    if not known:
        row, name = next((i, k) for i, r in enumerate(rows) for k in r if k not in plan.names)
        faults.append((row, str(name), f"{_shown(rows[row][name])} has no place, the table has no such column"))
    if faults:
        call.refuse(*min(faults, key=lambda fault: fault[0]))
    return pa.Table.from_arrays(arrays, schema=plan.schema)


def _column(values: list[Any], node: _Node, is_clean: bool) -> pa.Array:
    """Convert one column; raises _BadValue with the row of the first value that does not fit."""
    if is_clean:
        try:
            return pa.array(values, type=node.type)
        except _MISFITS:
            pass  # exact by other means, perhaps: an integer among decimals, a large one among floats
    if pa.types.is_timestamp(node.type) and set(map(type, values)) <= node.kinds - {datetime} | {str}:
        try:
            instants = pc.cast(pa.array(values, type=pa.string()), node.type)
            _check_calendar(instants, node)
            return instants
        except (_BadValue, *_MISFITS):
            pass  # without a zone, or no time at all
    exact: list[Any] = []
    try:
        for value in values:
            exact.append(_exact(value, node))
        return pa.array(exact, type=node.type)
    except _BadValue as bad:
        bad.row = len(exact)
        raise
    except _MISFITS as error:
        raise _BadValue(node.path, f"a value does not fit {node.type}: {error}") from error


def _exact(value: Any, node: _Node) -> Any:
    """The value as pyarrow converts it exactly; raises _BadValue."""
    if isinstance(value, enum.Enum):
        value = value.value
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        value = value.tolist()
    # pandas' NaT is a datetime that equals nothing, itself included.
    if value is None or (isinstance(value, datetime) and value != value):
        if not node.nullable:
            raise _BadValue(node.path, "the value is null or missing, and the column is not null")
        return None
    return node.read(value, node)


def _wrong(value: Any, node: _Node) -> NoReturn:
    raise _BadValue(node.path, f"{_shown(value)} is {type(value).__name__}, the column is {node.type}")


def _misfit(value: Any, node: _Node, why: str) -> NoReturn:
    raise _BadValue(node.path, f"{_shown(value)} {why}, the column is {node.type}")


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # a foreign repr must not hide the real fault
        text = f"a {type(value).__name__}"
    # Escaped, so that a message with a lone surrogate can still be sent and logged.
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def _read_bool(value: Any, node: _Node) -> Any:
    return value if isinstance(value, bool) else _wrong(value, node)


def _read_int(value: Any, node: _Node) -> Any:
    if not isinstance(value, int) or isinstance(value, bool):
        _wrong(value, node)
    limit = 1 << (node.type.bit_width - 1)
    return int(value) if -limit <= value < limit else _misfit(value, node, "is too large")


def _read_float(value: Any, node: _Node) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        _wrong(value, node)
    exact_below = 1 << (24 if node.type == pa.float32() else 53)
    if isinstance(value, int) and abs(value) > exact_below:
        _misfit(value, node, "cannot be kept exactly")
    number = float(value)
    if node.type == pa.float32() and _LARGEST_FLOAT32 < abs(number) < float("inf"):
        _misfit(value, node, "is too large")
    return number


def _read_string(value: Any, node: _Node) -> Any:
    if isinstance(value, uuid.UUID):
        return str(value)
    if not isinstance(value, str):
        _wrong(value, node)
    try:
        value.encode()
    except UnicodeError:
        _misfit(value, node, "is not valid UTF-8")
    return str(value)


def _read_bytes(value: Any, node: _Node) -> Any:
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else _wrong(value, node)


def _read_date(value: Any, node: _Node) -> Any:
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


def _read_instant(value: Any, node: _Node) -> Any:
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


def _read_decimal(value: Any, node: _Node) -> Any:
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


def _read_list(value: Any, node: _Node) -> Any:
    if not isinstance(value, (list, tuple, set, frozenset)):
        _wrong(value, node)
    return [_exact(element, node.children[0]) for element in value]


def _read_struct(value: Any, node: _Node) -> Any:
    if hasattr(value, "model_dump"):
        value = value.model_dump(by_alias=True)
    if not isinstance(value, Mapping):
        _wrong(value, node)
    for name in value:
        if name not in node.names:
            raise _BadValue(f"{node.path}.{name}", f"{_shown(value[name])} has no place, the struct has no such field")
    return {child.name: _exact(value.get(child.name), child) for child in node.children}


def _read_map(value: Any, node: _Node) -> Any:
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in pairs):
        _wrong(value, node)
    key, item = node.children
    exact = [(_exact(k, key), _exact(v, item)) for k, v in pairs]
    if len({k for k, _ in exact}) < len(exact):
        # Engines differ on which of the two they would find.
        _misfit(value, node, "has a key twice")
    return exact


_READERS: tuple[tuple[Callable[[pa.DataType], bool], tuple[tuple[type, ...], Callable[[Any, _Node], Any]]], ...] = (
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


# --- rows as Arrow ---------------------------------------------------------------------------------------------


def _as_table(rows: Any, call: _Call) -> tuple[pa.Table, bool]:
    """The rows as Arrow, and whether times without a zone in them mean UTC (only pandas' do)."""
    try:
        if isinstance(rows, pa.Table):
            return rows, False
        if isinstance(rows, pa.RecordBatch):
            return pa.Table.from_batches([rows]), False
        # pandas first: it offers the stream too, but with its index among the columns.
        if type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns"):
            return pa.Table.from_pandas(rows, preserve_index=False), True
        if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
            return pa.table(rows), False
    except _MISFITS as error:
        raise BadRows(f"{call}: the batch cannot be read as Arrow: {error}; nothing of the batch was kept") from error
    hint = "; give a list with this one row" if isinstance(rows, Mapping) or hasattr(rows, "model_dump") else ""
    raise CallerError(
        f"{call}: rows are a list of dicts or models, an Arrow table or batch, or a pandas or Polars frame,"
        f" got {type(rows).__name__}{hint}"
    )


def _from_table(batch: pa.Table, plan: _Plan, call: _Call, *, naive_is_utc: bool) -> pa.Table:
    names = batch.column_names
    unknown = [name for name in names if name not in plan.names]
    if unknown:
        own = " (columns that start with '_' are set by Crannog)" if any(n.startswith("_") for n in unknown) else ""
        raise SchemaMismatch(f"{call}: the batch has {', '.join(unknown)}, the table has no such column{own}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SchemaMismatch(f"{call}: the batch has column {twice} twice")
    columns = []
    for node in plan.columns:
        if node.name in names:
            columns.append(_fit_column(batch.column(node.name), node, call, naive_is_utc))
        elif node.nullable:
            columns.append(_nulls(batch.num_rows, node.type))
        else:
            raise SchemaMismatch(f"{call}: column {node.path} is {node.type} not null, the batch does not have it")
    return pa.Table.from_arrays(columns, schema=plan.schema)


def _fit_column(column: pa.ChunkedArray, node: _Node, call: _Call, naive_is_utc: bool) -> pa.ChunkedArray:
    fitted, start = [], 0
    try:
        if not column.num_chunks:
            _fit(pa.nulls(0, column.type), node, naive_is_utc)
        for chunk in column.chunks:
            try:
                fitted.append(_fit(chunk, node, naive_is_utc))
            except pa.ArrowNotImplementedError:
                _mismatch(chunk, node)
            except (_BadValue, *_MISFITS) as error:
                row = _first_misfit(chunk, node, naive_is_utc)
                reason, path = (error.reason, error.path) if isinstance(error, _BadValue) else (str(error), node.path)
                call.refuse(start + row, path, f"{_scalar(chunk, row)}: {reason}")
            start += len(chunk)
    except _WrongType as wrong:
        raise SchemaMismatch(f"{call}: {wrong}") from None
    return pa.chunked_array(fitted, type=node.type)


def _first_misfit(chunk: pa.Array, node: _Node, naive_is_utc: bool) -> int:
    """The first row that does not fit, by halving: a few passes over columns instead of one over Python objects."""
    low, high = 0, len(chunk)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _fit(chunk.slice(low, middle - low), node, naive_is_utc)
            low = middle
        except (_BadValue, *_MISFITS):
            high = middle
    return low


def _scalar(chunk: pa.Array, row: int) -> str:
    try:
        return _shown(chunk[row].as_py())
    except Exception:  # what cannot be kept may not be a Python value either
        return "the value"


def _fit(array: pa.Array, node: _Node, naive_is_utc: bool) -> pa.Array:
    """The array with the node's type; raises _WrongType, or _BadValue or one of `_MISFITS` for a value."""
    array.validate(full=True)
    plain = _without_views(array.type)
    return _fit_valid(array if plain is array.type else array.cast(plain), node, naive_is_utc)


def _without_views(type_: pa.DataType) -> pa.DataType:
    """The type with plain strings and bytes inside; Polars sends views, which Arrow cannot filter or take from."""
    if pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_struct(type_):
        fields = [field.with_type(_without_views(field.type)) for field in type_]
        return type_ if all(map(pa.Field.equals, fields, type_)) else pa.struct(fields)
    if pa.types.is_map(type_):
        key, item = _without_views(type_.key_type), _without_views(type_.item_type)
        plain = pa.map_(type_.key_field.with_type(key), type_.item_field.with_type(item))
        return type_ if plain == type_ else plain
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        make = pa.list_ if pa.types.is_list(type_) else pa.large_list
        plain = make(type_.value_field.with_type(_without_views(type_.value_type)))
        return type_ if plain == type_ else plain
    return type_


def _fit_valid(array: pa.Array, node: _Node, naive_is_utc: bool) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        values = array.dictionary
        # Polars' categories are string views, which Arrow cannot take from.
        if pa.types.is_string_view(values.type):
            values = values.cast(pa.string())
        array = values.take(array.indices)
    if array.null_count and not node.nullable:
        raise _BadValue(node.path, "the value is null, and the column is not null")
    if pa.types.is_null(array.type):
        return _nulls(len(array), node.type)
    if pa.types.is_struct(node.type):
        return _fit_struct(array, node, naive_is_utc)
    if pa.types.is_map(node.type) or pa.types.is_list(node.type):
        return _fit_list(array, node, naive_is_utc)
    fitted = array if array.type == node.type else _cast(array, node, naive_is_utc)
    _check_calendar(fitted, node)
    return fitted


def _mismatch(array: pa.Array, node: _Node, hint: str = "") -> NoReturn:
    raise _WrongType(f"column {node.path} is {node.type}, the batch has {array.type}{hint}")


def _fit_struct(array: pa.Array, node: _Node, naive_is_utc: bool) -> pa.Array:
    if not pa.types.is_struct(array.type):
        _mismatch(array, node)
    have = [field.name for field in array.type]
    if not node.names.issuperset(have) or len(set(have)) < len(have):
        _mismatch(array, node)
    present = array.drop_null() if array.null_count else array
    children = []
    for child in node.children:
        if child.name in have:
            children.append(_fit_valid(present.field(child.name), child, naive_is_utc))
        elif child.nullable:
            children.append(_nulls(len(present), child.type))
        else:
            _mismatch(array, node, f"; {child.path} is not null and missing")
    if present is array:
        return pa.StructArray.from_arrays(children, fields=list(node.type))
    if not len(present):
        return _nulls(len(array), node.type)
    # Below a null stands a neighbour's value: Parquet refuses a null in a field that is not null even there.
    places = pc.max_element_wise(pc.subtract(pc.cumulative_sum(array.is_valid().cast(pa.int64())), 1), 0)
    spread = [child.take(places) for child in children]
    return pa.StructArray.from_arrays(spread, fields=list(node.type), mask=array.is_null())


def _nulls(count: int, type_: pa.DataType) -> pa.Array:
    # pa.nulls would put nulls into a struct's not null fields too, the converter fills them with something.
    return pa.array([None] * count, type=type_) if pa.types.is_struct(type_) else pa.nulls(count, type_)


def _fit_list(array: pa.Array, node: _Node, naive_is_utc: bool) -> pa.Array:
    kind, is_map = array.type, pa.types.is_map(node.type)
    if is_map != pa.types.is_map(kind) or not (is_map or hasattr(kind, "value_field")):
        _mismatch(array, node)
    if is_map:
        entries = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
        array = array.cast(pa.list_(entries))
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = pc.cumulative_sum_checked(lengths.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    mask = array.is_null() if array.null_count else None
    inner = array.flatten()
    if not is_map:
        values = _fit_valid(inner, node.children[0], naive_is_utc)
        return pa.ListArray.from_arrays(offsets, values, type=node.type, mask=mask)
    key, item = node.children
    keys = _fit_valid(inner.field("key"), key, naive_is_utc)
    rows = pa.table([pc.list_parent_indices(array), keys], names=["row", "key"])
    if rows.group_by(["row", "key"]).aggregate([]).num_rows < rows.num_rows:
        raise _BadValue(node.path, "a map has a key twice")
    items = _fit_valid(inner.field("value"), item, naive_is_utc)
    return pa.MapArray.from_arrays(offsets, keys, items, type=node.type, mask=mask)


def _cast(array: pa.Array, node: _Node, naive_is_utc: bool) -> pa.Array:
    """Cast where every value either keeps its meaning or fails; raises _WrongType for any other pair of types."""
    source, target, types = array.type, node.type, pa.types
    if types.is_integer(source) and types.is_decimal(target):
        return pc.cast(pc.cast(array, pa.decimal128(20, 0)), target)
    if types.is_floating(source) and types.is_floating(target):
        narrow = pc.cast(array, target)
        back = pc.cast(narrow, pa.float64())
        wide = pc.cast(array, pa.float64())
        same = pc.or_(pc.equal(back, wide), pc.and_(pc.is_nan(back), pc.is_nan(wide)))
        if not pc.all(same, skip_nulls=True, min_count=0).as_py():
            raise _BadValue(node.path, f"the value cannot be kept exactly as {target}")
        return narrow
    if types.is_timestamp(source) and types.is_timestamp(target):
        if source.tz is None and not naive_is_utc:
            _mismatch(array, node, "; give its times a zone")
        return pc.cast(pc.cast(array, pa.timestamp("us", tz=source.tz)), target)
    kept = (
        (types.is_integer(source) and (types.is_integer(target) or types.is_floating(target)))
        or (types.is_decimal(source) and types.is_decimal(target))
        or (types.is_date(source) and types.is_date(target))
        or (types.is_string(target) and (types.is_large_string(source) or types.is_string_view(source)))
        or (types.is_binary(target) and _is_bytes(source))
    )
    if not kept:
        _mismatch(array, node)
    return pc.cast(array, target)


def _is_bytes(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_large_binary(type_) or types.is_binary_view(type_) or types.is_fixed_size_binary(type_))


def _check_calendar(array: pa.Array, node: _Node) -> None:
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
        raise _BadValue(node.path, "the value is outside the years 1 to 9999")
