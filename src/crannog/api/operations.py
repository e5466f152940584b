"""Operations, each declared once for the public classes, the routes of the server, the client and the OpenAPI document.

A declaration names the request (a frozen dataclass, whose fields are the arguments), the type of the result, the right that
a caller needs, and the routes. A transport carries a request out: in the process by a direct call, or over HTTP.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, Generic, Literal, Protocol, TypeVar

from crannog.api.reports import Cancellation, Progress
from crannog.errors import CallerError

Q = TypeVar("Q")
R = TypeVar("R")
Level = Literal["schema", "ingest", "read", "write", "admin"]
"""What a caller needs: see `server.scopes`."""


@dataclass(frozen=True, slots=True)
class Route:
    """One address of an operation, below `/api/v1`.

    GET takes the fields of the request from the address and the query string, the others from a JSON document.
    """

    method: str
    path: str


def get(path: str) -> Route:
    return Route("GET", path)


def post(path: str) -> Route:
    return Route("POST", path)


def put(path: str) -> Route:
    return Route("PUT", path)


def delete(path: str) -> Route:
    return Route("DELETE", path)


@dataclass(frozen=True, slots=True, eq=False)
class Operation(Generic[Q, R]):
    """The declaration of one operation. The client uses its first route; its summary is the request's docstring."""

    name: str
    request: type[Q]
    result: type[R]
    right: Level
    routes: tuple[Route, ...]

    @property
    def summary(self) -> str:
        return cleandoc(self.request.__doc__ or "")


AnyOperation = Operation[Any, Any]
"""An operation, where nothing depends on the types of its request and result."""


def in_query(name: str, parse: Callable[[list[str]], Any] | None = None, about: str = "") -> Mapping[str, Any]:
    """Return the metadata of a field that has another name, or another form, in a query string."""
    return {"query": name, "parse": parse, "about": about}


def day_of(text: str) -> dt.date:
    """Read a date; raises CallerError if it is not one."""
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise CallerError(f"a day must be written as YYYY-MM-DD, like 2026-01-31, got {text[:40]!r}") from None


class Transport(Protocol):
    """Carries requests to where they are handled."""

    def call(self, operation: Operation[Q, R], request: Q) -> R:
        """Return the result of an operation; raises its error."""

    def run(
        self, operation: Operation[Q, R], request: Q, progress: Progress | None, cancellation: Cancellation | None
    ) -> R:
        """Run a long job, report its progress, and return its result; raises Cancelled if it was cancelled."""

    def lines(self, operation: Operation[Q, str], request: Q) -> Generator[str, None, None]:
        """Yield the lines of a result while they are produced."""

    def within(self, timeout_s: float | None, query_id: str | None) -> Transport:
        """Return a transport whose calls have this time limit, and can be cancelled by this id."""

    def cancel(self, query_id: str) -> None:
        """Cancel a call by its query id; raises NotFound if none is running."""
