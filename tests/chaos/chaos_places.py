"""Where the warehouse of a chaos run is: a folder, a folder on a small disk that can be filled, or a bucket."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from chaos_client import die_with_parent

_DISK_BYTES = 1024**3
_BUCKET = "chaos"
_REGION = "eu-west-1"


@dataclass
class Disk:
    """A file system that can be made full."""

    root: Path

    @contextmanager
    def full(self) -> Iterator[None]:
        """Take all of its space for a while."""
        ballast = self.root / "ballast"
        descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            size = 1 << 26
            at = 0
            while size >= 4096:
                try:
                    os.posix_fallocate(descriptor, at, size)
                    at += size
                except OSError:
                    size //= 2
            yield
        finally:
            os.close(descriptor)
            ballast.unlink()


@dataclass
class Place:
    """The address of a warehouse, a folder for everything else, and the disk if it can be filled."""

    location: str
    work: Path
    disk: Disk | None = None
    is_kept: bool = False

    def keep(self) -> None:
        """Keep the files, so that the cause of a finding can be looked for."""
        self.is_kept = True
        if self.disk is not None:
            subprocess.run(["cp", "-a", str(self.disk.root), str(self.work / "kept")], check=False)


@contextmanager
def small_disk(work: Path) -> Iterator[Place]:
    """A warehouse on a file system in memory of 1 GiB; a plain folder where that cannot be mounted."""
    root = _made(work) / "disk"
    root.mkdir()
    if not _mount(root):
        place = Place(str(work / "warehouse"), work)
        yield place
    else:
        place = Place(str(root / "warehouse"), work, Disk(root))
        try:
            yield place
        finally:
            subprocess.run(["umount", "-l", str(root)], check=False)
    _remove(place)


def _mount(root: Path) -> bool:
    if os.geteuid() != 0:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(root)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@contextmanager
def bucket(work: Path) -> Iterator[Place]:
    """A warehouse in a bucket of an S3 server of its own (moto)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _made(work)
    with open(work / "moto.log", "wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=work, preexec_fn=die_with_parent)
    address = f"http://127.0.0.1:{port}"
    os.environ.update(
        AWS_ACCESS_KEY_ID="chaos",
        AWS_SECRET_ACCESS_KEY="chaos-secret",
        AWS_REGION=_REGION,
        AWS_DEFAULT_REGION=_REGION,
        AWS_ENDPOINT_URL=address,
    )
    try:
        _wait_for(address)
        request = urllib.request.Request(f"{address}/{_BUCKET}", method="PUT")
        urllib.request.urlopen(request, timeout=30).close()
        place = Place(f"s3://{_BUCKET}/lake/warehouse", work)
        yield place
    finally:
        server.kill()
        server.wait()
    _remove(place)


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _made(work: Path) -> Path:
    work.mkdir(parents=True)
    (work / "tmp").mkdir()
    return work


def _remove(place: Place) -> None:
    if not place.is_kept:
        with suppress(OSError):
            shutil.rmtree(place.work)
