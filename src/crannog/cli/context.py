"""What all commands share: the location of the lake, the settings, and the output."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from crannog.errors import CallerError, NotFound, Unauthorized, Unavailable

if TYPE_CHECKING:
    from crannog.api.lake import Lake
    from crannog.embedded import EmbeddedLake
    from crannog.remote.lake import RemoteLake
    from crannog.settings import Settings


@dataclass(frozen=True, slots=True)
class Place:
    """The warehouse or server that a command uses; empty means the one from the settings."""

    warehouse: str = ""
    server: str = ""
    token: str = ""

    def settings(self) -> Settings:
        """Read the settings; a given warehouse overrides theirs."""
        from crannog.settings import load_settings

        return load_settings(**({"warehouse": self.warehouse} if self.warehouse else {}))

    @property
    def location(self) -> str:
        """The location, as `crannog.connect` accepts it."""
        return self.server or self.settings().warehouse


def place_of(context: typer.Context) -> Place:
    """Return the location given before the name of the command."""
    place = context.find_object(Place)
    if place is None:
        raise CallerError("the command was called without its options")
    return place


@contextmanager
def lake_at(context: typer.Context, *, make: bool = False) -> Iterator[Lake]:
    """Open the lake for one command: the given server, a server that runs on the warehouse, or the warehouse itself.

    Raises NotFound if the warehouse does not exist and `make` is false.
    """
    with open_lake(place_of(context), make=make) as lake:
        yield lake


@contextmanager
def warehouse_at(context: typer.Context) -> Iterator[EmbeddedLake]:
    """Open the warehouse itself, for a command that serves it; created if it does not exist."""
    place = place_of(context)
    if place.server:
        raise CallerError("this command works on the warehouse itself; use --warehouse DIR instead of --server")
    with _embedded(place.settings(), make=True) as lake:
        yield lake


def open_lake(place: Place, *, make: bool) -> EmbeddedLake | RemoteLake:
    """Open the lake of a place; see `lake_at`."""
    if place.server:
        return _remote(place.server, place.token or _setting("token"))
    settings = place.settings()
    token = place.token or settings.token
    if settings.server and not place.warehouse:
        return _remote(settings.server, token)
    return _served(settings, token) or _embedded(settings, make=make)


def _setting(name: str) -> str:
    """Return a setting that is empty by default, without loading all settings, which takes longer than a request."""
    value = os.environ.get(f"CRANNOG_{name.upper()}")
    if value is not None or not Path("crannog.toml").is_file():
        return value or ""
    from crannog.settings import load_settings

    return str(getattr(load_settings(), name))


def _remote(address: str, token: str) -> RemoteLake:
    from crannog.remote.lake import RemoteLake

    return RemoteLake(address, token or None)


def _served(settings: Settings, token: str) -> RemoteLake | None:
    """Return a connection to the server that runs on a warehouse folder, if there is one and it accepts our token."""
    folder = _folder_of(settings.warehouse)
    if folder is None:
        return None
    from crannog.server.lock import server_of

    address = server_of(folder)
    if address is None:
        return None
    lake = _remote(address, token)
    try:
        lake.cache.stats()
    except (Unauthorized, Unavailable):
        # Any number of processes may open a folder, so a server that cannot be used is not needed.
        lake.close()
        return None
    return lake


def _embedded(settings: Settings, *, make: bool) -> EmbeddedLake:
    if not make:
        _check_there(settings.warehouse)
    from crannog.embedded import EmbeddedLake

    return EmbeddedLake(settings.warehouse, settings=settings)


def _folder_of(location: str) -> Path | None:
    """Return the folder of a warehouse; None for a bucket."""
    from crannog.storage.interface import open_storage

    if "://" in location and not location.startswith("file:"):
        return None
    return Path(open_storage(location).uri(""))


def _check_there(location: str) -> None:
    folder = _folder_of(location)  # opening a bucket never creates it
    if folder is not None and not folder.is_dir():
        raise NotFound(
            f"there is no warehouse at {folder}; create one with `crannog create`, or set --warehouse DIR or CRANNOG_WAREHOUSE to another"
        )


def answer(data: Any, as_json: bool, otherwise: Callable[[], None]) -> None:
    """Print `data` as JSON if `as_json`; otherwise call `otherwise`, which prints it as text."""
    if as_json:
        from crannog.formats.json_values import to_plain_json

        typer.echo(json.dumps(to_plain_json(data), indent=2, ensure_ascii=False))
    else:
        otherwise()
