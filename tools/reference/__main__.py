"""Prints a reference page, or writes all of them: `python -m reference cli`, `… --write docs/reference`.

Writing them writes the types of the routes for the web pages too.
"""

from __future__ import annotations

import sys
from pathlib import Path

from reference import typescript
from reference.pages import PAGES


def main(arguments: list[str]) -> int:
    """Do what the arguments ask for and return the exit code."""
    if len(arguments) == 2 and arguments[0] == "--write":
        folder = Path(arguments[1])
        folder.mkdir(parents=True, exist_ok=True)
        for name, page in PAGES.items():
            (folder / f"{name}.md").write_text(page(), encoding="utf-8")
        typescript.TARGET.write_text(typescript.text(), encoding="utf-8")
        return 0
    if len(arguments) == 1 and arguments[0] in PAGES:
        print(PAGES[arguments[0]](), end="")
        return 0
    print(f"give one of {', '.join(PAGES)}, or --write FOLDER", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
