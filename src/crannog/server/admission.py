"""The admission of requests: by a token, by a session of the pages, or, where no token is required, from this machine."""

from __future__ import annotations

import re
from ipaddress import IPv6Network
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
    if service.loopback and not service.tokens.required:
        _check_same_site(host.lower(), origin)
        if address not in LOCAL_HOSTS:
            service.rates.take(address)
        return ANYBODY
    try:
        caller = _holder(service, authorization, session)
    except Unauthorized:
        # By the address, also on loopback, and before anything else is done for it. Looking at the token is cheaper than
        # the count, and comes first: behind a proxy, strangers must not lock out those who have a valid one.
        service.refusals.take(_network(address), what="requests without a valid token")
        raise
    if address not in LOCAL_HOSTS:
        service.rates.take(caller.name)
    return caller


def _holder(service: Service, authorization: str, session: str) -> Caller:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return service.tokens.caller(token.strip())
    if session:
        return service.sessions.caller(session)
    raise Unauthorized(service.tokens.trouble or "this server requires a token: send Authorization: Bearer TOKEN")


def _network(address: str) -> str:
    """Return what stands for one sender: an address, or the network of an IPv6 address, which one sender has all of."""
    if ":" not in address:
        return address
    try:
        return str(IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address


def _check_same_site(host: str, origin: str | None) -> None:
    """Refuse requests of web pages in a browser: without tokens, anything on loopback has all rights."""
    if re.sub(r":\d+$", "", host) not in LOCAL_HOSTS:
        raise Forbidden(f"a server without tokens accepts requests to localhost and 127.0.0.1, not to {host[:80]!r}")
    if origin is not None and origin.lower().partition("://")[2] != host:
        raise Forbidden("a server without tokens accepts no requests from other web sites")
