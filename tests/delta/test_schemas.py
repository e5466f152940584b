"""Schemas: what is accepted and in which form, what is refused and with which words, and how one may change."""

from __future__ import annotations

import enum
import json
import random
import uuid
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, Optional

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, computed_field

from crannog.delta import schemas
from crannog.delta.schema_json import list_of, map_of
from crannog.delta.schemas import comparison_forms
from crannog.errors import CallerError, Corrupted, CrannogError, Refused
from crannog.spark.session import SparkRuntime

UTC_US = pa.timestamp("us", tz="UTC")


def schema_of(**types: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, type_) for name, type_ in types.items()])


# --- random schemas in normal form -------------------------------------------------------------------------------

EXACT = st.one_of(
    st.sampled_from([pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string(), pa.binary(), pa.date32()]),
    st.just(UTC_US),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s))),
)
LEAVES = st.one_of(EXACT, st.sampled_from([pa.float32(), pa.float64()]))
NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters=' ,;{}()=.`"\x7f', exclude_categories=("Cc", "Cs")), min_size=1
)


def fields(
    types: st.SearchStrategy[pa.DataType], names: st.SearchStrategy[str] = NAMES
) -> st.SearchStrategy[list[pa.Field]]:
    entries = st.tuples(names.filter(lambda n: len(n) < 50), types, st.booleans())
    made = st.lists(
        entries,
        min_size=1,
        max_size=4,
        unique_by=(lambda e: comparison_forms(e[0])[0], lambda e: comparison_forms(e[0])[1]),
    )
    return made.map(lambda es: [pa.field(n, t, nullable=b) for n, t, b in es])


TYPES: st.SearchStrategy[pa.DataType] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda t, b: list_of(t, nullable=b), inner, st.booleans()),
        st.builds(lambda k, v, b: map_of(k, v, nullable=b), EXACT, inner, st.booleans()),
        fields(inner).map(pa.struct),
    ),
    max_leaves=8,
)
SCHEMAS = fields(TYPES, NAMES.filter(lambda n: not n.startswith("_"))).map(pa.schema)


@given(SCHEMAS)
def test_normal_schemas_are_fixed_points(schema: pa.Schema) -> None:
    assert schemas.user_schema(schema).equals(schema, check_metadata=True)


@given(SCHEMAS)
def test_delta_json_round_trip_is_exact(schema: pa.Schema) -> None:
    assert schemas.from_delta_json(schemas.to_delta_json(schema)).equals(schema, check_metadata=True)


@given(SCHEMAS)
def test_delta_rs_writes_the_same_json(schema: pa.Schema) -> None:
    assert json.loads(schemas.to_delta_json(schema)) == json.loads(Schema.from_arrow(schema).to_json())
    assert pa.schema(Schema.from_json(schemas.to_delta_json(schema)).to_arrow()) == schema


def shuffled(value: Any, dice: random.Random) -> Any:
    if isinstance(value, pa.Schema):
        return pa.schema(dice.sample([shuffled(f, dice) for f in value], len(value)))
    if isinstance(value, pa.Field):
        return value.with_type(shuffled(value.type, dice))
    if pa.types.is_struct(value):
        return pa.struct(dice.sample([shuffled(f, dice) for f in value], value.num_fields))
    if pa.types.is_list(value):
        return list_of(shuffled(value.value_type, dice), nullable=value.value_field.nullable)
    return value


@given(SCHEMAS, st.randoms(use_true_random=False))
def test_fingerprint_ignores_order(schema: pa.Schema, dice: random.Random) -> None:
    mixed = shuffled(schema, dice)
    assert schemas.fingerprint(mixed) == schemas.fingerprint(schema)
    assert schemas.difference(schema, mixed).is_same


@given(SCHEMAS, SCHEMAS)
def test_fingerprint_tells_schemas_apart(one: pa.Schema, other: pa.Schema) -> None:
    assert (schemas.fingerprint(one) == schemas.fingerprint(other)) == schemas.difference(one, other).is_same


@settings(max_examples=15, deadline=None)
@given(schema=SCHEMAS)
def test_delta_rs_creates_the_table_and_gives_the_schema_back(
    schema: pa.Schema, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = schemas.with_system_columns(schema, ["_date"])
    folder = tmp_path_factory.mktemp("table")
    table = DeltaTable.create(str(folder), Schema.from_json(schemas.to_delta_json(whole)), partition_by=["_date"])
    assert schemas.from_delta_json(table.schema().to_json()).equals(whole)
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)


