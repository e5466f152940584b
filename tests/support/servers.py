"""A real server process on a free port of loopback, over a warehouse of the test's own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from crannog.embedded import EmbeddedLake
from crannog.server.app import make_app
from crannog.server.service import Service
from crannog.settings import load_settings
from crannog.spark import session
from crannog.spark.session import SparkRuntime

PROGRAM = str(Path(sys.executable).parent / "crannog")
_URL = re.compile(r"https?://\S+?(?=;)")


class Server:
    """A running `crannog serve`. Settings are given by name: `Server(folder, log_level="info")`."""

    def __init__(self, warehouse: Path, **settings: Any) -> None:
        # Nothing is ever due that would start Spark, unless a test asks for it.
        quiet = {
            "spark_at_start": False,
            "fold_rows": 10**9,
            "fold_bytes": 10**12,
            "fold_age_s": 10**6,
            "fold_share": 1,
            "audit": False,
        }
        variables = {**quiet, "port": 0, "warehouse": warehouse, "spark_memory_mb": 1024, **settings}
        env = {**os.environ, **{f"CRANNOG_{name.upper()}": str(value) for name, value in variables.items()}}
        self.warehouse = warehouse
        self._log = warehouse.parent / f"server-{time.monotonic_ns()}.log"
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "serve"], stdout=subprocess.PIPE, stderr=log, text=True, env=env, cwd=warehouse.parent
            )
        self.lines: list[str] = []
        self._said = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        if not self._said.wait(60) or not self.lines:
            self.kill()
            raise AssertionError(f"the server did not start: {self.log()}")
        found = _URL.search(self.lines[0])
        assert found, self.lines
        self.url = found[0]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._said.set()
        self._said.set()

    def log(self) -> str:
        """What it wrote to standard error so far."""
        return self._log.read_text()

    def client(self, token: str | None = None, **options: Any) -> httpx.Client:
        """A plain HTTP client for it."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, **options)

    def stop(self) -> int:
        """Tell it to stop and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(warehouse: Path, **settings: Any) -> Iterator[Server]:
    """Run a server for a while."""
    server = Server(warehouse, **settings)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


def made_token(warehouse: Path, name: str, *scopes: str, expires_days: float | None = None) -> str:
    """Make a token through the command line."""
    options = [part for scope in scopes for part in ("--scope", scope)]
    if expires_days is not None:
        options += ["--expires-days", str(expires_days)]
    env = {**os.environ, "CRANNOG_WAREHOUSE": str(warehouse)}
    made = subprocess.run(
        [PROGRAM, "token", "create", name, *options, "--json"], capture_output=True, text=True, check=True, env=env
    )
    return str(json.loads(made.stdout)["token"])


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 and its key; skips the test where there is no openssl."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "2",
    ]
    try:
        subprocess.run(
            [*made, "-keyout", str(key), "-out", str(certificate), "-addext", "subjectAltName=IP:127.0.0.1"],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("there is no openssl here")
    return certificate, key


@contextmanager
def in_process(
    folder: Path, address: str = "127.0.0.1", *, loopback: bool = True, **settings: Any
) -> Iterator[tuple[Service, Callable[..., httpx.Response]]]:
    """The same application without a process or a socket, for what must be forced; yields its parts and how to ask it."""
    own_settings = load_settings(warehouse=str(folder / "warehouse"), **{"audit": False, **settings})
    with pytest.MonkeyPatch.context() as patch, EmbeddedLake(own_settings.warehouse, settings=own_settings) as lake:
        if session._process_wide is None:
            # A process has one Spark, with the settings of whoever asked first: these must not become everybody's.
            patch.setattr(session, "_process_wide", SparkRuntime(own_settings))
        service = Service(lake, loopback=loopback)
        app = make_app(service)

        def ask(method: str, path: str, **request: Any) -> httpx.Response:
            async def send() -> httpx.Response:
                transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(address, 123))
                async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7117") as client:
                    return await client.request(method, path, **request)

            return asyncio.run(send())

        yield service, ask
        service.threads.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server without Spark for all tests of a module; each makes tables of its own."""
    with serving(tmp_path_factory.mktemp("served") / "warehouse") as running:
        yield running


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    """A client of the module's server."""
    with server.client() as client:
        yield client
