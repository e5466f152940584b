"""Print the coverage of each package from the report that `coverage json` writes to standard input."""

from __future__ import annotations

import json
import sys
from collections import defaultdict

AIM = 90.0


def package_of(path: str) -> str:
    """Return the folder of crannog that a file belongs to; `crannog` for the modules at its top."""
    parts = path.replace("\\", "/").split("crannog/")[-1].split("/")
    return parts[0] if len(parts) > 1 else "crannog"


def table(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> list[tuple[str, int, int, float]]:
    """Return each package with its lines, those that no test ran, and the covered share of lines and branches."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for path, file in report["files"].items():
        summary = file["summary"]
        counted = totals[package_of(path)]
        counted[0] += summary["num_statements"]
        counted[1] += summary["missing_lines"]
        counted[2] += summary["num_statements"] + summary.get("num_branches", 0)
        counted[3] += summary["covered_lines"] + summary.get("covered_branches", 0)
    return [
        (name, lines, missing, 100.0 * covered / possible if possible else 100.0)
        for name, (lines, missing, possible, covered) in sorted(totals.items())
    ]


def main() -> None:
    """Print the table; packages below the aim are marked."""
    print(f"{'package':<12} {'lines':>7} {'missed':>7} {'covered':>8}")
    for name, lines, missing, share in table(json.load(sys.stdin)):
        print(f"{name:<12} {lines:>7,} {missing:>7,} {share:>7.1f}%" + (f"  below {AIM:.0f} %" if share < AIM else ""))


if __name__ == "__main__":
    main()
