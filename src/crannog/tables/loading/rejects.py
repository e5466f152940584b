"""The file of bad rows: one line of JSON for each, with where it stood, why it was left out, and what it said."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from crannog.api.load_report import BadRow
from crannog.errors import CallerError
from crannog.formats.plain_json import to_plain_json


class Rejects:
    """Writes bad rows to a file, if one is given; the file is there, perhaps empty, once a load went through."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def __enter__(self) -> Rejects:
        if self._path is not None:
            try:
                self._file = Path(self._path).open("w", encoding="utf-8", errors="backslashreplace")
            except OSError as error:
                raise CallerError(f"cannot write bad rows to {self._path}: {error.strerror or error}") from None
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, rows: list[tuple[BadRow, Any]]) -> None:
        """Write rows; `row` in each line is the row as it was: its columns, or the text that could not be read."""
        if self._file is None:
            return
        for bad, row in rows:
            told = {
                "file": bad.file,
                "line": bad.line,
                "column": bad.column,
                "value": bad.value,
                "reason": bad.reason,
                "row": to_plain_json(row),
            }
            self._file.write(json.dumps(told, ensure_ascii=False) + "\n")
        self._file.flush()
