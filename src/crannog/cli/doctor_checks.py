"""Checks of the machine that Crannog runs on; each reports what it found and what to do about it.

Checks have no side effects: test files are written to a temporary folder, which is removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from crannog.delta.checkpoints import inspect_log
from crannog.errors import CrannogError
from crannog.protocol.leases import CLOCK_SKEW_S
from crannog.server.auth import FOLDER, Tokens
from crannog.settings import GIB, MIB, Settings, unknown_variables
from crannog.spark import configuration, jars
from crannog.spark.java import find_java
from crannog.storage.local import LocalStorage, sync_path

if TYPE_CHECKING:
    from crannog.storage.object_store import ObjectStorage

OLDEST_PYTHON = (3, 11)
LEAST_MEMORY = 2 * GIB
LEAST_DISK = 1 * GIB
EARLIEST = 1_704_067_200  # 2024-01-01
LARGEST_SKEW_S = 2.0
_PINNED = {"pyspark": jars.SPARK, "delta-spark": jars.DELTA}
_NEEDED = (
    *("pyarrow", "deltalake", "duckdb", "sqlglot", "obstore"),
    *("protobuf", "ptars", "opentelemetry-proto", "fastapi", "uvicorn", "httptools", "hpack", "prometheus-client"),
)


@dataclass(frozen=True, slots=True)
class Check:
    """One result; `advice` is empty if the check passed."""

    name: str
    ok: bool
    found: str
    advice: str = ""


def examine(settings: Settings, *, clock: Callable[[], float] = time.time) -> list[Check]:
    """Run every check; never raises."""
    return [
        check_python(),
        check_settings(os.environ),
        check_packages(),
        check_java(settings),
        *check_jars(settings),
        check_memory(settings, configuration.machine_bytes()),
        *check_warehouse(settings, clock),
        *check_ports(settings),
    ]


def check_python() -> Check:
    """Python is new enough."""
    found = ".".join(map(str, sys.version_info[:3]))
    ok = sys.version_info[:2] >= OLDEST_PYTHON
    return Check("python", ok, found, "" if ok else "install Python 3.11 or later and run `make setup` again")


def check_settings(environment: Mapping[str, str]) -> Check:
    """Every environment variable that starts with CRANNOG_ is a setting."""
    strange = unknown_variables(environment)
    if not strange:
        return Check("settings", True, "every CRANNOG_ variable is a setting")
    unknown = [f"{name} (did you mean {near}?)" if near else name for name, near in strange.items()]
    return Check(
        "settings", False, f"not settings: {', '.join(unknown)}", "unset them; docs/settings.md lists the settings"
    )


def check_packages() -> Check:
    """The packages of the engine and the server are installed, in versions that work together."""
    found, missing = [], []
    for name in (*_PINNED, *_NEEDED):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        found.append(f"{name} {version}")
        if version != _PINNED.get(name, version):
            missing.append(f"{name}=={_PINNED[name]}")
    advice = f"pip install {' '.join(missing)}, or `pip install crannog` for all of them" if missing else ""
    return Check("packages", not missing, ", ".join(found) or "none", advice)


def check_java(settings: Settings) -> Check:
    """There is a Java version that Spark supports."""
    if settings.spark_remote:
        return Check("java", True, "not needed: Spark runs on another machine")
    try:
        java = find_java(settings)
    except CrannogError as error:
        return Check("java", False, error.finding, error.hint)
    return Check("java", True, f"Java {java.version} in {java.home}")


def check_jars(settings: Settings) -> Iterator[Check]:
    """The jars are complete, so that Spark starts without a network connection."""
    if settings.spark_remote:
        return
    wanted = [jars.DELTA_SET, *([jars.S3_SET] if settings.warehouse.startswith(("s3://", "s3a://")) else [])]
    for recipe in wanted:
        found = jars.present(recipe, settings, check_sums=True)
        name = f"{recipe.name} jars"
        if found is None:
            option = " --s3" if recipe is jars.S3_SET else ""
            yield Check(
                name,
                False,
                "missing or damaged",
                f"run `python -m crannog.spark.jars{option}` once with a network connection",
            )
        else:
            yield Check(name, True, f"{len(found.files)} in {found.folder}")


def check_memory(settings: Settings, machine_bytes: int) -> Check:
    """There is enough memory for Spark's heap and the rest of the process."""
    heap = 0 if settings.spark_remote else configuration.memory_mb(settings, machine_bytes) * MIB
    found = f"{machine_bytes / GIB:.1f} GiB, of which Spark may use {heap / GIB:.1f}"
    if machine_bytes < LEAST_MEMORY:
        return Check("memory", False, found, f"give the machine or container {LEAST_MEMORY // GIB} GiB or more")
    if heap > machine_bytes * 3 // 4:
        return Check("memory", False, found, "set CRANNOG_SPARK_MEMORY_MB to at most three quarters of the memory")
    return Check("memory", True, found)


