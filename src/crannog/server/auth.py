"""Who may do what: scopes, the tokens that carry them, and the admission of requests.

A token is `crannog_NAME_SECRET`, and one small file in the warehouse, put if absent. The file has the SHA-256 of the secret;
since that has 256 random bits, no slower hash is needed, and the file reveals no token.

Where tokens exist, a request needs one; without them requests come only from this machine, and not from web pages on it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import re
import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crannog.engine.owned_tables import is_system
from crannog.errors import CallerError, Conflict, Forbidden, NotFound, Unauthorized, Unavailable
from crannog.names import TableName
from crannog.storage.interface import Storage

if TYPE_CHECKING:
    from crannog.server.service import Service

LEVELS = ("read", "write", "admin")
"""Each includes those before it. The system tables show what all callers did, so only an admin may read them."""


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """One right: a level, and the catalog or schema that it applies to; without one it applies everywhere."""

    level: str
    catalog: str | None = None
    schema: str | None = None

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Read `level`, `level:catalog` or `level:catalog.schema`. Raises CallerError if it is invalid."""
        level, colon, place = text.partition(":")
        if level not in LEVELS:
            raise CallerError(f"a scope begins with {', '.join(LEVELS[:-1])} or {LEVELS[-1]}, got {text!r}")
        if not colon:
            return cls(level)
        catalog, dot, schema = place.partition(".")
        # The parts follow the rules of table names, so a table name checks them.
        TableName.parse(f"{catalog}.{schema if dot else 's'}.t")
        return cls(level, catalog, schema if dot else None)

    def allows(self, level: str, name: TableName) -> bool:
        """Return whether this right covers a level on a table."""
        if self.level != "admin" and (LEVELS.index(self.level) < LEVELS.index(level) or is_system(name)):
            return False
        return self.catalog in (None, name.catalog) and self.schema in (None, name.schema)

    def __str__(self) -> str:
        return self.level + (f":{self.catalog}" if self.catalog else "") + (f".{self.schema}" if self.schema else "")


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, and its rights."""

    name: str
    scopes: tuple[Scope, ...]

    @property
    def owner(self) -> str:
        """What the ids of this caller's queries belong to; empty where there are no tokens, as in the process itself."""
        return "" if self is ANYBODY else self.name

    def may(self, level: str, name: TableName) -> bool:
        """Return whether this is allowed on a table, which need not exist."""
        return any(scope.allows(level, name) for scope in self.scopes)

    def may_everywhere(self, level: str) -> bool:
        """Return whether this is allowed on all tables."""
        return any(scope.catalog is None and LEVELS.index(scope.level) >= LEVELS.index(level) for scope in self.scopes)

    def check(self, level: str, names: Iterable[TableName]) -> None:
        """Raise Forbidden, with the missing scope, unless this is allowed on all these tables."""
        for name in names:
            if not self.may(level, name):
                needed = "admin" if is_system(name) else level
                raise Forbidden(
                    f"{self.name} may not {level} {name}: that needs the scope {needed}:{name.catalog}.{name.schema}"
                    f" or a wider one, the token has {', '.join(map(str, self.scopes)) or 'none'}"
                )


ANYBODY = Caller("local", (Scope("admin"),))
"""The caller of a server on loopback that has no tokens."""


FOLDER = "_crannog/tokens"
REREAD_S = 2.0
# An unavailable bucket must neither lock all callers out at once nor keep a revoked token valid for long.
_STALE_S = 30.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-]{0,63}")
_TOKEN = re.compile(r"crannog_([A-Za-z0-9\-]{1,64})_([0-9a-f]{64})")
_NOBODY = "0" * 64


@dataclass(frozen=True, slots=True)
class Token:
    """What is stored of a token; never its secret."""

    name: str
    scopes: tuple[Scope, ...]
    created_at: dt.datetime
    expires_at: dt.datetime | None
    secret_sha256: str

    def expired(self, now: dt.datetime) -> bool:
        """Return whether the token has expired."""
        return self.expires_at is not None and now >= self.expires_at

    def as_dict(self) -> dict[str, Any]:
        """Return what may be shown of the token."""
        return {
            "name": self.name,
            "scopes": [str(scope) for scope in self.scopes],
            "created_at": self.created_at,
            "expires_at": self.expires_at,
        }


