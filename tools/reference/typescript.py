"""The routes as types for the web pages, from the OpenAPI document: web/src/api/routes.ts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reference.http_routes import openapi

TARGET = Path(__file__).parents[2] / "web" / "src" / "api" / "routes.ts"
_METHODS = ("get", "post", "put", "delete")
_NAMES = {
    "string": "string",
    "integer": "number | bigint",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
_PLAIN = re.compile(r"[A-Za-z_$][\w$]*")
_HEAD = """/** The routes of the server: made from its OpenAPI document by `make docs`, not by hand. */

/** An object of which the document does not say more. */
export type Fields = Record<string, unknown>;

export interface Routes {
"""


def text() -> str:
    """Return the module."""
    return _HEAD + "".join(_routes(openapi())) + "}\n"


def _routes(document: dict[str, Any]) -> Iterator[str]:
    for path, methods in sorted(document["paths"].items()):
        for method in _METHODS:
            if method in methods and path.startswith("/api/v1/"):
                yield _route(method.upper(), path, methods[method], document)


def _route(method: str, path: str, route: dict[str, Any], document: dict[str, Any]) -> str:
    parts = []
    for place in ("path", "query"):
        fields = {
            each["name"]: (each["schema"], each.get("required", False))
            for each in route.get("parameters", ())
            if each["in"] == place
        }
        if fields:
            parts.append(f"    {place}: {_object(fields, document)};\n")
    body = route.get("requestBody", {}).get("content", {}).get("application/json")
    if body is not None:
        optional = "" if route["requestBody"].get("required") else " | undefined"
        parts.append(f"    body: {_type(body['schema'], document)}{optional};\n")
    for status, response in sorted(route["responses"].items()):
        answer = response.get("content", {}).get("application/json")
        if status.startswith("2") and answer is not None:
            parts.append(f"    answer: {_type(answer.get('schema', {}), document)};\n")
            break
    return f"  {json.dumps(f'{method} {path}')}: {{\n{''.join(parts)}  }};\n"


def _object(fields: dict[str, tuple[Any, bool]], document: dict[str, Any]) -> str:
    written = [
        f"{name if _PLAIN.fullmatch(name) else json.dumps(name)}{'' if required else '?'}:"
        f" {_type(schema, document)}{'' if required else ' | undefined'}"
        for name, (schema, required) in fields.items()
    ]
    return f"{{ {'; '.join(written)} }}"


def _type(schema: dict[str, Any], document: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _type(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document)
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(_type(option, document) for option in options))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(_type({**schema, "type": each}, document) for each in kind))
    if kind == "array":
        return f"Array<{_type(schema.get('items', {}), document)}>"
    if kind == "object":
        if properties := schema.get("properties"):
            required = schema.get("required", ())
            return _object({name: (part, name in required) for name, part in properties.items()}, document)
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values, document)}>" if isinstance(values, dict) else "Fields"
    return _NAMES.get(str(kind), "unknown")
