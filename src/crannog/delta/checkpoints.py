"""Checkpoints of a Delta log that cannot be read: found, and taken out of the log where its entries tell all they told.

A checkpoint only saves reading entries. One that was torn, by a power cut or a full disk, would close the table to every
reader of Delta, although everything is there.
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
    """What a log's folder holds, by version."""

    entries: frozenset[int]
    sound: frozenset[int]
    damaged: tuple[str, ...]
    pointer: int | None
    """The version that `_last_checkpoint` names; None if there is no such file or it cannot be read."""

    def missing_entry(self) -> int | None:
        """Return an entry that would be needed without the damaged checkpoints and is not there."""
        head = max(self.entries, default=-1)
        start = max((version for version in self.sound if version <= head), default=-1)
        return next((version for version in range(start + 1, head + 1) if version not in self.entries), None)


def look_at(storage: Storage, folder: str) -> LogFiles:
    """Read every checkpoint of the log in `folder` and list its entries."""
    entries, sound, damaged = set(), set(), []
    for name in sorted(storage.names(folder)):
        version, _, ending = name.partition(".")
        if version.isdigit() and ending == "json":
            entries.add(int(version))
        elif version.isdigit() and name.endswith(_SUFFIX):
            try:
                if is_sound(storage.read(f"{folder}/{name}")):
                    sound.add(int(version))
                else:
                    damaged.append(f"{folder}/{name}")
            except FileNotFoundError:
                continue
    return LogFiles(frozenset(entries), frozenset(sound), tuple(damaged), _pointer(storage, folder))


def is_sound(data: bytes) -> bool:
    """Tell whether these are the bytes of a checkpoint that can be read whole."""
    try:
        actions = pq.read_table(pa.BufferReader(data))
        return any(value is not None for value in actions.column("metaData").to_pylist())
    except (pa.ArrowException, OSError, KeyError):
        return False


def remove_damaged(storage: Storage, folder: str) -> list[str]:
    """Delete checkpoints that cannot be read, and a pointer to one that is not there; return their paths.

    The next checkpoint takes their place. Raises Corrupted, naming the file, if the log's entries do not tell everything
    without it, or if it cannot be deleted.
    """
    found = look_at(storage, folder)
    doomed = list(found.damaged)
    if found.damaged and (missing := found.missing_entry()) is not None:
        raise Corrupted(
            f"checkpoint {found.damaged[-1]} is damaged, and the log cannot be read without it: entry"
            f" {missing:020}.json is gone; restore the checkpoint from a backup"
        )
    if found.pointer is not None and found.pointer not in found.sound:
        doomed.append(f"{folder}/{_POINTER}")
    for path in found.damaged:
        log.warning("checkpoint %s is damaged; the log's entries tell the same, so it is deleted", path)
    try:
        storage.delete(doomed)
    except CrannogError as error:
        raise Corrupted(
            f"{doomed[0]} is damaged and cannot be deleted ({error.message}); delete it to go on"
        ) from error
    return doomed


def _pointer(storage: Storage, folder: str) -> int | None:
    try:
        return int(json.loads(storage.read(f"{folder}/{_POINTER}"))["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
