"""The page about HTTP: every route of the OpenAPI document, what it takes and what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.markdown import cell, code, document, table

_METHODS = ("get", "put", "post", "patch", "delete")
_TITLES = {
    "state": "State of the server",
    "sql": "SQL",
    "cache": "Tables in memory",
    "aliases": "Other names of routes",
}
_SHORT = {
    "application/json": "JSON",
    "application/x-ndjson": "NDJSON",
    "text/csv": "CSV",
    "application/vnd.apache.parquet": "Parquet",
    "application/vnd.apache.arrow.stream": "Arrow",
    "text/plain": "text",
    "application/x-protobuf": "Protobuf",
}


def page() -> str:
    """Return the page."""
    found = openapi()
    lines = [
        "# HTTP",
        "",
        "Made from the OpenAPI document that a running server gives at `/api/openapi.json`; `/api/docs` on the server shows the same",
        "routes to try. Where tokens were made, every request needs `Authorization: Bearer TOKEN`. Errors have one shape,",
        '`{"error": {"code", "message", "retry_after_s"}}`, and the status of their [branch](errors.md).',
        "",
        "JSON is `application/json`, NDJSON `application/x-ndjson`, CSV `text/csv`, Parquet `application/vnd.apache.parquet`, Arrow an IPC stream,",
        "`application/vnd.apache.arrow.stream`: name what you send in `Content-Type` and what you want in `Accept`.",
        "`{name}` in an address is a table, `catalog.schema.table`.",
        "",
    ]
    for tag in dict.fromkeys(route.tag for route in routes(found)):
        title = _TITLES.get(tag, tag.capitalize())
        lines += [f"## {title}", ""]
        for route in routes(found):
            if route.tag == tag:
                lines += _description(route, found)
    return document(lines)


def openapi() -> dict[str, Any]:
    """Return the document of the routes, without a server."""
    from crannog.server.app import api

    # The routes ask for their service when they are called, not before.
    service: Any = None
    return api(service).openapi()


class Route:
    """A method of an address."""

    def __init__(self, path: str, method: str, operation: dict[str, Any]) -> None:
        self.path, self.method, self.operation = path, method.upper(), operation
        self.tag: str = (operation.get("tags") or ["other"])[0]


def routes(found: dict[str, Any]) -> Iterator[Route]:
    """Yield every route of an OpenAPI document."""
    for path, methods in found["paths"].items():
        for method in _METHODS:
            if method in methods:
                yield Route(path, method, methods[method])


def _description(route: Route, found: dict[str, Any]) -> list[str]:
    operation = route.operation
    lines = [
        f"### {route.method} {route.path}",
        "",
        *(operation.get("description") or operation.get("summary") or "").splitlines(),
        "",
    ]
    rows = [
        (
            code(each["name"]),
            each["in"],
            _type(each.get("schema", {}), found),
            each.get("description", "") + (" Must be given." if each.get("required") and each["in"] != "path" else ""),
        )
        for each in operation.get("parameters", [])
        if (each["in"], each["name"]) != ("path", "name")  # described once, above all routes
    ]
    lines += table(("parameter", "in", "type", ""), rows)
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        lines += [f"Takes {_media(body)}.", ""]
        schema = _resolved(
            next(
                (each.get("schema", {}) for media, each in body.items() if "json" in media and "ndjson" not in media),
                {},
            ),
            found,
        )
        needed = schema.get("required", [])
        fields = [
            (
                code(name),
                _type(each, found),
                cell(each.get("description", "")) + (" Must be given." if name in needed else ""),
            )
            for name, each in schema.get("properties", {}).items()
        ]
        lines += table(("field of the JSON", "type", ""), fields)
    for status, answer in operation.get("responses", {}).items():
        content = answer.get("content", {})
        if not status.startswith(("4", "5")):
            lines += [f"Answers {status}" + (f" with {_media(content)}" if content else "") + ".", ""]
            schema = _resolved(next((each.get("schema", {}) for each in content.values()), {}), found)
            if schema.get("properties"):
                lines += ["Fields: " + ", ".join(code(name) for name in schema["properties"]) + ".", ""]
    return lines


def _media(content: dict[str, Any]) -> str:
    names = [_SHORT.get(media, code(media)) for media in content]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _resolved(schema: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference to where it leads."""
    while "$ref" in schema:
        place: Any = found
        for part in schema["$ref"].removeprefix("#/").split("/"):
            place = place.get(part, {})
        schema = place
    return schema


def _type(schema: dict[str, Any], found: dict[str, Any]) -> str:
    schema = _resolved(schema, found)
    if "anyOf" in schema or "oneOf" in schema:
        kinds = [_type(each, found) for each in schema.get("anyOf") or schema["oneOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return ", ".join(code(str(value)) for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}), found)}"
    default = schema.get("default")
    return f"{kind}" + (
        f", else {code(str(default).lower() if isinstance(default, bool) else str(default))}"
        if default not in (None, "", [])
        else ""
    )
