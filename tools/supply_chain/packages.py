"""The packages that are pinned: those of Python in requirements/, those of the web pages, and the jars.

Nothing is fetched. Licences come from the metadata of the installed packages and from the lock file of the pages.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from crannog.spark import jars

ROOT = Path(__file__).parents[2]
_PIN = re.compile(r"(?P<name>[A-Za-z0-9_.\-]+)(\[[^\]]*\])?==(?P<version>[^\s;\\]+)\s*(;\s*(?P<marker>[^\\]*))?")
# Of packages for another platform, which are not installed here, and of those whose metadata has only prose.
_KNOWN_LICENCES = {"pywin32": "PSF-2.0", "antlr4-python3-runtime": "BSD-3-Clause", "protobuf": "BSD-3-Clause"}
_BY_CLASSIFIER = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


@dataclass(frozen=True, slots=True, order=True)
class Package:
    """One pinned package; `kind` is that of package URLs, and `licence` an SPDX expression, empty if unknown."""

    kind: str
    name: str
    version: str
    licence: str = ""
    sha512: str = ""

    @property
    def url(self) -> str:
        """The package URL (purl), which is its identity in an SBOM."""
        name = self.name.replace("@", "%40").replace(":", "/")
        return f"pkg:{self.kind}/{name}@{self.version}"


def pinned(file: Path) -> list[Package]:
    """Return the packages that a file of pins lists, for this platform and others."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if match := _PIN.match(line):
            name = canonicalize_name(match["name"])
            found.append(Package("pypi", name, match["version"], licence_of(name)))
    return found


def licence_of(name: str) -> str:
    """Return the licence of an installed package, as it states it; empty if it is not installed or does not say."""
    if name in _KNOWN_LICENCES:
        return _KNOWN_LICENCES[name]
    try:
        found = metadata.metadata(name).json
    except metadata.PackageNotFoundError:
        return ""
    if expression := found.get("license_expression"):
        return str(expression)
    classified = [text.rpartition(" :: ")[2] for text in found.get("classifier", ()) if text.startswith("License")]
    if licences := [_BY_CLASSIFIER[text] for text in classified if text in _BY_CLASSIFIER]:
        # Several are a choice: packages with a combination state it as an expression.
        return " OR ".join(licences)
    stated = str(found.get("license", "")).strip()
    return stated if re.fullmatch(r"[\w.+\-]+", stated) else ""


def shipped(extras: bool = False) -> dict[str, set[str]]:
    """Return the names of the packages that an installation brings along, each with those it needs itself.

    Without `extras` only what every installation has.
    """
    files = ("client.in", "package.in", *(("extras.in",) if extras else ()))
    wanted = [
        Requirement(line.partition("#")[0])
        for file in files
        for line in (ROOT / "requirements" / file).read_text(encoding="utf-8").splitlines()
        if line and not line.startswith(("#", "-r"))
    ]
    found: dict[str, set[str]] = {}
    done: set[tuple[str, str]] = set()
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in done or not _applies(requirement.marker, ""):
                continue
            done.add((name, extra))
            needed = [each for each in _requirements(name) if _applies(each.marker, extra)]
            found.setdefault(name, set()).update(canonicalize_name(each.name) for each in needed)
            # Those without a condition on an extra are the same for each extra.
            wanted += [Requirement(str(each).partition(";")[0]) for each in needed]
    return {name: needed & found.keys() for name, needed in found.items()}


def _requirements(name: str) -> list[Requirement]:
    try:
        return [Requirement(text) for text in metadata.requires(name) or ()]
    except metadata.PackageNotFoundError:
        return []


def _applies(marker: Marker | None, extra: str) -> bool:
    return marker is None or marker.evaluate({"extra": extra})


def of_the_pages() -> list[tuple[Package, bool]]:
    """Return the packages of the web pages, each with whether it is part of what is shipped."""
    listed = json.loads((ROOT / "web" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    found = []
    for path, entry in listed.items():
        if path:
            algorithm, _, value = entry.get("integrity", "").partition("-")
            digest = base64.b64decode(value).hex() if algorithm == "sha512" else ""
            name = path.rpartition("node_modules/")[2]
            package = Package("npm", name, entry["version"], entry.get("license", ""), digest)
            found.append((package, not entry.get("dev", False)))
    return found


def of_spark() -> list[Package]:
    """Return the jars that `make setup` resolves, without what they bring along."""
    found = []
    for coordinates in (*jars.DELTA_SET.packages, *jars.S3_SET.packages):
        group, artifact, version = coordinates.split(":")
        found.append(Package("maven", f"{group}:{artifact}", version, "Apache-2.0"))
    return found
