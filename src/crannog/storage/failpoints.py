"""Failpoints: named steps of the protocol at which a test can stop, fail or kill a process.

No hook is set in production, so `reached` costs one attribute test.
"""

from __future__ import annotations

from collections.abc import Callable

hook: Callable[[str], None] | None = None

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


def reached(name: str) -> None:
    """Call the hook, if one is set, with the name of the failpoint."""
    if hook is not None:
        hook(name)
