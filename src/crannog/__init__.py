"""Crannog: a lakehouse for operational data on open Delta Lake tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crannog.errors import (
    BadRows,
    CallerError,
    Cancelled,
    Conflict,
    Corrupted,
    CrannogError,
    NotFound,
    Overloaded,
    Refused,
    SchemaMismatch,
    SnapshotGone,
    Unavailable,
    VerificationFailed,
)
from crannog.version import VERSION as __version__

if TYPE_CHECKING:
    from crannog.datasets.lake import Lake


__all__ = [
    "BadRows",
    "CallerError",
    "Cancelled",
    "Conflict",
    "Corrupted",
    "CrannogError",
    "NotFound",
    "Overloaded",
    "Refused",
    "SchemaMismatch",
    "SnapshotGone",
    "Unavailable",
    "VerificationFailed",
    "__version__",
    "connect",
]


def connect(location: str, token: str | None = None, maintain: bool = False, **settings: Any) -> Lake:
    """Open a warehouse: a folder, file://, s3://, gs:// or az://.

    Embedded, no scheduler runs unless `maintain=True`. Keyword arguments override settings by name.
    """
    from crannog.datasets.lake import Lake
    from crannog.settings import load_settings

    if location.startswith(("http://", "https://")):
        raise Refused("this version of Crannog connects to warehouses only; servers come with a later one")
    if token is not None:
        raise CallerError("a token is for a server's address; a warehouse folder takes none")
    return Lake(location, maintain=maintain, settings=load_settings(**settings) if settings else None)


def __getattr__(name: str) -> Any:
    # Imported when it is first used: a program that keeps tables alone need not load it.
    if name == "builds":
        from importlib import import_module

        return import_module("crannog.builds")
    raise AttributeError(f"module 'crannog' has no attribute {name!r}")