def test_delta_rs_takes_the_arrow_schema_itself(tmp_path: Path) -> None:
    whole = schemas.with_system_columns(schemas.user_schema(schema_of(a=pa.large_string(), t=pa.list_(pa.int8()))))
    assert schemas.from_delta_json(DeltaTable.create(str(tmp_path), whole).schema().to_json()) == whole


# --- types -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_type", "kept"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("s", tz="Europe/Paris"), UTC_US),
        (pa.timestamp("ms", tz="UTC"), UTC_US),
        (pa.decimal32(5, 2), pa.decimal128(5, 2)),
        (pa.decimal256(38, 4), pa.decimal128(38, 4)),
        (pa.list_(pa.int8(), 3), list_of(pa.int8())),
        (pa.large_list(pa.field("x", pa.large_string(), nullable=False)), list_of(pa.string(), nullable=False)),
        (pa.list_view(pa.int8()), list_of(pa.int8())),
        (
            pa.struct([pa.field("a", pa.date64(), nullable=False)]),
            pa.struct([pa.field("a", pa.date32(), nullable=False)]),
        ),
        (
            pa.map_(pa.large_string(), pa.field("v", pa.date64(), nullable=False)),
            map_of(pa.string(), pa.date32(), nullable=False),
        ),
    ],
)
def test_types_become_plain(given_type: pa.DataType, kept: pa.DataType) -> None:
    assert schemas.user_schema(schema_of(c=given_type)).field("c").type == kept


@pytest.mark.parametrize(
    ("type_", "hint"),
    [
        (pa.uint32(), "signed"),
        (pa.float16(), "float32"),
        (pa.time64("us"), "int64 or string"),
        (pa.duration("s"), "int64"),
        (pa.timestamp("ns", tz="UTC"), "microseconds"),
        (pa.timestamp("us"), "zone"),
        (pa.null(), "type"),
        (pa.sparse_union([pa.field("a", pa.int8())]), "variant"),
        (pa.decimal256(39, 2), "38"),
        (pa.decimal128(5, -2), "38"),
        (pa.struct([]), "at least one field"),
        (pa.map_(pa.float64(), pa.int8()), "map keys must be"),
        (pa.uuid(), "basic Arrow type"),
    ],
)
def test_other_types_are_refused_with_a_hint(type_: pa.DataType, hint: str) -> None:
    with pytest.raises(CallerError, match=r"column order\.lines\[\]") as caught:
        schemas.user_schema(
            schema_of(order=pa.struct([pa.field("lines", pa.list_(pa.struct([pa.field("price", type_)])))]))
        )
    assert "order.lines[].price" in caught.value.message
    assert hint in caught.value.message


@pytest.mark.parametrize(
    "name", ["", "a b", "a,b", "a;b", "a{", "a}", "a(", "a)", "a\n", "a\t", "a=b", "a.b", "a`", 'a"', "a\0", "x" * 256]
)
@pytest.mark.parametrize("nested", [False, True])
def test_bad_names_are_refused(name: str, nested: bool) -> None:
    field = pa.field(name, pa.int8())
    with pytest.raises(CallerError, match="name"):
        schemas.user_schema(pa.schema([pa.field("s", pa.struct([field])) if nested else field]))


SAME = [
    ("a", "a"), ("a", "A"), ("straSSe", "STRASSE"), ("s", "ſ"), ("S", "ſ"), ("i", "ı"), ("i", "İ"), ("I", "ı"), ("σ", "ς"),
    ("k", "\u212a"), ("µ", "μ"), ("İ", "i\u0307"), ("ß", "ẞ"), ("ΑΣ", "ας"), ("ᾳ", "ᾼ"), ("ǆ", "ǅ"), ("xſy", "xsy"),
]  # fmt: skip
DIFFERENT = [("ß", "ss"), ("é", "e\u0301"), ("o", "ö"), ("ﬁ", "fi"), ("ŉ", "n"), ("a", "а")]


@pytest.mark.parametrize("names", SAME)
@pytest.mark.parametrize("nested", ["", "struct", "list", "map"])
def test_names_that_differ_by_case_only_are_refused(names: tuple[str, str], nested: str) -> None:
    twice = [pa.field(n, pa.int8()) for n in names]
    inside = pa.struct(twice)
    kinds = {"struct": inside, "list": pa.list_(inside), "map": pa.map_(pa.string(), inside)}
    with pytest.raises(CallerError, match=r"twice|case") as caught:
        schemas.user_schema(pa.schema([pa.field("x", kinds[nested])] if nested else twice))
    assert all(name in caught.value.message for name in names)


