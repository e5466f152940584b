"""Check the licences of all pinned packages, from what is installed: `PYTHONPATH=tools python -m supply_chain.licences`.

Crannog is under Apache-2.0. What it ships, or makes people install, must let them use it under those terms; a package under
other terms needs a reason here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from supply_chain.packages import ROOT, Package, of_spark, of_the_pages, pinned

ALLOWED = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BlueOak-1.0.0", "CC0-1.0", "CNRI-Python", "ISC", "MIT", "MIT-0"),
        *("MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib"),
    }
)  # fmt: skip
EXCEPTIONS = {
    "codespell": ("GPL-2.0-only", "a program that checks our spelling; nothing of it is imported or shipped"),
    "psycopg": ("LGPL-3.0-only", "an extra that people install themselves, unchanged and exchangeable"),
    "psycopg-binary": ("LGPL-3.0-only", "an extra that people install themselves, unchanged and exchangeable"),
}


def is_allowed(expression: str) -> bool:
    """Return whether an SPDX expression leaves a choice of allowed licences only."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression)
    if not tokens:
        return False

    def alternatives() -> bool:
        found = combined()
        while tokens[:1] == ["OR"]:
            tokens.pop(0)
            found = combined() or found
        return found

    def combined() -> bool:
        found = single()
        while tokens[:1] == ["AND"]:
            tokens.pop(0)
            found = single() and found
        return found

    def single() -> bool:
        if not tokens:
            return False
        token = tokens.pop(0)
        if token != "(":
            return token in ALLOWED
        found = alternatives()
        return bool(tokens) and tokens.pop(0) == ")" and found

    return alternatives() and not tokens


def problems(packages: Iterable[Package]) -> list[str]:
    """Return a line for each package whose licence is unknown, or neither allowed nor an exception."""
    found = []
    for package in sorted(set(packages)):
        if EXCEPTIONS.get(package.name, ("",))[0] == package.licence and package.licence:
            continue
        if not package.licence:
            found.append(f"{package.name} {package.version}: no known licence; look it up and add it to packages.py")
        elif not is_allowed(package.licence):
            found.append(f"{package.name} {package.version}: {package.licence} is not allowed, see licences.py")
    return found


def all_packages() -> list[Package]:
    """Return all that is installed by `make setup`, `make pages` and an installation."""
    return [
        *(package for name in ("all.txt", "build.txt") for package in pinned(ROOT / "requirements" / name)),
        *(package for package, _ in of_the_pages()),
        *of_spark(),
    ]


def main() -> None:
    packages = all_packages()
    if found := problems(packages):
        sys.exit("\n".join(found))
    print(f"The licences of {len(set(packages))} packages are allowed")


if __name__ == "__main__":
    main()
