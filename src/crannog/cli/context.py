"""What every command knows: where the lake is, how to read the settings, how to answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crannog.errors import CallerError, CrannogError, NotFound

if TYPE_CHECKING:
    from crannog.datasets.lake import Lake
    from crannog.settings import Settings

JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The table, as catalog.schema.table.")]

# The engine speaks to whoever calls it from Python; these are its hints in the words of the command line.
_WORDS = (
    ("tables() lists", "`crannog tables` lists"),
    ("history() lists", "`crannog history` lists"),
    ('pass if_exists="ok" to use it', "give --if-exists ok to use it"),
    ("create it with key=[…]", "create one with --key"),
    ("fold the table (fold())", "fold the table (`crannog fold`)"),
    ("give each key as a dict of these columns", "give each key as a JSON object of these columns"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """The warehouse or the server the command is about; empty means as the settings say."""

    warehouse: str = ""
    server: str = ""

    def settings(self) -> Settings:
        """Read the settings, the warehouse replaced if one was given."""
        from crannog.settings import load_settings

        return load_settings(**({"warehouse": self.warehouse} if self.warehouse else {}))

    @property
    def location(self) -> str:
        """What `crannog.connect` takes."""
        return self.server or self.settings().warehouse


def place_of(context: typer.Context) -> Place:
    """Return the place given before the command's name."""
    place = context.find_object(Place)
    if place is None:
        raise CallerError("the command was called without its options")
    return place


@contextmanager
def lake_at(context: typer.Context, *, make: bool = False) -> Iterator[Lake]:
    """Open the warehouse for one command; one that is not there is NotFound, and made only if `make`."""
    place = place_of(context)
    if place.server:
        raise CallerError("this version of Crannog works on warehouses only, servers come with a later one: give --warehouse DIR")
    settings = place.settings()
    if not make:
        _check_there(settings.warehouse)
    from crannog.datasets.lake import Lake

    try:
        with Lake(settings.warehouse, settings=settings) as lake:
            yield lake
    except CrannogError as error:
        for python, shell in _WORDS:
            error.message = error.message.replace(python, shell)
        raise


def _check_there(location: str) -> None:
    from crannog.lake.open_storage import open_storage

    if "://" in location and not location.startswith("file:"):
        return  # a bucket is never made by looking at it
    folder = Path(open_storage(location).uri(""))
    if not folder.is_dir():
        raise NotFound(
            f"there is no warehouse at {folder}: `crannog create` makes one there, --warehouse DIR or CRANNOG_WAREHOUSE names another"
        )


def answer(data: Any, *, as_json: bool, otherwise: Callable[[], None]) -> None:
    """Print `data` as JSON if asked, else let `otherwise` print it for people."""
    if as_json:
        from crannog.formats.plain import plain

        typer.echo(json.dumps(plain(data), indent=2, ensure_ascii=False))
    else:
        otherwise()