@pytest.mark.parametrize("names", DIFFERENT)
def test_names_that_only_look_alike_are_two_columns(names: tuple[str, str]) -> None:
    assert schemas.user_schema(pa.schema([pa.field(n, pa.int8()) for n in names])).names == list(names)


@pytest.mark.slow  # the names that matter are tested without Spark above
def test_names_are_compared_as_spark_compares_them(spark: SparkRuntime) -> None:
    session = spark.session()
    for one, other in [*SAME, *DIFFERENT]:
        if one.lower() != other.lower():  # where the lower case is the same, Spark does not even take both
            left = session.range(1).selectExpr(f"1 AS `{one}`", f"2 AS `{other}`").drop(one).columns
            assert bool(left) == ((one, other) in DIFFERENT), (one, other)
    # Spark's resolver is Java's equalsIgnoreCase, which maps each code point by itself.
    java = session._jvm.java.lang.Character  # type: ignore[union-attr]
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    cased = [letter for letter in every if letter.upper() != letter or letter.lower() != letter]
    odd = [letter for letter in cased if comparison_forms(letter)[1] != letter.lower() or len(letter.upper()) > 1]
    assert len(cased) > 2_000
    assert len(odd) > 50
    for letter in {*odd, *random.Random(15).sample(cased, 200)}:
        in_java, ours = java.toLowerCase(java.toUpperCase(ord(letter))), comparison_forms(letter)[1]
        assert comparison_forms(chr(in_java))[1] == ours, hex(ord(letter))
        if java.isDefined(ord(letter)):  # a Java may know less of Unicode than this Python
            assert java.toLowerCase(java.toUpperCase(ord(ours))) == in_java, hex(ord(letter))


@pytest.mark.parametrize("name", ["_created_at", "_x", "__raw__"])
def test_reserved_names_are_refused_at_the_top_only(name: str) -> None:
    with pytest.raises(CallerError, match="reserved"):
        schemas.user_schema(pa.schema([pa.field(name, pa.int8())]))
    schemas.user_schema(schema_of(s=pa.struct([pa.field(name, pa.int8())])))


def test_depth_and_emptiness() -> None:
    deep: pa.DataType = pa.int8()
    for _ in range(31):
        deep = list_of(deep)
    assert schemas.user_schema(schema_of(c=deep)).field("c").type == deep
    with pytest.raises(CallerError, match="deeper than 32"):
        schemas.user_schema(schema_of(c=list_of(deep)))
    with pytest.raises(CallerError, match="at least one column"):
        schemas.user_schema(pa.schema([]))


@pytest.mark.parametrize("source", [None, "a: int", 5, int, [("a", pa.int8())]])
def test_other_sources_are_refused(source: Any) -> None:
    with pytest.raises(CallerError, match="a schema is"):
        schemas.user_schema(source)


# --- JSON Schema and Pydantic ------------------------------------------------------------------------------------


def column(node: Any, **document: Any) -> pa.Field:
    return schemas.user_schema({"type": "object", "properties": {"c": node}, "required": ["c"], **document}).field("c")


@pytest.mark.parametrize(
    ("node", "type_", "nullable"),
    [
        ({"type": "integer"}, pa.int64(), False),
        ({"type": "number"}, pa.float64(), False),
        ({"type": "boolean"}, pa.bool_(), False),
        ({"type": "string"}, pa.string(), False),
        ({"type": "string", "format": "uuid"}, pa.string(), False),
        ({"type": "string", "format": "date-time"}, UTC_US, False),
        ({"type": "string", "format": "date"}, pa.date32(), False),
        ({"type": "string", "format": "binary"}, pa.binary(), False),
        ({"enum": ["a", "b"]}, pa.string(), False),
        ({"enum": ["a", None]}, pa.string(), True),
        ({"enum": [1, 2], "type": "integer"}, pa.int64(), False),
        ({"enum": [1, 2.5], "type": "number"}, pa.float64(), False),
        ({"const": "a"}, pa.string(), False),
        ({"type": ["integer", "null"]}, pa.int64(), True),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, pa.int64(), True),
        ({"oneOf": [{"type": "null"}, {"type": "string", "format": "date"}]}, pa.date32(), True),
        ({"allOf": [{"type": "string"}]}, pa.string(), False),
        ({"type": "array", "items": {"type": "integer"}}, list_of(pa.int64(), nullable=False), False),
        ({"type": "array", "items": {"type": ["integer", "null"]}}, list_of(pa.int64()), False),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            map_of(pa.string(), pa.int64(), nullable=False),
            False,
        ),
        (
            {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]},
            pa.struct([pa.field("a", pa.string(), nullable=False), pa.field("b", pa.string())]),
            False,
        ),
    ],
)
def test_json_schema_types(node: Any, type_: pa.DataType, nullable: bool) -> None:
    assert column(node).equals(pa.field("c", type_, nullable=nullable))


