"""What the tests of loading share: files put down, and tables read back without the loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crannog.embedded import EmbeddedLake as Lake
from lakes import SYSTEM

NAME = "main.files.t"


def types_of(lake: Lake, name: str = NAME) -> dict[str, str]:
    return {field.name: str(field.type) for field in lake.table(name).schema if field.name not in SYSTEM}


def rows_of(lake: Lake, name: str = NAME) -> list[dict[str, Any]]:
    found = lake.table(name).to_arrow()
    return found.drop_columns([column for column in found.column_names if column in SYSTEM]).to_pylist()


def put(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)
