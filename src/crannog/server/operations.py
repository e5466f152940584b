"""Routes of declared operations: the right, the request and the OpenAPI description come from the declaration.

Requests are read from what came over HTTP: a query string, or a JSON document.
"""

from __future__ import annotations

import datetime as dt
import re
import types
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from fastapi import APIRouter
from pydantic import TypeAdapter
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from crannog.api.operations import AnyOperation, Operation, Route, day_of
from crannog.errors import CallerError
from crannog.names import TableName, without_raw_prefix
from crannog.server.openapi import OBJECT, OBJECT_OR_NULL, TABLE_IN_PATH, gives, inlined, parameter
from crannog.server.requests import BODY, call_of, form_of, json_document
from crannog.server.responses import JSON

Q = TypeVar("Q")
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def _boolean(text: str) -> bool:
    return _BOOLEANS[text.lower()]


_CONVERTERS: dict[Any, Callable[[str], Any]] = {bool: _boolean, int: int, float: float, dt.date: day_of}
_SCALARS = (str, int, float, bool, type(None))
_WANTED: dict[Callable[[str], Any], str] = {_boolean: "true or false", int: "a whole number", float: "a number"}


class _Argument:
    """One field of a request, and how it is read from text."""

    def __init__(self, field: Field[Any], hint: Any) -> None:
        self.name = field.name
        self.parameter: str = field.metadata.get("query", field.name)
        self.about: str = field.metadata.get("about", "")
        self.schema: dict[str, Any] = field.metadata.get("schema", {})
        self.is_required = field.default is MISSING and field.default_factory is MISSING
        self._parse: Callable[[list[str]], Any] | None = field.metadata.get("parse")
        options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        items = [get_args(option)[0] if get_args(option) else option for option in options]
        self._scalars: tuple[type, ...] = tuple(options) if all(option in _SCALARS for option in options) else ()
        self._is_list = any(get_origin(option) not in (None, dict, Mapping) for option in options)
        self.convert = next((convert for kind, convert in _CONVERTERS.items() if kind in items), str)

    def read(self, values: list[str]) -> Any:
        """Return the value that a query string gives."""
        if self._parse is not None:
            return self._parse(values)
        try:
            return [self.convert(value) for value in values] if self._is_list else self.convert(values[-1])
        except (ValueError, KeyError):
            raise CallerError(
                f"the request does not fit: query.{self.parameter}: it is {_WANTED[self.convert]}, got {values[-1][:40]!r}"
            ) from None

    def check(self, value: Any) -> None:
        """Raise CallerError unless a value of a JSON document has the type of the argument."""
        if not self._scalars or type(value) in self._scalars or (type(value) is int and float in self._scalars):
            return
        wanted = _WANTED.get(self.convert, "text")
        raise CallerError(f"{BODY} does not fit: {self.name}: it is {wanted}, got {str(value)[:40]!r}")

    def of_document(self, value: Any) -> Any:
        """Return a value of a JSON document, which has no dates."""
        if self.convert is not day_of:
            return value
        if isinstance(value, list):
            return [day_of(item) if isinstance(item, str) else item for item in value]
        return day_of(value) if isinstance(value, str) else value