def test_what_is_not_required_is_nullable() -> None:
    made = schemas.user_schema({"type": "object", "properties": {"a": {"type": "integer"}}})
    assert made.field("a").nullable


def test_refs_are_followed_also_at_the_root() -> None:
    defs = {
        "N": {"type": "object", "properties": {"x": {"$ref": "#/$defs/a~1b"}}, "required": ["x"]},
        "a/b": {"type": "integer"},
    }
    assert column({"$ref": "#/$defs/N"}, **{"$defs": defs}).type == pa.struct(
        [pa.field("x", pa.int64(), nullable=False)]
    )
    assert schemas.user_schema({"$ref": "#/$defs/N", "$defs": defs}).names == ["x"]


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({}, "anything"),
        (True, "anything"),
        ({"type": "array"}, r"c\[\] may hold anything"),
        ({"type": "object"}, "free-form"),
        ({"type": "object", "additionalProperties": True}, "free-form"),
        ({"type": "object", "properties": {}, "additionalProperties": {}}, "free-form"),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, r"column c\.a is a free-form"),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
            "not both",
        ),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "2 variants"),
        ({"anyOf": [{"type": "null"}]}, "0 variants"),
        ({"type": ["integer", "string"]}, "one type"),
        ({"type": "null"}, "one type"),
        ({"enum": ["a", 1]}, "one type"),
        ({"type": "array", "prefixItems": [{"type": "integer"}]}, "prefixItems"),
        ({"allOf": [{"type": "string"}, {"minLength": 2}]}, "allOf"),
        ({"type": "money"}, "money"),
        ({"$ref": "#/$defs/No"}, "not in the document"),
        ({"$ref": "http://elsewhere/x.json"}, "inside the document"),
        ({"$ref": "#/properties/c"}, "refers to itself"),
        ({"type": "array", "items": {"$ref": "#/$defs/Tree"}}, "refers to itself"),
    ],
)
def test_json_schema_without_a_column_type_is_refused(node: Any, words: str) -> None:
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}
    with pytest.raises(CallerError, match=words):
        column(node, **{"$defs": {"Tree": tree}})


@pytest.mark.parametrize("document", [{}, {"type": "array"}, {"type": "object"}, {"type": "string"}])
def test_a_root_that_is_no_table(document: Any) -> None:
    with pytest.raises(CallerError, match="object with properties"):
        schemas.user_schema(document)


def nested_variants() -> Any:
    node: Any = {"type": "string"}
    for _ in range(5000):
        node = {"anyOf": [node]}
    return node


@pytest.mark.parametrize(
    "node",
    [
        {"type": "object", "properties": [1]},
        {"enum": 5},
        {"anyOf": 5},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": 5},
        {"type": "object", "properties": {"\ud800": {"type": "string"}}},
        nested_variants(),
    ],
)
def test_malformed_json_schema(node: Any) -> None:
    with pytest.raises(CallerError, match="malformed"):
        column(node)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Line(BaseModel):
    price: Decimal = Field(max_digits=10, decimal_places=2)
    note: str | None = None


class Order(BaseModel):
    id: int
    name: str = Field(serialization_alias="title")
    at: datetime
    day: date
    raw: bytes
    weight: float
    ok: bool
    amount: Decimal
    colour: Colour
    kind: Literal["a", "b"]
    ref: uuid.UUID
    lines: list[Line]
    first: Optional[Line]  # noqa: UP045
    tags: dict[str, int]
    numbers: set[int]
    status: str = "new"

    @computed_field
    def total(self) -> int:
        return 1


