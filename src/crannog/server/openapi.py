"""How routes describe what they take and give, for the OpenAPI document: bodies are read by hand, within limits."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, TypeAdapter

from crannog.server.responses import ARROW, CSV, JSON, NDJSON, PARQUET

Schema = dict[str, Any]
"""A part of an OpenAPI document."""


def parameter(name: str, place: str, schema: Schema, about: str = "", *, required: bool = False) -> Schema:
    """Describe a parameter in the path, in the query string or in a header."""
    return {
        "name": name,
        "in": place,
        "required": required,
        "schema": schema,
        **({"description": about} if about else {}),
    }


TEXT: Schema = {"type": "string"}
TABLE_IN_PATH = parameter("name", "path", TEXT, "The table, as catalog.schema.table.", required=True)
BATCH_ID = parameter(
    "Crannog-Batch-Id",
    "header",
    TEXT,
    "1 to 256 characters. The same id again keeps nothing and answers `duplicate`.",
)

_ANY_ROWS: Schema = {"oneOf": [{"type": "array", "items": {"type": "object"}}, {"type": "object"}]}
_BYTES: Schema = {"type": "string", "format": "binary"}
ERROR: Schema = {
    "description": "What went wrong, and what to do about it.",
    "content": {
        JSON: {
            "schema": {
                "type": "object",
                "required": ["error"],
                "properties": {
                    "error": {
                        "type": "object",
                        "required": ["code", "message", "retry_after_s"],
                        "properties": {
                            "code": {"type": "string"},
                            "message": {"type": "string"},
                            "retry_after_s": {"type": ["number", "null"]},
                        },
                    }
                },
            }
        }
    },
}


def shaped(model: type[Any]) -> Schema:
    """Return the JSON Schema of a model or a dataclass."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        return model.model_json_schema(ref_template="#/$defs/{model}")
    return inlined(TypeAdapter(model).json_schema(mode="serialization"))


def inlined(schema: Schema) -> Schema:
    definitions = schema.pop("$defs", {})

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return walk(definitions[node["$ref"].rpartition("/")[2]])
            return {name: walk(inner) for name, inner in node.items()}
        return [walk(inner) for inner in node] if isinstance(node, list) else node

    found: Schema = walk(schema)
    return found


def takes(content: dict[str, Schema], *, required: bool = True) -> Schema:
    """Describe a body by its media types."""
    return {
        "requestBody": {
            "required": required,
            "content": {media: {"schema": schema} for media, schema in content.items()},
        }
    }


def takes_rows() -> Schema:
    return takes({JSON: _ANY_ROWS, NDJSON: {"type": "string"}, CSV: {"type": "string"}, ARROW: _BYTES})


def takes_json(model: type[Any], *, arrow: bool = False, required: bool = True) -> Schema:
    return takes({JSON: shaped(model), **({ARROW: _BYTES} if arrow else {})}, required=required)


def gives(
    schema: Schema | type[Any] | None = None,
    *,
    status: int = 200,
    rows: bool = False,
    arrow: bool = False,
    progress: bool = False,
    lines: bool = False,
) -> dict[int | str, Schema]:
    """Describe an answer, and that all else is an error."""
    body = {} if schema is None else schema if isinstance(schema, dict) else shaped(schema)
    content: Schema = {JSON: {"schema": body}}
    if rows:
        content |= {form: {"schema": {"type": "string"}} for form in (NDJSON, CSV)}
        content[PARQUET] = {"schema": {"type": "string", "format": "binary"}}
    if rows or arrow:
        content |= {ARROW: {"schema": _BYTES}}
    if progress or lines:
        content |= {NDJSON: {"schema": {"type": "string"}}}
    return {status: {"description": "Done.", "content": content}, "4XX": ERROR, "5XX": ERROR}


LIST: Schema = {"type": "array", "items": {"type": "object"}}
NAMES: Schema = {"type": "array", "items": {"type": "string"}}
OBJECT: Schema = {"type": "object"}
OBJECT_OR_NULL: Schema = {"type": ["object", "null"]}
