"""What every command knows: where the lake is, how to read the settings, how to answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crannog.errors import CallerError

if TYPE_CHECKING:
    from crannog.settings import Settings

JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


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


def answer(data: Any, *, as_json: bool, otherwise: Callable[[], None]) -> None:
    """Print `data` as JSON if asked, else let `otherwise` print it for people."""
    if as_json:
        typer.echo(json.dumps(data, indent=2, default=str))
    else:
        otherwise()