def test_pydantic_model() -> None:
    line = pa.struct([pa.field("price", pa.decimal128(10, 2), nullable=False), pa.field("note", pa.string())])
    expected = [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("title", pa.string(), nullable=False),
        pa.field("at", UTC_US, nullable=False),
        pa.field("day", pa.date32(), nullable=False),
        pa.field("raw", pa.binary(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("ok", pa.bool_(), nullable=False),
        pa.field("amount", pa.decimal128(38, 18), nullable=False),
        pa.field("colour", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("ref", pa.string(), nullable=False),
        pa.field("lines", list_of(line, nullable=False), nullable=False),
        pa.field("first", line),
        pa.field("tags", map_of(pa.string(), pa.int64(), nullable=False), nullable=False),
        pa.field("numbers", list_of(pa.int64(), nullable=False), nullable=False),
        pa.field("status", pa.string()),
        pa.field("total", pa.int64(), nullable=False),
    ]
    assert schemas.user_schema(Order).equals(pa.schema(expected))


class Tree(BaseModel):
    kids: list[Tree]


@pytest.mark.parametrize(
    "hint", [time, timedelta, dict[str, Any], dict[int, str], tuple[int, str], int | str, Any, object, Tree]
)
def test_pydantic_fields_without_a_column_type(hint: Any) -> None:
    model = type("Model", (BaseModel,), {"__annotations__": {"c": hint}})
    with pytest.raises(CallerError, match="column c"):
        schemas.user_schema(model)


def test_a_recursive_model_and_one_without_json_schema() -> None:
    with pytest.raises(CallerError, match="refers to itself"):
        schemas.user_schema(Tree)
    model = type(
        "Model", (BaseModel,), {"__annotations__": {"c": type}, "model_config": {"arbitrary_types_allowed": True}}
    )
    with pytest.raises(CallerError):
        schemas.user_schema(model)


# --- system columns, keys, partitions ----------------------------------------------------------------------------


def test_system_columns_come_last() -> None:
    user = schema_of(a=pa.int8())
    assert schemas.with_system_columns(user, []).names == ["a", "_created_at", "_batch_id"]
    whole = schemas.with_system_columns(user, ["_date"])
    assert whole.names == ["a", "_created_at", "_batch_id", "_date"]
    assert not any(whole.field(name).nullable for name in schemas.SYSTEM_COLUMNS)
    assert schemas.user_columns(whole) == user


@pytest.mark.parametrize(
    "type_", [pa.string(), pa.int8(), pa.int64(), pa.date32(), UTC_US, pa.binary(), pa.decimal128(9, 2), pa.bool_()]
)
def test_key_columns_become_not_null(type_: pa.DataType) -> None:
    checked = schemas.check_key(schema_of(a=pa.int8(), k=type_), ["k"])
    assert (checked.field("a").nullable, checked.field("k").nullable) == (True, False)


@pytest.mark.parametrize(
    "type_", [pa.float64(), pa.float32(), list_of(pa.int8()), pa.struct([pa.field("k", pa.int8())])]
)
def test_other_types_are_no_key(type_: pa.DataType) -> None:
    with pytest.raises(CallerError, match="cannot be a key"):
        schemas.check_key(schema_of(k=type_), ["k"])


@pytest.mark.parametrize("key", [["z"], ["a", "a"], "a", ["s.x"], ["A"]])
def test_wrong_keys(key: Any) -> None:
    with pytest.raises(CallerError, match="key column"):
        schemas.check_key(schema_of(a=pa.int8(), s=pa.struct([pa.field("x", pa.int8())])), key)


def test_partition_columns() -> None:
    user = schema_of(a=pa.string(), b=pa.date32(), f=pa.float64(), t=UTC_US)
    assert schemas.check_partition_by(user, ["b", "_date"]) == ("b", "_date")
    assert schemas.check_partition_by(schema_of(a=pa.int8()), ["_date"]) == ("_date",)
    assert schemas.check_partition_by(user, []) == ()
    for wrong in (["f"], ["t"], ["z"], ["a", "a"], "a", ["_created_at"]):
        with pytest.raises(CallerError):
            schemas.check_partition_by(user, wrong)
    with pytest.raises(CallerError, match="every column"):
        schemas.check_partition_by(schema_of(a=pa.string()), ["a", "_date"])


# --- the Delta log and evolution ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["timestamp_ntz", "variant", "void", "decimal(39,2)", "decimal(3,5)", "interval"])
def test_unknown_delta_types_name_the_column(kind: str) -> None:
    inner = {"type": "struct", "fields": [{"name": "b", "type": kind, "nullable": True, "metadata": {}}]}
    field = {"name": "a", "type": {"type": "array", "elementType": inner, "containsNull": True}, "nullable": True}
    with pytest.raises(Refused, match=r"a\[\]\.b") as caught:
        schemas.from_delta_json(json.dumps({"type": "struct", "fields": [field]}))
    assert isinstance(caught.value, CrannogError)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"type":"struct"}', '{"type":"struct","fields":[{"name":"a"}]}', '"string"']
)
def test_text_that_is_no_schema(text: str) -> None:
    with pytest.raises(Corrupted, match="Delta log"):
        schemas.from_delta_json(text)


def test_types_not_in_normal_form_are_not_written() -> None:
    with pytest.raises(Refused, match="column a"):
        schemas.to_delta_json(schema_of(a=pa.uint8()))


@pytest.mark.parametrize(
    ("old", "new", "legal"),
    [
        (pa.int8(), pa.int16(), True),
        (pa.int8(), pa.int64(), True),
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.float32(), pa.float64(), True),
        (pa.float64(), pa.float32(), False),
        (pa.int32(), pa.float64(), False),
        (pa.decimal128(5, 2), pa.decimal128(7, 2), True),
        (pa.decimal128(5, 2), pa.decimal128(7, 4), True),
        (pa.decimal128(5, 2), pa.decimal128(6, 4), False),
        (pa.decimal128(5, 2), pa.decimal128(7, 1), False),
        (pa.int32(), pa.decimal128(20, 0), False),
        (pa.date32(), UTC_US, False),
        (pa.string(), pa.binary(), False),
        (list_of(pa.int32()), list_of(pa.int64()), False),
        (pa.struct([pa.field("a", pa.int8())]), pa.struct([pa.field("a", pa.int8()), pa.field("b", pa.int8())]), False),
        (map_of(pa.string(), pa.int8()), map_of(pa.string(), pa.int8(), nullable=False), False),
    ],
)
def test_widening(old: pa.DataType, new: pa.DataType, legal: bool) -> None:
    current, proposed = schema_of(a=pa.string(), c=old), schema_of(c=new, a=pa.string())
    change = schemas.difference(current, proposed)
    assert change.is_evolution is legal
    assert not change.is_same
    if legal:
        assert schemas.evolved(current, proposed) == schema_of(a=pa.string(), c=new)
        assert "column c widens" in change.describe()
    else:
        with pytest.raises(CallerError, match="column c"):
            schemas.evolved(current, proposed)


