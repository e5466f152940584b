"""Write the SBOM of a release, in CycloneDX 1.5 JSON: `PYTHONPATH=tools python -m supply_chain.sbom FOLDER`.

It lists what the wheel requires, its extras (optional), what the web pages in it were built from, and the jars. The same
packages give the same file, byte by byte.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

from crannog.version import VERSION
from supply_chain.packages import ROOT, Package, of_spark, of_the_pages, pinned, shipped

_SERIAL = uuid.uuid5(uuid.NAMESPACE_URL, "pkg:pypi/crannog")


def sbom() -> dict[str, Any]:
    """Return the document."""
    required, all_needed = shipped(), shipped(extras=True)
    python = {
        package.name: package for package in pinned(ROOT / "requirements" / "all.txt") if package.name in all_needed
    }
    pages = [package for package, is_shipped in of_the_pages() if is_shipped]
    others = sorted([*pages, *of_spark()])
    components = [
        *(_component(python[name], "required" if name in required else "optional") for name in sorted(python)),
        *(_component(package, "required") for package in others),
    ]
    own = Package("pypi", "crannog", VERSION, "Apache-2.0")
    needs = {own.url: sorted([*(package.url for package in python.values()), *(package.url for package in others)])}
    for name, package in python.items():
        needs[package.url] = sorted(python[each].url for each in all_needed[name] if each in python)
    needs |= {package.url: [] for package in others}
    body = {
        "metadata": {"component": _component(own, "")},
        "components": components,
        "dependencies": [{"ref": url, "dependsOn": needed} for url, needed in sorted(needs.items())],
    }
    serial = uuid.uuid5(_SERIAL, json.dumps(body, sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **body,
    }


def _component(package: Package, scope: str) -> dict[str, Any]:
    group, colon, name = package.name.rpartition(":" if package.kind == "maven" else "/")
    licence = {"expression": package.licence} if " " in package.licence else {"license": {"id": package.licence}}
    return {
        "type": "application" if package.name == "crannog" else "library",
        "bom-ref": package.url,
        **({"group": group} if colon else {}),
        "name": name,
        "version": package.version,
        **({"scope": scope} if scope else {}),
        **({"hashes": [{"alg": "SHA-512", "content": package.sha512}]} if package.sha512 else {}),
        **({"licenses": [licence]} if package.licence else {}),
        "purl": package.url,
    }


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("give the folder to write to: python -m supply_chain.sbom dist")
    target = Path(sys.argv[1], f"crannog-{VERSION}.cdx.json")
    document = sbom()
    target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{target}: {len(document['components'])} components")


if __name__ == "__main__":
    main()
