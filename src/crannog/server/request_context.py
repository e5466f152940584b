"""One request while it is served: who sent it, what it touches, and what the log and the audit record of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request

from crannog.names import TableName, without_raw_prefix
from crannog.server.auth.scopes import Caller

if TYPE_CHECKING:
    from crannog.server.service import Service


@dataclass(slots=True)
class Call:
    """Lives as long as its request. `need` comes before anything is opened, so that no caller learns what it may not see.

    `headers` has lower-case names; of a header that is repeated it has the last. `held` is the bytes reserved for the body.
    """

    service: Service
    request_id: str
    caller: Caller
    address: str
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)
    tables: tuple[str, ...] = ()
    rows: int | None = None
    sql: str | None = None
    engine: str = ""
    error_code: str = ""
    status: int = 0
    left: bool = False
    held: int = 0

    def need(self, level: str, *names: TableName) -> None:
        """Raise Forbidden unless the caller may do this on all these tables."""
        self.tables = tuple(map(str, names))
        self.caller.check(level, names)

    def header(self, name: bytes) -> str:
        """Return a header by its lower-case name; empty if it was not sent."""
        return self.headers.get(name, b"").decode("latin-1")

    def table(self, level: str, text: str) -> str:
        """Check a table's name and the right to it; return the name as it was given."""
        self.named_table(level, text)
        return text

    def named_table(self, level: str, text: str) -> TableName:
        """Check a table's name and the right to it; return the name without the prefix of its raw form."""
        name = TableName.parse(without_raw_prefix(text)[0])
        self.need(level, name)
        return name

    def written_table(self, level: str, text: str) -> str:
        """The same for a change of rows, which cannot be made under the name of a table's raw form."""
        self.need(level, TableName.parse(text))
        return text

    @property
    def elapsed_ms(self) -> float:
        return (time.perf_counter() - self.started) * 1000


def call_of(request: Request) -> Call:
    """Return the context of a request."""
    call: Call = request.scope["crannog.call"]
    return call
