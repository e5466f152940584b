"""The jars that Spark needs beyond its own: resolved once and kept in a folder.

A set of jars is a folder that appears complete (built in a temporary folder, then renamed) with a list of its files,
their sizes and checksums. Starting Spark only checks that list, so it needs no network. The sets are
`delta`, always needed, and `s3`, needed for warehouses in S3 and resolved on first use.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from crannog.errors import CrannogError, Unavailable, not_installed
from crannog.settings import Settings, load_settings
from crannog.spark.java import find_java
from crannog.storage.local import sync_path

# These versions belong together; delta-spark 4.4.1's jar does not resolve.
SPARK, DELTA, HADOOP, AWS_SDK = "4.2.0", "4.4.0", "3.5.0", "2.35.4"
MARKER = "files.json"
RESOLVE_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class JarSetSpec:
    """A set of jars to resolve: Maven coordinates, and modules to exclude in addition to Spark's own."""

    name: str
    folder: str
    packages: tuple[str, ...]
    excludes: tuple[str, ...] = ()


DELTA_SET = JarSetSpec(
    name="delta",
    folder=f"{SPARK}-{DELTA}",
    packages=(f"io.delta:delta-spark_4.2_2.13:{DELTA}",),
    # Through Unity Catalog's client it would pull in the AWS bundle, 641 MB.
    excludes=("org.apache.hadoop:hadoop-aws",),
)
S3_SET = JarSetSpec(
    name="s3",
    folder=f"{SPARK}-s3-{HADOOP}",
    packages=(
        f"org.apache.hadoop:hadoop-aws:{HADOOP}",
        *(
            f"software.amazon.awssdk:{module}:{AWS_SDK}"
            for module in (
                "s3",
                "s3-transfer-manager",
                "sts",
                "apache-client",
                "netty-nio-client",
                "url-connection-client",
            )
        ),
    ),
    # The bundle has every AWS service in 641 MB; S3A runs on the modules above, 13 MB.
    excludes=("software.amazon.awssdk:bundle",),
)


@dataclass(frozen=True, slots=True)
class JarSet:
    """A complete folder of jars."""

    folder: Path
    files: tuple[Path, ...]

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self.files)


def ensure(spec: JarSetSpec, settings: Settings) -> JarSet:
    """Return a set of jars, resolving it on first use. Raises Unavailable if that fails."""
    return present(spec, settings) or _resolve(spec, settings)


def present(spec: JarSetSpec, settings: Settings, *, check_sums: bool = False) -> JarSet | None:
    """Return the set if it is complete on disk, else None; uses no network."""
    return _read_set(_root(settings) / spec.folder, check_sums=check_sums)


def _read_set(folder: Path, *, check_sums: bool = False) -> JarSet | None:
    try:
        listed: dict[str, dict[str, object]] = json.loads((folder / MARKER).read_text(encoding="utf-8"))["files"]
        files = tuple(folder / name for name in sorted(listed))
        for file in files:
            entry = listed[file.name]
            if file.stat().st_size != entry["size"] or (check_sums and _sha256(file) != entry["sha256"]):
                return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return JarSet(folder, files)


def module_name(jar: str) -> str:
    """Return the artifact name of a jar file: `netty-codec-4.2.13.Final.jar` is `netty-codec`."""
    return re.sub(r"-\d[0-9A-Za-z.]*(-.*)?$", "", jar.removesuffix(".jar"))


