"""Finds a Java runtime for Spark: version 17 or later, or an error that says what to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crannog.errors import CrannogError, Unavailable
from crannog.settings import Settings, load_settings

MIN_VERSION = 17
ADVICE = (
    "install one (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; Fedora: dnf install java-21-openjdk-headless;"
    " macOS: brew install openjdk@17) or set CRANNOG_JAVA_HOME to its folder"
)
_USUAL_FOLDERS = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java runtime that can run Spark; `home` contains `bin/java`."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        """The `java` to run."""
        return self.home / "bin" / "java"


def find_java(settings: Settings) -> JavaHome:
    """Return the first Java of version 17 or later. Raises Unavailable with what was found and what to install.

    The setting `java_home` is used or rejected; no other Java replaces it.
    """
    if settings.java_home:
        home = Path(settings.java_home).expanduser()
        version = version_at(home)
        if version is None:
            raise Unavailable(f"java_home is {home}, which has no working bin/java", hint=ADVICE)
        if version < MIN_VERSION:
            raise Unavailable(f"java_home {home} is Java {version}, Spark needs {MIN_VERSION} or later", hint=ADVICE)
        return JavaHome(home, version)
    too_old = []
    for home in dict.fromkeys(_candidates()):
        version = version_at(home)
        if version is None:
            continue
        if version >= MIN_VERSION:
            return JavaHome(home, version)
        too_old.append(f"Java {version} in {home}")
    seen = f"found only {', '.join(too_old)}" if too_old else "found none"
    raise Unavailable(f"Spark needs Java {MIN_VERSION} or later, {seen}", hint=ADVICE)


def parse_version(text: str) -> int | None:
    """Parse the major version of `17.0.15`, `21-ea` or `1.8.0_392`; None if there is no number."""
    match = re.match(r"\s*(\d+)(?:\.(\d+))?", text)
    if match is None:
        return None
    major, minor = int(match[1]), match[2]
    # Up to Java 8 the version was written 1.8.
    return int(minor) if major == 1 and minor is not None else major


def version_at(home: Path) -> int | None:
    """Return the major version of the Java in `home`, or None if no Java works there."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK) or java.is_dir():
        return None
    # Reading the release file avoids starting the JVM; a stripped runtime may lack it.
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    match = re.search(r'^JAVA_VERSION="?([^"\n]+)', release, re.MULTILINE)
    return parse_version(match[1]) if match else _reported_version(java)


def _reported_version(java: Path) -> int | None:
    try:
        result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "([^"]+)"', result.stderr + result.stdout)
    return parse_version(match[1]) if match else None


def _candidates() -> Iterator[Path]:
    """Yield possible homes: JAVA_HOME, PATH, then the usual folders, oldest version first."""
    if java_home := os.environ.get("JAVA_HOME"):
        yield Path(java_home)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    for pattern in _USUAL_FOLDERS:
        root, _, rest = pattern.lstrip("/").partition("/")
        found = [home for home in Path("/", root).glob(rest) if home.is_dir()]
        # Spark is tested most on the oldest Java that it supports.
        yield from sorted(found, key=lambda home: (parse_version(re.sub(r"^\D*", "", home.name)) or 1_000, home.name))


def main() -> int:
    """Print the Java that Spark will use; exit with 5 if no Java is found."""
    try:
        found = find_java(load_settings())
    except CrannogError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    print(f"Java {found.version} in {found.home}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
