"""A hook of mkdocs: leaves pages that are not written yet out of the navigation, so that the rest builds strictly."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

WRITTEN_ELSEWHERE = {"loading.md", "server.md", "client.md", "traces.md"}


def on_config(config: Any) -> Any:
    """Drop entries of `WRITTEN_ELSEWHERE` that have no file; any other missing page stays, and fails the build."""
    for section in config.nav:
        for title, pages in section.items():
            section[title] = [page for page in pages if not _is_missing(config, page)]
    return config


def _is_missing(config: Any, page: dict[str, str]) -> bool:
    [name] = page.values()
    missing = name in WRITTEN_ELSEWHERE and not (Path(config.docs_dir) / name).exists()
    if missing:
        logging.getLogger("mkdocs.hooks").info("%s is not written yet and left out", name)
    return missing
