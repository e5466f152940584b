"""Converts JSON Schemas and Pydantic models to Arrow schemas.

integer becomes int64, number float64, boolean bool, string string (with format date-time an instant in
microseconds, date a date, binary bytes), array a list, a string enum a string, an object with properties a struct.
An object whose `additionalProperties` is a schema and that has no properties becomes a map with string keys.
A field is nullable when it may be null or is not in `required`. A node without a single type is an error with its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from crannog.delta.schema_json import INSTANT, list_of, map_of
from crannog.errors import CallerError

MAX_NESTING = 32
"""The maximum number of nesting levels of a column, itself included."""

_DECIMAL_PRECISION, _DECIMAL_SCALE = 38, 18
_STRING_FORMATS = {"date-time": INSTANT, "date": pa.date32(), "binary": pa.binary()}
_CONST_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def from_pydantic(model: type[BaseModel]) -> pa.Schema:
    """Return the columns of a model as it is dumped (by alias, with computed fields). Raises CallerError with the path."""
    try:
        # Rows are stored as the model serializes them, so the serialization schema decides, not the validation schema.
        return from_json_schema(model.model_json_schema(mode="serialization", schema_generator=_TypedJsonSchema))
    except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
        raise CallerError(f"the model {model.__name__} has no JSON Schema: {error.message}") from error


def from_json_schema(document: Mapping[str, Any]) -> pa.Schema:
    """Convert the root object's properties to columns. Raises CallerError with the path of a node without a column type."""
    reader = _Reader(document)
    try:
        root, refs = reader.shape(document, "the root", ())
        if root.get("type", "object") != "object" or not isinstance(root.get("properties"), Mapping):
            raise CallerError("a JSON Schema for a table is an object with properties, one for each column")
        return pa.schema(reader.fields(root, "", refs, 1))
    except (AttributeError, KeyError, RecursionError, TypeError, UnicodeError) as error:
        # The document comes from the caller; a list where an object belongs is the caller's error, not ours.
        raise CallerError(f"the JSON Schema is malformed: {error}") from error


