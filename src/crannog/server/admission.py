"""The admission of requests: by a token, by a session of the pages, or, where no token is required, from this machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from crannog.errors import Forbidden, Unauthorized
from crannog.server.scopes import ANYBODY, Caller

if TYPE_CHECKING:
    from crannog.server.service import Service

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


def admitted(
    service: Service, *, authorization: str, host: str, origin: str | None, address: str, session: str = ""
) -> Caller:
    """Return the caller, by the tokens as last read. Raises Unauthorized, Forbidden or Overloaded.

    `session` is the id of a session of the pages, whose request is known to come from them.
    """
    scheme, _, token = authorization.partition(" ")
    if service.loopback and not service.tokens.required:
        _check_same_site(host.lower(), origin)
        caller = ANYBODY
    elif scheme.lower() == "bearer":
        caller = service.tokens.caller(token.strip())
    elif session:
        caller = service.sessions.caller(session)
    else:
        raise Unauthorized(service.tokens.trouble or "this server requires a token: send Authorization: Bearer TOKEN")
    if address not in LOCAL_HOSTS:
        service.rates.take(caller.name if caller is not ANYBODY else address)
    return caller


def _check_same_site(host: str, origin: str | None) -> None:
    """Refuse requests of web pages in a browser: without tokens, anything on loopback has all rights."""
    if re.sub(r":\d+$", "", host) not in LOCAL_HOSTS:
        raise Forbidden(f"a server without tokens accepts requests to localhost and 127.0.0.1, not to {host[:80]!r}")
    if origin is not None and origin.lower().partition("://")[2] != host:
        raise Forbidden("a server without tokens accepts no requests from other web sites")