def spark_home() -> Path:
    """Return the folder of the installed PySpark, which contains Spark. Raises Unavailable if it is not installed."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise not_installed(ModuleNotFoundError(name="pyspark"), "Spark")
    version = metadata.version("pyspark")
    if version != SPARK:
        raise Unavailable(f"PySpark is {version}, Crannog's Delta jars need {SPARK}; run pip install pyspark=={SPARK}")
    return Path(spec.origin).parent


def _root(settings: Settings) -> Path:
    if settings.jars_dir:
        return Path(settings.jars_dir).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "crannog" / "jars"


def _resolve(spec: JarSetSpec, settings: Settings) -> JarSet:
    root = _root(settings)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".resolving-", dir=root, ignore_cleanup_errors=True) as scratch:
            fetched = _fetch(spec, settings, Path(scratch))
            _publish(fetched, Path(scratch) / "set", root / spec.folder)
    except OSError as error:
        raise Unavailable(
            f"cannot store the {spec.name} jars in {root}: {error.strerror or error}; set CRANNOG_JARS_DIR to another folder"
        ) from error
    found = present(spec, settings)
    if found is None:
        raise Unavailable(f"the {spec.name} jars in {root / spec.folder} changed while they were resolved; try again")
    return found


def _fetch(spec: JarSetSpec, settings: Settings, scratch: Path) -> list[Path]:
    """Download the set with Spark's own Ivy and return the jars that Spark does not have."""
    java, home = find_java(settings), spark_home()
    bundled = {module_name(jar.name) for jar in (home / "jars").glob("*.jar")}
    program = scratch / "nothing.py"
    program.write_text("", encoding="utf-8")
    # Spark's versions win: a second Jackson or Netty on the class path breaks both.
    excludes = [*(f"*:{module}" for module in sorted(bundled)), *spec.excludes]
    command = [
        str(home / "bin" / "spark-submit"),
        *("--master", "local[1]", "--packages", ",".join(spec.packages), "--exclude-packages", ",".join(excludes)),
        *("--conf", f"spark.jars.ivy={scratch / 'ivy'}", "--conf", "spark.ui.enabled=false"),
        str(program),
    ]
    env = {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    # Ivy prints a lot, also about hosts that it can do without: only the reason of a failure is worth showing.
    try:
        done = subprocess.run(
            command,
            env=env,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=RESOLVE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"resolving the {spec.name} jars took longer than {RESOLVE_TIMEOUT_S} s; try again") from None
    if done.returncode != 0:
        raise Unavailable(
            f"cannot resolve the {spec.name} jars ({failure_reason(done.stdout + done.stderr)}); run `python -m crannog.spark.jars` once with"
            " a network, or set CRANNOG_JARS_DIR to a folder filled elsewhere"
        )
    jars = (scratch / "ivy" / "jars").glob("*.jar")
    return sorted(jar for jar in jars if module_name(jar.name.partition("_")[2]) not in bundled)


def failure_reason(output: str) -> str:
    """Return the line of Ivy's output that says why it failed."""
    lines = [line.strip(" :\t") for line in output.splitlines()]
    for sign in ("unresolved dependency", "Server access error", "download failed", "Exception", "rror"):
        for line in lines:
            if sign in line:
                return line[:200]
    return "no reason given"


def _publish(jars: Sequence[Path], staging: Path, target: Path) -> None:
    """Make the complete folder `target` appear in one step; one that another process created meanwhile stays."""
    staging.mkdir()
    kept = [Path(shutil.copy(jar, staging)) for jar in jars]
    listed = {jar.name: {"size": jar.stat().st_size, "sha256": _sha256(jar)} for jar in kept}
    (staging / MARKER).write_text(json.dumps({"files": listed}, indent=1), encoding="utf-8")
    for path in (*kept, staging / MARKER, staging):
        sync_path(str(path))
    try:
        staging.rename(target)
    except OSError:
        # The folder exists: another process was faster, or it is damaged and is replaced.
        if _read_set(target) is not None and (target / MARKER).read_bytes() == (staging / MARKER).read_bytes():
            return
        target.rename(staging.with_name("damaged"))
        staging.rename(target)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Resolve missing jars and print where they are; exit with 5 if that fails."""
    parser = argparse.ArgumentParser(
        prog="python -m crannog.spark.jars", description="Resolve the jars that Spark needs."
    )
    parser.add_argument("--s3", action="store_true", help="also resolve the jars for warehouses in S3")
    options = parser.parse_args(arguments)
    try:
        settings = load_settings()
        for spec in (DELTA_SET, S3_SET) if options.s3 else (DELTA_SET,):
            jars = ensure(spec, settings)
            print(f"{spec.name}: {len(jars.files)} jars, {jars.size / 1e6:.0f} MB in {jars.folder}")
    except CrannogError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
