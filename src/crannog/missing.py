"""Packages that are not installed, as an error with the one command that installs them.

`pip install crannog` brings everything but a few extras. Only the client may be installed without the rest
(docs/client.md), so every other part may find its packages missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from crannog.errors import NotInstalled

# By their own names and not as extras, which would bring the whole engine to a thin client.
_ALONE = {
    "psycopg": "'psycopg[binary]'",
    "psycopg_binary": "'psycopg[binary]'",
    "pandas": "'pandas<3'",
    "polars": "polars",
    "opentelemetry.sdk": "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.exporter": "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
}


@contextmanager
def needed_for(purpose: str) -> Iterator[None]:
    """Raise NotInstalled, with the command to run, if an import in this block finds its package missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise not_installed(error, purpose) from error


def not_installed(error: ModuleNotFoundError, purpose: str) -> NotInstalled:
    """Return the error for a package that `purpose` needs; raises `error` itself if a module of Crannog is missing."""
    name = error.name or ""
    package = name.partition(".")[0]
    if package in ("", "crannog"):
        raise error
    # pip adds the dependencies that an installed package lacks, so the plain command completes a thin client.
    wanted = next((alone for prefix, alone in _ALONE.items() if f"{name}.".startswith(f"{prefix}.")), "crannog")
    return NotInstalled(f"{purpose} needs the package {name}, which is not installed: pip install {wanted}")
