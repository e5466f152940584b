"""A server in the test's own process, on a socket, whose build log each test may have to itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crannog.embedded import EmbeddedLake
from crannog.server.http_server import HttpServer
from crannog.server.service import BuildLog
from crannog.settings import load_settings


class BuildServer:
    """A running server."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self.url = server.url

    def serve(self, uri: str) -> str:
        """Let the server keep its builds in a log of its own from now on; return the server's address."""
        self._server.service.build_log.close()
        self._server.service.build_log = BuildLog(self._server.service.lake, uri)
        return self.url


@pytest.fixture(scope="session")
def build_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildServer]:
    """One server for all tests of a run."""
    settings = load_settings(warehouse=str(tmp_path_factory.mktemp("served") / "warehouse"), audit=False)
    with EmbeddedLake(settings.warehouse, settings=settings) as lake:
        server = HttpServer(lake, "127.0.0.1", 0)
        server.start()
        try:
            yield BuildServer(server)
        finally:
            server.stop_accepting()
            server.abort()
            server.join(10)
            server.service.build_log.close()