def test_added_columns_stand_before_the_system_columns() -> None:
    current = schemas.with_system_columns(schema_of(a=pa.int8(), b=pa.string()), ["_date"])
    proposed = schema_of(new=pa.date32(), b=pa.string(), a=pa.int16())
    change = schemas.difference(current, proposed)
    assert change.added_fields == (pa.field("new", pa.date32()),)
    after = schemas.evolved(current, proposed)
    assert after.names == ["a", "b", "new", "_created_at", "_batch_id", "_date"]
    assert after.field("a").type == pa.int16()
    assert schemas.evolved(after, proposed) == after


@pytest.mark.parametrize(
    ("proposed", "words"),
    [
        (
            [
                pa.field("a", pa.int8()),
                pa.field("b", pa.int8(), nullable=False),
                pa.field("n", pa.int8(), nullable=False),
            ],
            "n is new",
        ),
        ([pa.field("a", pa.int8())], "b is missing"),
        ([pa.field("a", pa.int8(), nullable=False), pa.field("b", pa.int8(), nullable=False)], "may have nulls"),
        ([pa.field("a", pa.int8()), pa.field("b", pa.int8())], "not supported yet"),
        ([pa.field("a", pa.int8()), pa.field("b", pa.int16())], "only widening"),
        ([pa.field("A", pa.int8()), pa.field("b", pa.int8(), nullable=False)], "a is missing"),
    ],
)
def test_changes_that_are_refused_say_why(proposed: list[pa.Field], words: str) -> None:
    current = pa.schema([pa.field("a", pa.int8()), pa.field("b", pa.int8(), nullable=False)])
    assert not schemas.difference(current, pa.schema(proposed)).is_evolution
    with pytest.raises(CallerError, match=words):
        schemas.evolved(current, pa.schema(proposed))


def test_no_difference() -> None:
    same = schemas.difference(schema_of(a=pa.int8()), schema_of(a=pa.int8()))
    assert (same.is_same, same.is_evolution, same.describe()) == (True, False, "no difference")
