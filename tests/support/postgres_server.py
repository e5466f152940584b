"""A PostgreSQL server of the tests' own: Debian's binaries, a temporary data folder, a unix socket."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

SUPERUSER = "crannog"


@dataclass(frozen=True)
class Server:
    """A running server; no TCP port is open."""

    socket_folder: str

    def uri(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@/{database}?host={quote(self.socket_folder, safe='')}"

    def new_schema(self, name: str) -> str:
        """Return the address of an empty schema: quicker to make, and to throw away, than a database."""
        import psycopg

        with psycopg.connect(self.uri("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{name}"')
        return f"{self.uri('postgres')}&options=-csearch_path%3D{name}"

    def new_database(self, name: str) -> str:
        import psycopg

        with psycopg.connect(self.uri("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.uri(name)


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if found:
        return found[-1].parent
    on_path = shutil.which("pg_ctl")
    return Path(on_path).parent if on_path else None


class NoServer(Exception):
    """PostgreSQL cannot be had here; the message says why."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """Start the server, which the whole run shares; skip, saying why, where it cannot be had."""
    pytest.importorskip("psycopg", reason="the driver psycopg is not installed")
    try:
        with started() as server:
            yield server
    except NoServer as reason:
        pytest.skip(str(reason))


@contextmanager
def started() -> Iterator[Server]:
    """Run a server with a fresh, empty data folder; NoServer says why there is none."""
    binaries = _binaries()
    if binaries is None:
        raise NoServer("no PostgreSQL server is installed: apt-get install postgresql")
    # A short path: a unix socket's may have 107 letters at most.
    folder = Path(tempfile.mkdtemp(prefix="crannog-pg-", dir="/tmp"))
    data = folder / "data"
    # The server refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    as_user = ["runuser", "-u", user, "--"] if user else []
    if user:
        shutil.chown(folder, user)

    def run(*command: str) -> None:
        done = subprocess.run([*as_user, *command], capture_output=True, text=True, cwd="/", timeout=120)
        if done.returncode:
            raise NoServer(f"PostgreSQL did not start: {done.stderr.strip()[-300:]}")

    try:
        run(
            str(binaries / "initdb"),
            "-D",
            str(data),
            "-U",
            SUPERUSER,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "-N",
        )
        options = f"-k {folder} -c listen_addresses= -c max_connections=60 -c shared_buffers=32MB -c autovacuum=off"
        run(str(binaries / "pg_ctl"), "-D", str(data), "-l", str(folder / "server.log"), "-o", options, "-w", "start")
        try:
            yield Server(str(folder))
        finally:
            run(str(binaries / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
