"""Finding a Java that Spark runs on; promises 17 or later, or an error that says what to install."""

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

OLDEST = 17
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
class JavaFound:
    """A Java that can run Spark; `home` holds `bin/java`."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        """The `java` to run."""
        return self.home / "bin" / "java"


def find_java(settings: Settings) -> JavaFound:
    """Return the first Java of at least 17; raises Unavailable that names what was seen and what to do.

    A home given by setting is taken or refused, never passed over for another.
    """
    if settings.java_home:
        home = Path(settings.java_home).expanduser()
        version = version_at(home)
        if version is None:
            raise Unavailable(f"java_home is {home}, which holds no bin/java that runs: {ADVICE}")
        if version < OLDEST:
            raise Unavailable(f"java_home {home} is Java {version}, Spark needs {OLDEST} or later: {ADVICE}")
        return JavaFound(home, version)
    too_old = []
    for home in _candidates():
        version = version_at(home)
        if version is None:
            continue
        if version >= OLDEST:
            return JavaFound(home, version)
        too_old.append(f"Java {version} in {home}")
    seen = f"found only {', '.join(too_old)}" if too_old else "found none"
    raise Unavailable(f"Spark needs Java {OLDEST} or later, {seen}: {ADVICE}")


def parse_version(text: str) -> int | None:
    """Read the major version of `17.0.15`, `21-ea` or `1.8.0_392`; None if there is no number."""
    match = re.match(r"\s*(\d+)(?:\.(\d+))?", text)
    if match is None:
        return None
    major, minor = int(match[1]), match[2]
    # Up to Java 8 the version was written 1.8.
    return int(minor) if major == 1 and minor is not None else major


def version_at(home: Path) -> int | None:
    """Return the major version of the Java in `home`; None if there is none that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK) or java.is_dir():
        return None
    # The release file saves a start of the JVM; a runtime cut down by a packager may lack it.
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    match = re.search(r'^JAVA_VERSION="?([^"\n]+)', release, re.MULTILINE)
    return parse_version(match[1]) if match else _version_told_by(java)


def _version_told_by(java: Path) -> int | None:
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "([^"]+)"', told.stderr + told.stdout)
    return parse_version(match[1]) if match else None


def _candidates() -> Iterator[Path]:
    """Yield homes worth a look, each once: JAVA_HOME, PATH, then the usual folders, oldest name first."""
    seen: set[Path] = set()
    for home in _places():
        if home not in seen:
            seen.add(home)
            yield home


def _places() -> Iterator[Path]:
    if given := os.environ.get("JAVA_HOME"):
        yield Path(given)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    for pattern in _USUAL_FOLDERS:
        root, _, rest = pattern.lstrip("/").partition("/")
        found = [home for home in Path("/", root).glob(rest) if home.is_dir()]
        # Spark is tested most on the oldest Java it takes.
        yield from sorted(found, key=lambda home: (parse_version(re.sub(r"^\D*", "", home.name)) or 1_000, home.name))


def main() -> int:
    """Print the Java that Spark will use; the exit code is 5 if there is none."""
    try:
        found = find_java(load_settings())
    except CrannogError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    print(f"Java {found.version} in {found.home}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