class Tokens:
    """The tokens of one warehouse. Safe for threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, Token] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def create(self, name: str, scopes: Sequence[str], expires_days: float | None = None) -> str:
        """Create a token and return it, the only time it is shown. Raises Conflict if the name is taken."""
        if not _NAME.fullmatch(name):
            raise CallerError(
                f"a token's name is up to 64 letters, digits and '-', and starts with a letter or digit, got {name!r}"
            )
        if not scopes:
            raise CallerError(
                "a token needs a scope: read, write or admin, each optionally followed by :catalog or :catalog.schema"
            )
        if expires_days is not None and not 0 < expires_days <= 36_500:
            raise CallerError(f"a token expires after more than 0 and up to 36,500 days, got {expires_days:g}")
        wanted = sorted({Scope.parse(text) for text in scopes}, key=str)
        now = dt.datetime.now(dt.UTC)
        secret = secrets.token_hex(32)
        content = {
            "name": name,
            "scopes": [str(scope) for scope in wanted],
            "created_at": now.isoformat(),
            "expires_at": (now + dt.timedelta(days=expires_days)).isoformat() if expires_days is not None else None,
            "secret_sha256": _hash(secret),
        }
        self._storage.make_folder(FOLDER)
        if not self._storage.put_if_absent(_path(name), json.dumps(content).encode()):
            raise Conflict(f"a token {name} already exists; revoke it first, or choose another name")
        return f"crannog_{name}_{secret}"

    def list(self) -> list[Token]:
        """Return all tokens, including expired ones, by name."""
        return sorted(self._read().values(), key=lambda token: token.name)

    def revoke(self, name: str) -> None:
        """Revoke a token; servers notice within two seconds. Raises NotFound if it does not exist."""
        if not _NAME.fullmatch(name) or not self._storage.exists(_path(name)):
            raise NotFound(f"there is no token {name!r}; `crannog token list` lists them")
        self._storage.delete([_path(name)])

    @property
    def is_stale(self) -> bool:
        """Whether `refresh` would read the storage."""
        return time.monotonic() - self._read_at >= REREAD_S

    def refresh(self) -> None:
        """Read the tokens again if that is two seconds ago. Raises Unavailable if they cannot be read for a while."""
        with self._lock:
            if not self.is_stale:
                return
            try:
                self._known = self._read()
            except Unavailable:
                if time.monotonic() - self._read_at > _STALE_S:
                    raise
                return
            self._read_at = time.monotonic()

    @property
    def any(self) -> bool:
        """Whether there are tokens, as of the last `refresh`; then requests need one."""
        return bool(self._known)

    def caller(self, token: str) -> Caller:
        """Return the caller with this token, as of the last `refresh`. Raises Unauthorized, which shows nothing of the token."""
        shape = _TOKEN.fullmatch(token)
        known = self._known.get(shape[1]) if shape else None
        # Takes the same time whether the name exists or not.
        matches = hmac.compare_digest(_hash(shape[2] if shape else ""), known.secret_sha256 if known else _NOBODY)
        if known is None or not matches:
            raise Unauthorized("the token is not valid; it may have been revoked: `crannog token create` creates one")
        if known.expired(dt.datetime.now(dt.UTC)):
            raise Unauthorized(
                f"the token {known.name} expired on {known.expires_at:%Y-%m-%d}; `crannog token create` creates another"
            )
        return Caller(known.name, known.scopes)

    def _read(self) -> dict[str, Token]:
        found = {}
        for name in self._storage.names(FOLDER):
            if name.endswith(".json"):
                try:
                    token = _token(self._storage.read(f"{FOLDER}/{name}"))
                except FileNotFoundError:
                    continue  # revoked since the listing
                except (ValueError, KeyError, TypeError, CallerError):
                    continue  # not a token file
                found[token.name] = token
        return found


def _path(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _token(data: bytes) -> Token:
    content = json.loads(data)
    expires = content["expires_at"]
    return Token(
        content["name"],
        tuple(Scope.parse(text) for text in content["scopes"]),
        dt.datetime.fromisoformat(content["created_at"]),
        dt.datetime.fromisoformat(expires) if expires else None,
        content["secret_sha256"],
    )


LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


def admitted(
    service: Service, *, authorization: str, host: str, origin: str | None, address: str, session: str = ""
) -> Caller:
    """Return the caller, by the tokens as last read. Raises Unauthorized, Forbidden or Overloaded.

    `session` is the id of a session of the pages, whose request is known to come from them.
    """
    scheme, _, token = authorization.partition(" ")
    if service.loopback and not service.tokens.any:
        _check_same_site(host.lower(), origin)
        caller = ANYBODY
    elif scheme.lower() == "bearer":
        caller = service.tokens.caller(token.strip())
    elif session:
        caller = service.sessions.caller(session)
    else:
        raise Unauthorized("this server requires a token: send Authorization: Bearer TOKEN")
    if address not in LOCAL_HOSTS:
        service.rates.take(caller.name if caller is not ANYBODY else address)
    return caller


def _check_same_site(host: str, origin: str | None) -> None:
    """Refuse requests of web pages in a browser: without tokens, anything on loopback has all rights."""
    if re.sub(r":\d+$", "", host) not in LOCAL_HOSTS:
        raise Forbidden(f"a server without tokens accepts requests to localhost and 127.0.0.1, not to {host[:80]!r}")
    if origin is not None and origin.lower().partition("://")[2] != host:
        raise Forbidden("a server without tokens accepts no requests from other web sites")
