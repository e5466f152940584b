"""A server in this process for each file of tests, and a connection to its warehouse: directly, and over HTTP."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import crannog
from crannog.api.lake import Lake
from crannog.server.http_server import HttpServer
from doors import serving_here

_numbers = itertools.count()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with serving_here(tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture(params=["embedded", "remote"])
def connection(request: pytest.FixtureRequest, running: HttpServer) -> Iterator[Lake]:
    if request.param == "embedded":
        yield running.service.lake
    else:
        with crannog.connect(running.url) as lake:
            yield lake


@pytest.fixture
def name() -> str:
    return f"shop.contract.t{next(_numbers)}"
