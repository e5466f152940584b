"""Finds damaged checkpoints of a Delta log, and removes those whose content the log's entries still have.

A checkpoint only saves reading entries. One torn by a power cut or a full disk would make the table unreadable to every
Delta reader, although nothing is lost.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from crannog.errors import Corrupted, CrannogError
from crannog.storage.interface import Storage

_SUFFIX = ".checkpoint.parquet"
_POINTER = "_last_checkpoint"
log = logging.getLogger("crannog.delta")


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The contents of a log's folder, by version."""

    entries: frozenset[int]
    readable: frozenset[int]
    damaged: tuple[str, ...]
    pointer: int | None
    """The version that `_last_checkpoint` names; None if there is no such file or it cannot be read."""

    def missing_entry(self) -> int | None:
        """Return a missing entry that readers would need without the damaged checkpoints."""
        head = max(self.entries, default=-1)
        start = max((version for version in self.readable if version <= head), default=-1)
        return next((version for version in range(start + 1, head + 1) if version not in self.entries), None)


def inspect_log(storage: Storage, folder: str) -> LogFiles:
    """Read every checkpoint of the log in `folder` and list its entries."""
    entries, readable, damaged = set(), set(), []
    for name in sorted(storage.names(folder)):
        version, _, ending = name.partition(".")
        if version.isdigit() and ending == "json":
            entries.add(int(version))
        elif version.isdigit() and name.endswith(_SUFFIX):
            try:
                if is_readable(storage.read(f"{folder}/{name}")):
                    readable.add(int(version))
                else:
                    damaged.append(f"{folder}/{name}")
            except FileNotFoundError:
                continue
    return LogFiles(frozenset(entries), frozenset(readable), tuple(damaged), _pointer(storage, folder))


def is_readable(data: bytes) -> bool:
    """Tell whether these bytes are a complete checkpoint."""
    try:
        actions = pq.read_table(pa.BufferReader(data))
        return any(value is not None for value in actions.column("metaData").to_pylist())
    except (pa.ArrowException, OSError, KeyError):
        return False


def remove_damaged(storage: Storage, folder: str) -> list[str]:
    """Delete damaged checkpoints, and a pointer to one that does not exist; return their paths.

    The next checkpoint replaces them. Raises Corrupted with the file's path if the log's entries alone are not
    complete, or if the file cannot be deleted.
    """
    found = inspect_log(storage, folder)
    doomed = list(found.damaged)
    if found.damaged and (missing := found.missing_entry()) is not None:
        raise Corrupted(
            f"checkpoint {found.damaged[-1]} is damaged, and the log cannot be read without it: entry"
            f" {missing:020}.json is gone; restore the checkpoint from a backup"
        )
    if found.pointer is not None and found.pointer not in found.readable:
        doomed.append(f"{folder}/{_POINTER}")
    for path in found.damaged:
        log.warning("deleting damaged checkpoint %s; the log's entries have the same content", path)
    try:
        storage.delete(doomed)
    except CrannogError as error:
        raise Corrupted(
            f"{doomed[0]} is damaged and cannot be deleted ({error.message}); delete it to continue"
        ) from error
    return doomed


def _pointer(storage: Storage, folder: str) -> int | None:
    try:
        return int(json.loads(storage.read(f"{folder}/{_POINTER}"))["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