class _TypedJsonSchema(GenerateJsonSchema):
    """Pydantic's JSON Schema with the types that it would otherwise turn into strings."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        digits, places = schema.get("max_digits"), schema.get("decimal_places")
        # max_digits alone does not determine the scale, so only both together narrow the column.
        if digits is not None and places is not None:
            return {"type": "decimal", "precision": digits, "scale": places}
        return {
            "type": "decimal",
            "precision": _DECIMAL_PRECISION,
            "scale": _DECIMAL_SCALE if places is None else places,
        }

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        return {"type": "string", "format": "binary"}

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        return {"type": "time"}

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        return {"type": "duration"}

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        described = super().dict_schema(schema)
        keys = self.generate_inner(schema["keys_schema"]) if "keys_schema" in schema else {}
        if keys.get("type", "string") != "string":
            described["propertyNames"] = keys
        return described


class _Reader:
    """Converts one document; only references inside it are resolved."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def fields(self, node: Mapping[str, Any], path: str, refs: tuple[str, ...], depth: int) -> list[pa.Field]:
        """Return one field per property; a property that is not required is nullable."""
        required = node.get("required", ())
        fields = []
        for name, child in node["properties"].items():
            type_, nullable = self._type(child, path + str(name), refs, depth)
            fields.append(pa.field(str(name), type_, nullable=nullable or name not in required))
        return fields

    def shape(self, node: Any, path: str, refs: tuple[str, ...]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Follow references and single `allOf`s to the node with the type; also return the references followed."""
        while True:
            if not isinstance(node, Mapping):
                raise CallerError(f"column {path} may hold anything; give it a type")
            if "$ref" in node:
                reference = node["$ref"]
                if reference in refs:
                    raise CallerError(
                        f"column {path} refers to itself through {reference}; a table needs a fixed depth"
                    )
                refs = (*refs, reference)
                node = self._resolve(reference, path)
            elif isinstance(node.get("allOf"), list) and len(node["allOf"]) == 1 and "properties" not in node:
                node = node["allOf"][0]
            else:
                return node, refs

    def _resolve(self, reference: Any, path: str) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise CallerError(f"column {path} refers to {reference!r}; only refs inside the document are followed")
        node: Any = self._document
        for part in unquote(reference[1:]).split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or part not in node:
                raise CallerError(f"column {path} refers to {reference!r}, which is not in the document")
            node = node[part]
        return node

    def _type(self, node: Any, path: str, refs: tuple[str, ...], depth: int) -> tuple[pa.DataType, bool]:
        """Return the Arrow type of a node, and whether it is nullable."""
        if depth > MAX_NESTING:
            raise CallerError(f"column {path} is nested deeper than {MAX_NESTING} levels")
        node, refs = self.shape(node, path, refs)
        variants = node.get("anyOf", node.get("oneOf"))
        if variants is not None:
            real = [v for v in variants if not (isinstance(v, Mapping) and v.get("type") == "null")]
            if len(real) != 1:
                raise CallerError(f"column {path} has {len(real)} variants besides null; a column has one type")
            type_, nullable = self._type(real[0], path, refs, depth)
            return type_, nullable or len(real) < len(variants)
        for word in ("allOf", "not", "if", "prefixItems", "patternProperties"):
            if word in node:
                raise CallerError(f"column {path} uses {word}, which has no single column type")
        names = self._type_names(node, path)
        real_names = [name for name in names if name != "null"]
        if len(real_names) != 1:
            raise CallerError(
                f"column {path} may be {' or '.join(names) or 'anything'}; a column has one type, or null"
            )
        return self._named(real_names[0], node, path, refs, depth), len(real_names) < len(names)

    def _type_names(self, node: Mapping[str, Any], path: str) -> list[str]:
        values = node["enum"] if "enum" in node else [node["const"]] if "const" in node else None
        given = node.get("type")
        if values is not None:
            kinds = list(dict.fromkeys(_CONST_TYPES.get(type(value), "object") for value in values))
            if given == "decimal":
                return ["decimal"]
            # With an explicit type of number, an enum such as [1, 2.5] is a number.
            return ["number", *(k for k in kinds if k == "null")] if given == "number" else kinds
        if given is None:
            if "properties" in node or "additionalProperties" in node:
                return ["object"]
            raise CallerError(f"column {path} may hold anything; give it a type")
        return [str(name) for name in given] if isinstance(given, list) else [str(given)]

    def _named(self, name: str, node: Mapping[str, Any], path: str, refs: tuple[str, ...], depth: int) -> pa.DataType:
        match name:
            case "integer":
                return pa.int64()
            case "number":
                return pa.float64()
            case "boolean":
                return pa.bool_()
            case "string":
                return _STRING_FORMATS.get(str(node.get("format")), pa.string())
            case "decimal":
                return _decimal(node, path)
            case "array":
                type_, nullable = self._type(node.get("items"), path + "[]", refs, depth + 1)
                return list_of(type_, nullable=nullable)
            case "object":
                return self._object(node, path, refs, depth)
        raise CallerError(f"column {path} has type {name}, which a table cannot hold; use string or integer instead")

    def _object(self, node: Mapping[str, Any], path: str, refs: tuple[str, ...], depth: int) -> pa.DataType:
        properties, extra = node.get("properties"), node.get("additionalProperties")
        values = extra if isinstance(extra, Mapping) and extra else None
        if properties and values:
            raise CallerError(
                f"column {path} has properties and typed additionalProperties; it is a struct or a map, not both"
            )
        if properties:
            return pa.struct(self.fields(node, path + ".", refs, depth + 1))
        if values:
            keys = node.get("propertyNames", {})
            if isinstance(keys, Mapping) and keys.get("type", "string") != "string":
                raise CallerError(
                    f"column {path} is a map with {keys['type']} keys; keys from a JSON Schema are strings"
                )
            type_, nullable = self._type(values, path + "[value]", refs, depth + 1)
            return map_of(pa.string(), type_, nullable=nullable)
        raise CallerError(
            f"column {path} is a free-form object; name its properties, or store it as JSON text in a string"
        )


def _decimal(node: Mapping[str, Any], path: str) -> pa.DataType:
    precision, scale = node.get("precision"), node.get("scale")
    if (
        not isinstance(precision, int)
        or not isinstance(scale, int)
        or not 0 <= scale <= precision <= 38
        or precision < 1
    ):
        raise CallerError(
            f"column {path} is a decimal({precision}, {scale}); use a precision of 1 to 38 and a scale of 0 up to the precision"
        )
    return pa.decimal128(precision, scale)