class RequestReader(Generic[Q]):
    """Reads the requests of one operation at one of its routes."""

    def __init__(self, operation: Operation[Q, Any], route: Route, *, typed: bool = False) -> None:
        """`typed` checks the type of the body and of its values here, and takes an empty body for one without arguments.

        Otherwise the operation checks them itself, with the errors that a caller in the process gets.
        """
        self._kind = operation.request
        self._route = route
        self._typed = typed
        hints = get_type_hints(operation.request)
        self._arguments = {field.name: _Argument(field, hints[field.name]) for field in fields(operation.request)}  # type: ignore[arg-type]

    def takes(self, argument: str) -> bool:
        """Return whether the request has an argument."""
        return argument in self._arguments

    async def read(self, request: Request) -> Q:
        """Return the request; CallerError says which argument is wrong."""
        if self._route.method == "GET":
            return self._from_query(request.path_params, request.query_params)
        if self._typed:
            form_of(request, ("json",))

        def parse(data: bytes) -> Q:
            document = {} if self._typed and not data.strip() else json_document(data)
            return self._from_document(document, request.path_params)

        return await call_of(request).service.bodies.document(request, parse)

    def _from_query(self, path: Mapping[str, Any], query: QueryParams) -> Q:
        """Build a request from the path and the query string; unknown parameters are ignored."""
        arguments: dict[str, Any] = {}
        for name, argument in self._arguments.items():
            if name in path:
                arguments[name] = path[name]
            elif values := query.getlist(argument.parameter):
                arguments[name] = argument.read(values)
            elif argument.is_required:
                raise CallerError(f"the request does not fit: query.{argument.parameter}: field required")
        return self._kind(**arguments)

    def _from_document(self, document: Any, path: Mapping[str, Any]) -> Q:
        """Build a request from a JSON document; its values are checked where the request is carried out."""
        if not isinstance(document, dict):
            raise CallerError(f"{BODY} does not fit: input should be an object")
        for name in document:
            if name not in self._arguments or name in path:
                known = ", ".join(known for known in self._arguments if known not in path)
                raise CallerError(f"{BODY} does not fit: {name[:80]}: there is no such field; there are {known}")
        arguments: dict[str, Any] = {**document, **path}
        for name, argument in self._arguments.items():
            if name in document and self._typed:
                argument.check(document[name])
            if name in arguments:
                arguments[name] = argument.of_document(arguments[name])
            elif argument.is_required:
                raise CallerError(f"{BODY} does not fit: {name}: field required")
        return self._kind(**arguments)

    def described(self) -> dict[str, Any]:
        """Describe the request for the OpenAPI document."""
        schema = inlined(TypeAdapter(self._kind).json_schema(mode="validation"))
        for name, argument in self._arguments.items():
            schema["properties"].get(name, {}).update(argument.schema)
        in_path = re.findall(r"{(\w+)", self._route.path)
        parameters: list[dict[str, Any]] = [
            TABLE_IN_PATH if name == "name" else parameter(name, "path", {"type": "string"}, required=True)
            for name in in_path
        ]
        if self._route.method != "GET":
            schema["additionalProperties"] = False
            schema["properties"] = {name: part for name, part in schema["properties"].items() if name not in in_path}
            schema["required"] = [name for name in schema.get("required", ()) if name not in in_path]
            if self._typed and not schema["properties"]:
                return {"parameters": parameters}
            is_required = not self._typed or bool(schema["required"])
            body = {"required": is_required, "content": {JSON: {"schema": schema}}}
            return {"parameters": parameters, "requestBody": body}
        for name, argument in self._arguments.items():
            if name not in in_path and name != "attributes":  # a query string has them as pairs
                shape = {
                    key: part
                    for key, part in schema["properties"][name].items()
                    if key != "title" and not (key == "default" and part in (None, []))
                }
                parameters.append(
                    parameter(argument.parameter, "query", shape, argument.about, required=argument.is_required)
                )
        return {"parameters": parameters}


def result_schema(operation: AnyOperation) -> dict[str, Any]:
    """Describe what an operation returns, as far as JSON clients need to know."""
    if get_origin(operation.result) is types.UnionType:
        return OBJECT_OR_NULL
    if get_origin(operation.result) is not list:
        return OBJECT
    [item] = get_args(operation.result)
    if get_origin(item) is tuple:
        return {"type": "array", "items": {"type": "array", "items": {"type": ["string", "null"]}}}
    return {"type": "array", "items": {"type": "string" if item is str else "object"}}


CarryOut = Callable[[Request, AnyOperation, Any], Awaitable[Response]]
"""Carries out the request of an operation and answers it."""


def add_routes(
    router: APIRouter,
    operation: AnyOperation,
    carry_out: CarryOut,
    *,
    answers: dict[int | str, dict[str, Any]] | None = None,
    owner: TableName | None = None,
    typed: bool = False,
    parameters: Sequence[dict[str, Any]] = (),
    takes: dict[str, Any] | None = None,
) -> None:
    """Add the routes of an operation.

    The caller needs the operation's right to `owner`, or to the table in the path. `answers` describes the answer,
    `parameters` are what the routes take besides; see `RequestReader` for `typed`. `takes` describes a body that is not
    a document of the request's fields: then `carry_out` gets the name of the table, and reads the body itself.
    """
    for route in operation.routes:
        reader = RequestReader(operation, route, typed=typed)
        description = reader.described() if takes is None else {"parameters": [TABLE_IN_PATH], **takes}
        description["parameters"] = [*description["parameters"], *parameters]
        if takes is None:
            endpoint = _endpoint(operation, reader, carry_out, owner)
        else:
            endpoint = _endpoint_of_change(operation, carry_out)
        router.add_api_route(
            route.path,
            endpoint,
            methods=[route.method],
            name=operation.name,
            operation_id=_operation_id(operation, route),
            description=operation.summary,
            responses=answers or gives({"type": "object"}),
            openapi_extra=description,
        )


def _endpoint(
    operation: AnyOperation, reader: RequestReader[Any], carry_out: CarryOut, owner: TableName | None
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        call, path = call_of(request), request.path_params
        if owner is not None:
            call.need(operation.right, owner)
        elif "name" in path:
            plain, is_raw = without_raw_prefix(path["name"])
            path["name"] = TableName.parse(plain)
            call.need(operation.right, path["name"])
            if is_raw and reader.takes("raw"):
                path["raw"] = True
        return await carry_out(request, operation, await reader.read(request))

    return endpoint


def _endpoint_of_change(operation: AnyOperation, carry_out: CarryOut) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        # A table cannot be changed under the name of its raw form, which is not valid here.
        name = TableName.parse(request.path_params["name"])
        call_of(request).need(operation.right, name)
        return await carry_out(request, operation, name)

    return endpoint


def _operation_id(operation: AnyOperation, route: Route) -> str:
    words = [word for word in route.path.split("/") if word and not word.startswith("{")]
    return "_".join([operation.name, *words, route.method.lower()])
