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
    Forbidden,
    NotFound,
    NotInstalled,
    Overloaded,
    Refused,
    SchemaMismatch,
    SnapshotGone,
    TimedOut,
    TooLarge,
    Unauthorized,
    Unavailable,
    VerificationFailed,
)
from crannog.version import VERSION as __version__

if TYPE_CHECKING:
    from crannog.api.producer import Producer
    from crannog.embedded import EmbeddedLake
    from crannog.remote.lake import RemoteLake


__all__ = [
    "BadRows",
    "CallerError",
    "Cancelled",
    "Conflict",
    "Corrupted",
    "CrannogError",
    "Forbidden",
    "NotFound",
    "NotInstalled",
    "Overloaded",
    "Producer",
    "Refused",
    "SchemaMismatch",
    "SnapshotGone",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "VerificationFailed",
    "__version__",
    "connect",
]


def connect(
    location: str, token: str | None = None, maintain: bool = False, **settings: Any
) -> EmbeddedLake | RemoteLake:
    """Open a warehouse (a folder, file://, s3://, gs:// or az://), or connect to a server (http:// or https://).

    Both have the same verbs, results and errors. A server may want a `token`, and keeps its warehouse in shape by
    itself; embedded, no scheduler runs unless `maintain=True`. Keyword arguments override settings by name.
    """
    if location.startswith(("http://", "https://")):
        if maintain or settings:
            raise CallerError(
                "a server has settings of its own and runs its own maintenance; give an address and a token only"
            )
        from crannog.remote.lake import RemoteLake

        return RemoteLake(location, token)
    if token is not None:
        raise CallerError("a token is for a server's address; a warehouse folder takes none")
    from crannog.errors import needed_for
    from crannog.settings import load_settings

    chosen = load_settings(**settings) if settings else None
    with needed_for("a warehouse opened in this process"):
        from crannog.embedded import EmbeddedLake

        return EmbeddedLake(location, maintain=maintain, settings=chosen)


def __getattr__(name: str) -> Any:
    # Imported when it is first used: a program that keeps tables alone need not load it.
    if name == "builds":
        from importlib import import_module

        return import_module("crannog.builds")
    if name == "Producer":
        from crannog.api.producer import Producer

        return Producer
    raise AttributeError(f"module 'crannog' has no attribute {name!r}")
