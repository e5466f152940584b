"""The Java libraries Spark lacks: resolved once, kept in a folder, never looked up again.

A set of jars is a folder that appears whole (built aside, then renamed) with a list of its files,
their sizes and sums. A start of Spark only checks that list, so it needs no network. The sets are
`delta`, needed always, and `s3`, needed for warehouses in S3 and resolved when first asked for.
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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from crannog.errors import CrannogError, Unavailable
from crannog.settings import Settings, load_settings
from crannog.spark.java import find_java

# These belong together; delta-spark 4.4.1's jar does not resolve.
SPARK, DELTA, HADOOP, AWS_SDK = "4.2.0", "4.4.0", "3.5.0", "2.35.4"
MARKER = "files.json"
RESOLVE_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to ask for: Maven coordinates, and modules to leave out besides those Spark brings."""

    name: str
    folder: str
    packages: tuple[str, ...]
    excludes: tuple[str, ...] = ()


DELTA_SET = Recipe(
    name="delta",
    folder=f"{SPARK}-{DELTA}",
    packages=(f"io.delta:delta-spark_4.2_2.13:{DELTA}",),
    # Through Unity Catalog's client it would draw in the AWS bundle, 641 MB.
    excludes=("org.apache.hadoop:hadoop-aws",),
)
S3_SET = Recipe(
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
    # The bundle is every service of AWS in 641 MB; S3A runs on the modules above, 13 MB.
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


def delta(settings: Settings) -> JarSet:
    """Return the Delta jars, resolving them if this is the first time; Unavailable if that fails."""
    return _have(DELTA_SET, settings)


def s3(settings: Settings) -> JarSet:
    """Return the jars that let Spark read and write S3, resolving them if this is the first time."""
    return _have(S3_SET, settings)


def present(recipe: Recipe, settings: Settings, *, check_sums: bool = False) -> JarSet | None:
    """Return the set if it is whole on disk, else None; touches no network."""
    folder = _root(settings) / recipe.folder
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
    """Return the artifact of a jar's file name: `netty-codec-4.2.13.Final.jar` is `netty-codec`."""
    return re.sub(r"-\d[0-9A-Za-z.]*(-.*)?$", "", jar.removesuffix(".jar"))


def spark_home() -> Path:
    """Return the folder of the installed PySpark, which holds Spark itself; Unavailable without it."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Unavailable("PySpark is not installed: pip install 'crannog[engine]'")
    version = metadata.version("pyspark")
    if version != SPARK:
        raise Unavailable(f"PySpark is {version}, Crannog's Delta jars need {SPARK}: pip install pyspark=={SPARK}")
    return Path(spec.origin).parent


def _root(settings: Settings) -> Path:
    if settings.jars_dir:
        return Path(settings.jars_dir).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "crannog" / "jars"


def _have(recipe: Recipe, settings: Settings) -> JarSet:
    return present(recipe, settings) or _resolve(recipe, settings)


def _resolve(recipe: Recipe, settings: Settings) -> JarSet:
    root = _root(settings)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".resolving-", dir=root, ignore_cleanup_errors=True) as scratch:
            fetched = _fetch(recipe, settings, Path(scratch))
            _publish(fetched, Path(scratch) / "set", root / recipe.folder)
    except OSError as error:
        raise Unavailable(
            f"cannot keep the {recipe.name} jars in {root}: {error.strerror or error}; set CRANNOG_JARS_DIR"
        ) from error
    found = present(recipe, settings)
    if found is None:
        raise Unavailable(
            f"the {recipe.name} jars in {root / recipe.folder} changed while they were resolved; try again"
        )
    return found


def _fetch(recipe: Recipe, settings: Settings, scratch: Path) -> list[Path]:
    """Let Spark's own Ivy download the recipe; returns the jars Spark lacks."""
    java, home = find_java(settings), spark_home()
    bundled = {module_name(jar.name) for jar in (home / "jars").glob("*.jar")}
    program = scratch / "nothing.py"
    program.write_text("", encoding="utf-8")
    # Spark's versions win: a second Jackson or Netty on the class path breaks both.
    excludes = [*(f"*:{module}" for module in sorted(bundled)), *recipe.excludes]
    command = [
        str(home / "bin" / "spark-submit"),
        *("--master", "local[1]", "--packages", ",".join(recipe.packages), "--exclude-packages", ",".join(excludes)),
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
    # Ivy talks a lot, also of hosts that it can do without: only a failure's reason is worth showing.
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
        raise Unavailable(
            f"resolving the {recipe.name} jars took longer than {RESOLVE_TIMEOUT_S} s; try again"
        ) from None
    if done.returncode != 0:
        raise Unavailable(
            f"cannot resolve the {recipe.name} jars ({reason_told_by(done.stdout + done.stderr)}): run `python -m crannog.spark.jars` once with"
            " a network, or set CRANNOG_JARS_DIR to a folder filled elsewhere"
        )
    jars = (scratch / "ivy" / "jars").glob("*.jar")
    return sorted(jar for jar in jars if module_name(jar.name.partition("_")[2]) not in bundled)


def reason_told_by(output: str) -> str:
    """Return the one line of Ivy's talk that says why it failed."""
    lines = [line.strip(" :\t") for line in output.splitlines()]
    for sign in ("unresolved dependency", "Server access error", "download failed", "Exception", "rror"):
        for line in lines:
            if sign in line:
                return line[:200]
    return "no reason given"


def _publish(jars: Sequence[Path], aside: Path, target: Path) -> None:
    """Make the folder `target` appear whole; one that another process made meanwhile stays."""
    aside.mkdir()
    kept = [Path(shutil.copy(jar, aside)) for jar in jars]
    listed = {jar.name: {"size": jar.stat().st_size, "sha256": _sha256(jar)} for jar in kept}
    (aside / MARKER).write_text(json.dumps({"files": listed}, indent=1), encoding="utf-8")
    _sync([*kept, aside / MARKER, aside])
    try:
        aside.rename(target)
    except OSError:
        # Something stands there: another process was quicker, or the folder is damaged and goes.
        if _same_listing(aside, target):
            return
        target.rename(aside.with_name("damaged"))
        aside.rename(target)


def _same_listing(aside: Path, target: Path) -> bool:
    try:
        listing = (target / MARKER).read_bytes()
        names = json.loads(listing)["files"]
        whole = all((target / name).stat().st_size == entry["size"] for name, entry in names.items())
        return whole and listing == (aside / MARKER).read_bytes()
    except (OSError, ValueError, KeyError):
        return False


def _sync(paths: Iterable[Path]) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Resolve the jars if they are not there yet and say where they are; the exit code is 5 if that fails."""
    parser = argparse.ArgumentParser(
        prog="python -m crannog.spark.jars", description="Resolve the jars Spark needs, once."
    )
    parser.add_argument("--s3", action="store_true", help="also those for warehouses in S3")
    wants = parser.parse_args(arguments)
    try:
        settings = load_settings()
        for name, have in (("delta", delta), ("s3", s3))[: 2 if wants.s3 else 1]:
            jars = have(settings)
            print(f"{name}: {len(jars.files)} jars, {jars.size / 1e6:.0f} MB in {jars.folder}")
    except CrannogError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
