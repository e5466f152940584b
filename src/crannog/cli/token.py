"""Commands that manage the access tokens of a warehouse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from crannog.cli.context import JsonOption, answer, place_of
from crannog.errors import CallerError

if TYPE_CHECKING:
    from crannog.server.auth.tokens import Tokens

token = typer.Typer(help="Access tokens for the server of this warehouse.", no_args_is_help=True)
TokenName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token, in lists and in the audit log.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(token, name="token")
    token.command("create")(create)
    token.command("list")(list_)
    token.command("revoke")(revoke)


def create(
    context: typer.Context,
    name: TokenName,
    scope: Annotated[
        list[str],
        typer.Option(
            metavar="LEVEL[:CATALOG[.SCHEMA]]",
            help="read, write or admin; each includes those before it. Can be repeated.",
        ),
    ],
    expires_days: Annotated[float | None, typer.Option(metavar="DAYS", help="Days until the token expires.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token and show it once. From then on, every request to a server of this warehouse needs a token."""
    made = _tokens(context).create(name, scope, expires_days)
    answer({"name": name, "token": made}, as_json=as_json, otherwise=lambda: typer.echo(made))


def list_(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the tokens and their scopes; the tokens themselves are not stored."""
    from crannog.cli.output import listing

    found = [made.as_dict() for made in _tokens(context).list()]
    rows = [(made["name"], ", ".join(made["scopes"]), made["created_at"], made["expires_at"]) for made in found]
    answer(
        found,
        as_json=as_json,
        otherwise=lambda: listing(
            ("token", "scopes", "created", "expires"),
            rows,
            empty="There are no tokens; a server listens only on loopback.",
        ),
    )


def revoke(context: typer.Context, name: TokenName, as_json: JsonOption = False) -> None:
    """Revoke a token; servers reject it within two seconds."""
    _tokens(context).revoke(name)
    answer({"name": name, "revoked": True}, as_json=as_json, otherwise=lambda: typer.echo(f"{name} was revoked."))


def _tokens(context: typer.Context) -> Tokens:
    from crannog.server.auth.tokens import Tokens
    from crannog.storage.open import open_storage

    place = place_of(context)
    if place.server:
        raise CallerError("tokens are managed in the warehouse, not through its server; use --warehouse DIR")
    return Tokens(open_storage(place.settings().warehouse))