def check_warehouse(settings: Settings, clock: Callable[[], float] = time.time) -> Iterator[Check]:
    """The folder or bucket of the warehouse supports durable, atomic commits; also checks the disk and the clock."""
    folder = _local_folder(settings.warehouse)
    if folder is None:
        yield _check_bucket(settings.warehouse)
        yield from check_access(settings)
        yield _check_clock(clock(), None)
        return
    existing = _nearest_that_exists(folder)
    free = shutil.disk_usage(existing).free
    enough = free >= LEAST_DISK
    try:
        with tempfile.TemporaryDirectory(prefix=".crannog-doctor-", dir=existing) as scratch:
            trouble = _trouble_in(Path(scratch))
            modified = _fresh_modification_time(Path(scratch))
            now = clock()
    except OSError as error:
        advice = f"give this user write permission on {existing}, or set CRANNOG_WAREHOUSE to another folder"
        yield Check("warehouse", False, f"{folder}: cannot write ({error.strerror or error})", advice)
        modified, now = None, clock()
    else:
        advice = "use a local disk, a network file system that supports this, or an s3:// warehouse"
        yield Check(
            "warehouse",
            not trouble,
            f"{folder}: {trouble or 'supports writes, links, syncs and locks'}",
            advice if trouble else "",
        )
    yield Check("disk", enough, f"{free / GIB:.1f} GiB free", "" if enough else f"free space on the disk of {existing}")
    yield _check_clock(now, modified)
    if folder.is_dir():
        yield _check_times(folder, now)
        yield check_logs(LocalStorage(folder))
        yield from check_access(settings, folder)


def _check_bucket(location: str) -> Check:
    """The bucket can be listed and written, and refuses a conditional put of an object that exists."""
    try:
        from crannog.storage.object_store import USE_ANOTHER_STORE

        storage = _bucket(location)
        storage.names("")
        refuses = storage.refuses_second_put()
    except CrannogError as error:
        return Check("warehouse", False, error.finding, error.hint or "correct the warehouse's address")
    if refuses:
        return Check("warehouse", True, f"{storage}: supports lists, writes and conditional puts")
    found = f"{storage}: the store ignores the condition of a put (If-None-Match)"
    return Check("warehouse", False, found, USE_ANOTHER_STORE)


def _bucket(location: str) -> ObjectStorage:
    # Without the check at its first use, which leaves an object there.
    from crannog.storage.object_store import ObjectStorage

    return ObjectStorage(location)


def check_access(settings: Settings, folder: Path | None = None) -> Iterator[Check]:
    """Every file of a token is valid, and where there are tokens nobody else reads the warehouse's files."""
    try:
        found = Tokens(LocalStorage(folder) if folder is not None else _bucket(settings.warehouse)).read()
    except CrannogError as error:
        yield Check("tokens", False, error.finding, error.hint or "mend the folder _crannog/tokens")
        return
    if found.damaged:
        damaged = ", ".join(f"{FOLDER}/{name}.json ({reason})" for name, reason in sorted(found.damaged.items()))
        yield Check(
            "tokens", False, f"damaged: {damaged}", "run `crannog token revoke NAME` and create the token again"
        )
    elif found.is_required and not found.tokens:
        advice = "run `crannog token create NAME --scope admin`, or `crannog token open` to need none"
        yield Check("tokens", False, "required, but there are no tokens", advice)
    else:
        yield Check("tokens", True, f"{len(found.tokens)} tokens" if found.tokens else "none")
    if folder is not None and found.is_required:
        mode = stat.S_IMODE(folder.stat().st_mode)
        ok = not mode & 0o077 & ~settings.folder_mode
        advice = f"run chmod {settings.folder_mode:o} {folder}, or set CRANNOG_WAREHOUSE_MODE to 0{mode:o}"
        who = "as warehouse_mode allows" if ok else "other users can read the tables without a token"
        yield Check("permissions", ok, f"{folder}: 0{mode:o}, {who}", "" if ok else advice)


