"""`crannog token`: the access tokens of a warehouse, on its machine only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from crannog.cli.arguments import JsonOption, YesOption, confirm
from crannog.cli.context import answer, place_of
from crannog.cli.output import listing
from crannog.errors import CallerError

if TYPE_CHECKING:
    from crannog.server.auth import Tokens

token = typer.Typer(help="Access tokens for the server of this warehouse.", no_args_is_help=True)
TokenName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token, in lists and in the audit log.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(token, name="token")
    for name, command in (("create", create), ("list", list_), ("revoke", revoke), ("open", open_)):
        token.command(name)(command)


def create(
    context: typer.Context,
    name: TokenName,
    scope: Annotated[
        list[str],
        typer.Option(
            metavar="LEVEL[:CATALOG[.SCHEMA]]",
            help="ingest (send only), read, write (both) or admin (everything). Can be repeated.",
        ),
    ],
    expires_days: Annotated[float | None, typer.Option(metavar="DAYS", help="Days until the token expires.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token and show it once. From then on, every request to a server of this warehouse needs a token."""
    made = _tokens(context).create(name, scope, expires_days)
    answer({"name": name, "token": made}, as_json, lambda: typer.echo(made))


def list_(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the tokens and their scopes, and damaged files of tokens; the tokens themselves are not stored."""
    found = _tokens(context).read()
    shown: list[dict[str, Any]] = [found.tokens[name].as_dict() for name in sorted(found.tokens)]
    rows = [(made["name"], ", ".join(made["scopes"]), made["created_at"], made["expires_at"]) for made in shown]
    for name, reason in sorted(found.damaged.items()):
        shown.append({"name": name, "scopes": [], "created_at": None, "expires_at": None, "damaged": reason})
        rows.append((name, f"damaged, {reason}", None, None))
    empty = (
        "There is no token, but there was one: servers refuse all requests. `crannog token create` creates one,"
        " `crannog token open` lets requests without a token in again."
        if found.is_required
        else "There are no tokens; a server listens only on loopback."
    )
    answer(shown, as_json, lambda: listing(("token", "scopes", "created", "expires"), rows, empty=empty))


def revoke(context: typer.Context, name: TokenName, as_json: JsonOption = False) -> None:
    """Revoke a token; servers reject it within two seconds."""
    _tokens(context).revoke(name)
    answer({"name": name, "revoked": True}, as_json, lambda: typer.echo(f"{name} was revoked."))


def open_(context: typer.Context, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Revoke all tokens, and let servers of this warehouse take requests without one, on loopback.

    Without this, a warehouse that has had a token stays closed, whatever becomes of the tokens. A running server stays closed
    until it is restarted.
    """
    tokens = _tokens(context)
    found = tokens.read()
    count = len(found.tokens) + len(found.damaged)
    confirm(
        f"Revoke {count} tokens, and let everybody on this machine use a server without one?",
        "open the warehouse to requests without a token",
        yes,
    )
    tokens.open()
    said = "Servers take requests without a token on loopback; restart one that is running."
    answer({"opened": True, "revoked": count}, as_json, lambda: typer.echo(said))


def _tokens(context: typer.Context) -> Tokens:
    from crannog.server.auth import Tokens
    from crannog.storage.interface import open_storage

    place = place_of(context)
    if place.server:
        raise CallerError("tokens are managed in the warehouse, not through its server; use --warehouse DIR")
    settings = place.settings()
    return Tokens(open_storage(settings.warehouse, settings.folder_mode))
