"""Sessions of the web pages: a cookie that stands for a token which a person signed in with.

The cookie holds a random id, and the server keeps, in memory, which token it stands for: a token never comes back from the
server, and a restart ends all sessions. A session has the rights of its token as they are now, and ends when that is revoked.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from crannog.errors import Forbidden, Unauthorized
from crannog.server.auth import Tokens
from crannog.server.scopes import Caller

COOKIE = "crannog_session"
LASTS_S = 12 * 3600
_MOST = 10_000
_READS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class _Session:
    token: str
    ends: float


class Sessions:
    """The sessions of one server. Safe for threads."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, token: str) -> tuple[str, Caller]:
        """Return the id of a new session, and its caller. Raises Unauthorized if the token is not valid."""
        caller = self._tokens.caller(token)
        session_id = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[session_id] = _Session(token, time.monotonic() + LASTS_S)
            if len(self._sessions) > _MOST:
                self._sessions.popitem(last=False)
        return session_id, caller

    def end(self, session_id: str) -> None:
        """Forget a session, if there is one."""
        with self._lock:
            self._sessions.pop(session_id, None)

    def caller(self, session_id: str) -> Caller:
        """Return the caller of a session. Raises Unauthorized if it ended, or its token is no longer valid."""
        with self._lock:
            session = self._sessions.get(session_id)
        if session is None or time.monotonic() >= session.ends:
            self.end(session_id)
            raise Unauthorized("the session has ended; sign in again")
        return self._tokens.caller(session.token)


def session_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the id of the session that a request names in its cookie; empty if none."""
    try:
        found = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def check_same_origin(method: str, headers: Mapping[bytes, bytes]) -> None:
    """Raise Forbidden if a page of another site sent the request; a browser adds cookies to such requests too."""
    site = headers.get(b"sec-fetch-site", b"").decode("latin-1").lower()
    if site == "same-origin" or (method in _READS and site in ("", "none")):
        return
    # Browsers that do not say Sec-Fetch-Site say Origin with every request that may change something.
    origin = headers.get(b"origin", b"").decode("latin-1").lower()
    host = headers.get(b"host", b"").decode("latin-1").lower()
    if site or not host or origin.partition("://")[2] != host:
        raise Forbidden("a session is for the server's own pages; elsewhere, send Authorization: Bearer TOKEN")
