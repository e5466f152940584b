"""Tokens: what a caller shows to have its rights.

A token is `crannog_NAME_SECRET`, and one small file in the warehouse, put if absent. The file has the SHA-256 of the secret;
since that has 256 random bits, no slower hash is needed, and the file reveals no token.

A warehouse that has ever had a token stays closed to requests without one: a marker beside the folder of tokens is put before
the first of them, and whatever becomes of that folder, only `open` takes the marker away. A file that is no valid token
counts as one that nobody has.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import logging
import re
import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from crannog.errors import CallerError, Conflict, NotFound, Unauthorized, Unavailable
from crannog.server.scopes import Caller, Scope
from crannog.storage.interface import Storage

FOLDER = "_crannog/tokens"
MARKER = "_requires_tokens"
"""In the root of the warehouse: removing all of Crannog's own folder does not open a server either."""
_MARKER_TEXT = (
    b"This warehouse has had access tokens: its servers refuse requests without a valid one.\n"
    b"`crannog token open` removes this file, and lets requests without a token in again.\n"
)
REREAD_S = 2.0
# An unavailable bucket must neither lock all callers out at once nor keep a revoked token valid for long.
_STALE_S = 30.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-]{0,63}")
_TOKEN = re.compile(r"crannog_([A-Za-z0-9\-]{1,64})_([0-9a-f]{64})")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NOBODY = "0" * 64
_NONE_VALID = (
    "this server requires a token, and there is no valid one: on its machine, `crannog token create NAME --scope admin` creates"
    " one, and `crannog token open` lets requests without a token in again"
)
log = logging.getLogger("crannog.server")


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


@dataclass(frozen=True, slots=True)
class TokenFiles:
    """What a warehouse has of tokens: the valid ones by name, and what is wrong with other files, by their names."""

    tokens: dict[str, Token]
    damaged: dict[str, str]
    is_required: bool
    """Whether requests need a token."""


class Tokens:
    """The tokens of one warehouse. Safe for threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, Token] = {}
        self._damaged: dict[str, str] = {}
        self._is_required: bool | None = None
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
                "a token needs a scope: ingest, read, write or admin, each optionally followed by :catalog or :catalog.schema"
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
        # The marker goes first: there is no moment at which losing the token's file opens a server.
        self._mark()
        if not self._storage.put_if_absent(_path(name), json.dumps(content).encode(), private=True):
            raise Conflict(f"a token {name} already exists; revoke it first, or choose another name")
        return f"crannog_{name}_{secret}"

    def list(self) -> list[Token]:
        """Return all valid tokens, including expired ones, by name."""
        return sorted(self.read().tokens.values(), key=lambda token: token.name)

    def revoke(self, name: str) -> None:
        """Revoke a token; servers notice within two seconds. Raises NotFound if it does not exist."""
        if not _NAME.fullmatch(name) or not self._storage.exists(_path(name)):
            raise NotFound(f"there is no token {name!r}; `crannog token list` lists them")
        self._storage.delete([_path(name)])

    def open(self) -> None:
        """Revoke all tokens and let requests without one in again, at servers that start after this."""
        self._storage.delete([f"{FOLDER}/{name}" for name in self._storage.names(FOLDER) if name.endswith(".json")])
        self._storage.delete([MARKER])

    def _mark(self) -> None:
        if not self._storage.exists(MARKER):
            self._storage.put_if_absent(MARKER, _MARKER_TEXT)

    def read(self) -> TokenFiles:
        """Read all files. Raises Unavailable if the storage cannot be read."""
        tokens, damaged = {}, {}
        for file in self._storage.names(FOLDER):
            if not file.endswith(".json"):
                continue
            name = file.removesuffix(".json")
            try:
                tokens[name] = _token(self._storage.read(f"{FOLDER}/{file}"), name)
            except FileNotFoundError:
                continue  # revoked since the listing
            except (ValueError, KeyError, TypeError, RecursionError, CallerError) as error:
                damaged[name] = "not valid JSON" if isinstance(error, json.JSONDecodeError) else "not a token"
            except Unavailable as error:
                # Of one file it is for its owner to mend, and must not lock out the others.
                if not isinstance(error.__cause__, PermissionError):
                    raise
                damaged[name] = "cannot be read: permission denied"
        return TokenFiles(tokens, damaged, bool(tokens or damaged) or self._storage.exists(MARKER))

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
                found = self.read()
            except Unavailable:
                if time.monotonic() - self._read_at > _STALE_S:
                    raise
                return
            if not self._is_required and (found.tokens or found.damaged):
                # Made before there was a marker. A server that cannot write it stays closed by itself.
                with suppress(Unavailable):
                    self._mark()
            for name in found.damaged.keys() - self._damaged.keys():
                log.warning(
                    "%s/%s.json is damaged (%s): nobody can use this token; `crannog token revoke` removes it",
                    *(FOLDER, name, found.damaged[name]),
                )
            self._known, self._damaged = found.tokens, found.damaged
            # What was closed opens by nothing that happens to the files, until the server starts again.
            self._is_required = found.is_required or self._is_required is True
            self._read_at = time.monotonic()

    @property
    def required(self) -> bool:
        """Whether requests need a token, as of the last `refresh`."""
        return self._is_required is not False

    @property
    def any_valid(self) -> bool:
        """Whether there is a valid token, as of the last `refresh`."""
        return bool(self._known)

    @property
    def trouble(self) -> str:
        """Why no request can have a valid token, as of the last `refresh`; empty if one can."""
        return "" if self._known or not self._is_required else _NONE_VALID

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


def _path(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _token(data: bytes, name: str) -> Token:
    """Read a token's file; raises ValueError, KeyError, TypeError or CallerError if it is not one."""
    content = json.loads(data)
    expires = content["expires_at"]
    token = Token(
        content["name"],
        tuple(Scope.parse(text) for text in content["scopes"]),
        dt.datetime.fromisoformat(content["created_at"]),
        dt.datetime.fromisoformat(expires) if expires else None,
        content["secret_sha256"],
    )
    # Under another name it would stand for a token that has its own file.
    if token.name != name or not _SHA256.fullmatch(token.secret_sha256):
        raise ValueError
    if token.expires_at is not None and token.expires_at.tzinfo is None:
        raise ValueError  # it cannot be compared with the present time
    return token
