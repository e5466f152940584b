"""A lake on a server: the operations over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from crannog.api.lake import Lake, LoadArguments
from crannog.names import TableName
from crannog.remote.connection import Connection
from crannog.remote.tables import TableTransport

if TYPE_CHECKING:
    from crannog.api.reports import LoadReport
    from crannog.api.traces import Traces
    from crannog.remote.builds import HttpLog


class RemoteLake(Lake):
    """What `crannog.connect` returns for the address of a server. Thread-safe and fork-safe."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self._connection = Connection(address, token)
        self._tables = TableTransport(self._connection)
        super().__init__(self._tables)

    def _find(self, name: TableName) -> None:
        self._connection.check_open()
        self._tables.find(name)

    @property
    def address(self) -> str:
        """The address of the server."""
        return self._connection.address

    @cached_property
    def traces(self) -> Traces:
        """The traces: store spans; read traces, metrics and dependencies."""
        from crannog.api.traces import Traces
        from crannog.remote.transport import TraceTransport

        return Traces(TraceTransport(self._connection))

    @cached_property
    def builds(self) -> HttpLog:
        """The build log of the server, with the interface of `crannog.builds.open_log`."""
        from crannog.remote.builds import HttpLog

        return HttpLog(self.address, connection=self._connection)

    def load(self, files: Sequence[str] | str, name: str, **options: Unpack[LoadArguments]) -> LoadReport:
        """Load local files (names, patterns, `-`) into a table, each once; see `api.Lake.load` for the options."""
        from crannog.tables.load import load
        from crannog.tables.load_options import LoadOptions

        progress, cancellation = options.pop("progress", None), options.pop("cancellation", None)
        checked = LoadOptions.checked(**options)
        return load(self, files, name, checked, progress=progress, cancellation=cancellation)

    def __repr__(self) -> str:
        return f"RemoteLake({self.address!r})"
