"""Named moments of the protocol, so that a test can stop, fail or kill a process exactly there.

In production nobody watches and `reached` is one attribute test.
"""

from __future__ import annotations

from collections.abc import Callable

watcher: Callable[[str], None] | None = None

ALL = (
    "stage.written",
    "stage.linked",
    "stage.acknowledged",
    "pack.written",
    "pack.originals_deleted",
    "rewrite.files_written",
    "rewrite.verified",
    "rewrite.synced",
    "rewrite.ledger_written",
    "rewrite.committed",
    "clean.staged_files_deleted",
    "vacuum.files_deleted",
    "erase.files_deleted",
    "erase.log_redacted",
    "control.claimed",
)


def reached(phase: str) -> None:
    """Tell the watcher, if there is one, that the process is at `phase`."""
    if watcher is not None:
        watcher(phase)