def check_logs(storage: LocalStorage) -> Check:
    """The checkpoints of every table, including the control table, can be read."""
    checked, problems, advice = 0, [], ""
    for folder in _log_folders(storage.root):
        checked += 1
        found = inspect_log(storage, folder)
        problems += [f"{path} is damaged" for path in found.damaged]
        if found.damaged:
            lacking = found.missing_entry() is not None
            advice = (
                "restore the file from a backup"
                if lacking
                else "no data is lost; the next use of the table removes the file"
            )
    if problems:
        return Check("logs", False, "; ".join(problems), advice)
    return Check("logs", True, f"the checkpoints of {checked} logs can be read")


def check_ports(settings: Settings) -> Iterator[Check]:
    """The server's ports are free."""
    for name, port in (
        ("port", settings.port),
        ("otlp_http_port", settings.otlp_http_port),
        ("otlp_grpc_port", settings.otlp_grpc_port),
    ):
        label, advice = (
            name.replace("_", " "),
            f"stop the process that listens there (perhaps a Crannog server), or set CRANNOG_{name.upper()}",
        )
        if port == 0:
            yield Check(label, True, "any free port")
            continue
        try:
            address = socket.getaddrinfo(settings.host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(address[0], socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address[4])
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror or error}"
            yield Check(label, False, f"{settings.host}:{port} {why}", advice)
        else:
            yield Check(label, True, f"{settings.host}:{port} is free")


def _check_clock(now: float, modified: float | None) -> Check:
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < EARLIEST:
        return Check("clock", False, shown, "set the machine's clock, for example with NTP")
    skew = 0.0 if modified is None else modified - now
    if abs(skew) > LARGEST_SKEW_S:
        advice = "set the clocks of this machine and its file server, for example with NTP"
        return Check("clock", False, f"{shown}, but the files of the warehouse are {skew:+.1f} s off", advice)
    return Check("clock", True, shown)


def _check_times(folder: Path, now: float) -> Check:
    """No log entry is from the future, which would mean that the clock was set back."""
    newest = max(
        ((entry.stat().st_mtime, entry) for log in _log_folders(folder) for entry in (folder / log).glob("*.json")),
        default=None,
    )
    if newest is None or newest[0] - now <= CLOCK_SKEW_S:
        return Check("times", True, "no log entry is from the future")
    ahead = f"{newest[1].relative_to(folder)} is {newest[0] - now:.0f} s in the future: the clock was set back"
    advice = "check the clock; maintenance continues, but unused files are deleted that much later"
    return Check("times", False, ahead, advice)


def _log_folders(root: Path) -> list[str]:
    return sorted(
        str(path.relative_to(root))
        for pattern in ("*/*/*/_delta_log", "_crannog/*/_delta_log")
        for path in root.glob(pattern)
    )


def _local_folder(warehouse: str) -> Path | None:
    if "://" not in warehouse:
        return Path(warehouse).expanduser().absolute()
    parts = urlsplit(warehouse)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _nearest_that_exists(folder: Path) -> Path:
    return next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))


def _trouble_in(scratch: Path) -> str:
    """Return what commits need and the file system does not support; empty if nothing."""
    file, link = scratch / "file", scratch / "link"
    file.write_bytes(b"crannog")
    try:
        os.link(file, link)
    except OSError as error:
        return f"no hard links ({error.strerror})"
    try:
        os.link(file, link)
    except FileExistsError:
        pass
    else:
        return "a hard link replaced another file"
    for path in (file, scratch):
        try:
            sync_path(str(path))
        except OSError as error:
            return f"no fsync ({error.strerror})"
    return _trouble_with_locks(file)


def _trouble_with_locks(file: Path) -> str:
    with file.open("rb+") as first, file.open("rb+") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return f"no file locks ({error.strerror})"
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return ""
        return "file locks do not exclude other processes"


def _fresh_modification_time(scratch: Path) -> float:
    file = scratch / "now"
    file.write_bytes(b"")
    return file.stat().st_mtime
